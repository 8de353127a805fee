"""Intervals, paired differences and tests, held against scipy, exact coverage and brute force."""

from __future__ import annotations

import math
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as referee

from pilotfish.evaluate.stats import (
    _tail,
    holm,
    mcnemar,
    mean_interval,
    nested_difference,
    paired_difference,
    standard_error,
    tasks_needed,
    two_se,
)

rewards = st.lists(st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=40)


def covered(n: int, share: float) -> float:
    """Exact coverage of the 95 % interval for n tasks that are each right with chance `share`."""
    total = 0.0
    for right in range(n + 1):
        interval = mean_interval([1] * right + [0] * (n - right), draws=2000)
        if interval.low - 1e-12 <= share <= interval.high + 1e-12:
            total += referee.binom.pmf(right, n, share)
    return total


@pytest.mark.parametrize("n", [15, 30, 40, 100])
@pytest.mark.parametrize("share", [0.03, 0.1, 0.44, 0.8, 0.97])
def test_interval_covers_small_benchmarks(n: int, share: float) -> None:
    assert covered(n, share) > 0.90


def test_coverage_is_near_nominal_on_average() -> None:
    assert 0.94 < np.mean([covered(30, share) for share in np.linspace(0.05, 0.95, 19)]) < 0.98


def test_paired_interval_covers() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(1000):
        gap = rng.choice([-1, 0, 1], p=[0.05, 0.8, 0.15], size=100)
        found = paired_difference(gap == 1, gap == -1, draws=1000, seed=trial)
        hits += found.low <= 0.1 <= found.high
    assert 0.93 <= hits / 1000 <= 0.975


@pytest.mark.parametrize("n", [12, 60])
def test_interval_is_scipys_percentile_at_the_expanded_level(n: int) -> None:
    values = np.random.default_rng(n).beta(0.5, 2, n)
    found = mean_interval(values, draws=40_000)
    tail = referee.norm.cdf(-math.sqrt(n / (n - 1)) * referee.t.ppf(0.975, n - 1))
    expected = referee.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=40_000, confidence_level=1 - 2 * tail, rng=3
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.006)
    assert _tail(n) == pytest.approx(tail, rel=0.02)


def test_drawing_counts_and_drawing_indices_agree() -> None:
    few = np.repeat([0.0, 0.25, 1.0], 40)
    many = few + np.linspace(0, 1e-9, 120) * np.where(few < 1, 1, -1)
    a, b = mean_interval(few, draws=40_000), mean_interval(many, draws=40_000)
    assert (a.low, a.high) == pytest.approx((b.low, b.high), abs=0.005)


def test_interval_agrees_with_scipys_bca_on_many_tasks() -> None:
    values = (np.arange(2000) % 10 < 3).astype(float)
    found = mean_interval(values)
    expected = referee.bootstrap((values,), np.mean, method="BCa", n_resamples=4000, rng=0).confidence_interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.003)


def test_tasks_that_all_score_alike_do_not_give_certainty() -> None:
    right, wrong, tied = mean_interval([1] * 30), mean_interval([0] * 30), paired_difference([1] * 30, [1] * 30)
    assert right.high == 1
    assert 0.86 < right.low < 0.92
    assert wrong.high == pytest.approx(1 - right.low, abs=0.01)
    assert tied.low == pytest.approx(-tied.high, abs=0.01)
    assert 0.08 < tied.high < 0.14


def test_samples_are_averaged_within_their_task_and_tasks_resampled() -> None:
    alike = np.repeat(np.arange(40)[:, None] % 2, 16, axis=1)
    assert mean_interval(alike) == mean_interval(alike[:, 0])
    assert mean_interval([[1, None], [0, 1], [None, None]]).estimate == 0.75
    assert mean_interval([[1, None], [0, 1], [None, None]]).unjudged == 1


@given(rewards)
def test_interval_holds_its_estimate_and_stays_in_range(values: list[float | None]) -> None:
    found = mean_interval(values, draws=200)
    judged = [value for value in values if value is not None]
    assert (found.n, found.unjudged) == (len(judged), len(values) - len(judged))
    if judged:
        assert found.estimate == pytest.approx(np.mean(judged))
        assert 0 <= found.low <= found.high <= 1
    else:
        assert math.isnan(found.estimate)
        assert math.isnan(found.low)


@given(st.lists(st.tuples(st.sampled_from([0, 1, None]), st.sampled_from([0, 1, None])), min_size=1, max_size=40))
def test_a_pair_leaves_when_either_arm_has_no_verdict(pairs: list[tuple[int | None, int | None]]) -> None:
    a, b = zip(*pairs, strict=True)
    found = paired_difference(a, b, draws=100)
    both = [(x, y) for x, y in pairs if x is not None and y is not None]
    assert found.n + found.unjudged == len(pairs)
    assert found.n == len(both)
    assert (found.better, found.worse) == (sum(x > y for x, y in both), sum(x < y for x, y in both))
    if both:
        assert found.estimate == pytest.approx(np.mean([x - y for x, y in both]))


def test_pairing_narrows_the_interval() -> None:
    solo = np.arange(200) % 2
    team = np.where(np.arange(200) < 10, 1, solo)
    paired = paired_difference(team, solo)
    alone = mean_interval(team)
    assert paired.estimate == pytest.approx(0.025)
    assert paired.high - paired.low < (alone.high - alone.low) / 2


def test_seed_decides_the_draws_and_nothing_else() -> None:
    values = np.random.default_rng(0).random(50)
    assert mean_interval(values, seed=1) == mean_interval(values, seed=1)
    assert mean_interval(values, seed=1) != mean_interval(values, seed=2)


def test_fourteen_thousand_tasks_fit_into_little_memory() -> None:
    values = np.random.default_rng(0).random(14_000)
    tracemalloc.start()
    mean_interval(values, draws=1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def seeds_experiment(rng: np.random.Generator, spread: float, seeds: int, tasks: int = 100) -> tuple[np.ndarray, ...]:
    """Two arms, the first better by 0.1, whose seeds differ by `spread` (standard deviation)."""
    ease = rng.uniform(0.3, 0.6, tasks)
    chances = [ease + lift + rng.normal(0, spread, (seeds, 1)) for lift in (0.1, 0.0)]
    return tuple((rng.random((seeds, tasks)) < chance).astype(float) for chance in chances)


@pytest.mark.parametrize("spread", [0.0, 0.1])
@pytest.mark.parametrize("seeds", [3, 5])
def test_nested_interval_covers_whether_or_not_seeds_differ(spread: float, seeds: int) -> None:
    rng = np.random.default_rng(4)
    hits = 0
    for _ in range(150):
        found = nested_difference(*seeds_experiment(rng, spread, seeds), draws=800)
        hits += found.low <= 0.1 <= found.high
    assert hits / 150 >= 0.91


def test_nested_difference_counts_the_seeds_spread() -> None:
    rng = np.random.default_rng(0)
    calm, wild = (nested_difference(*seeds_experiment(rng, spread, 5)) for spread in (0.0, 0.15))
    assert wild.high - wild.low > 1.5 * (calm.high - calm.low)


def test_answers_that_differ_by_chance_are_not_taken_for_seeds_that_differ() -> None:
    rng = np.random.default_rng(2)
    nested, plain = [], []
    for _ in range(60):
        a, b = seeds_experiment(rng, 0.0, 3)
        for widths, found in (nested, nested_difference(a, b)), (plain, paired_difference(a.T, b.T)):
            widths.append(found.high - found.low)
    assert np.median(nested) < 1.3 * np.median(plain)


def test_nested_difference_takes_an_untrained_arm_and_drops_unjudged_tasks() -> None:
    trained = [[1, 1, 0, None], [1, 0, 0, 1], [1, 1, 0, 1]]
    found = nested_difference(trained, [0, 1, 0, 0])
    assert (found.n, found.unjudged) == (3, 1)
    assert found.estimate == pytest.approx((1 + 2 / 3 + 0) / 3 - 1 / 3)
    assert (found.better, found.worse) == (1, 1)
    with pytest.raises(ValueError, match="one training seed"):
        nested_difference([[1, 0]], [1, 0])
    assert math.isnan(nested_difference([[None], [1]], [1]).estimate)


def test_standard_error_is_that_of_the_mean_over_tasks() -> None:
    values = [0.0, 1.0, 1.0, None, 0.5]
    assert standard_error(values) == pytest.approx(referee.sem([0, 1, 1, 0.5]))
    bar = two_se(values)
    assert (bar.estimate, bar.n, bar.unjudged) == (0.625, 4, 1)
    assert (bar.low, bar.high) == pytest.approx(
        (0.625 - 2 * standard_error(values), 0.625 + 2 * standard_error(values))
    )
    assert math.isnan(standard_error([1.0]))
    assert math.isnan(two_se([None]).estimate)


@settings(max_examples=60)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 5))
def test_mcnemar_is_the_binomial_test_of_the_discordant_tasks(better: int, worse: int, ties: int) -> None:
    a = [1] * better + [0] * worse + [1] * ties + [None]
    b = [0] * better + [1] * worse + [1] * ties + [1]
    expected = referee.binomtest(better, better + worse).pvalue if better + worse else 1.0
    assert mcnemar(a, b) == pytest.approx(expected)


def test_mcnemar_of_very_many_tasks_is_still_a_number() -> None:
    assert 0 < mcnemar([1] * 7000 + [0] * 6500, [0] * 7000 + [1] * 6500) < 1e-4


def test_mcnemar_refuses_what_it_is_not_made_for() -> None:
    with pytest.raises(ValueError, match=r"reward of 0\.5; use paired_difference"):
        mcnemar([0.5, 1], [1, 1])
    with pytest.raises(ValueError, match="shape"):
        mcnemar([[0, 1]], [[1, 1]])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_holm_is_the_closure_of_bonferroni(pvalues: list[float]) -> None:
    places = range(len(pvalues))
    for place, adjusted in enumerate(holm(pvalues)):
        sets = [c for size in places for c in combinations(places, size + 1) if place in c]
        expected = max(min(1.0, len(c) * min(pvalues[i] for i in c)) for c in sets)
        assert adjusted == pytest.approx(expected)


def test_holm_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    with pytest.raises(ValueError, match="not a p-value"):
        holm([0.2, float("nan")])


def exact_power(n: int, difference: float, discordant: float) -> float:
    """Power of the exact McNemar test with n tasks at the 5 % level."""
    share, power = (discordant + difference) / 2 / discordant, 0.0
    for m in range(n + 1):
        reject = [k for k in range(m // 2 + 1) if referee.binom.cdf(k, m, 0.5) <= 0.025]
        if reject:
            tails = referee.binom.cdf(reject[-1], m, share) + referee.binom.cdf(reject[-1], m, 1 - share)
            power += referee.binom.pmf(m, n, discordant) * tails
    return power


@pytest.mark.parametrize(("difference", "discordant"), [(0.2, 0.3), (0.3, 0.5), (0.15, 0.25)])
def test_tasks_needed_gives_the_exact_test_its_power(difference: float, discordant: float) -> None:
    assert exact_power(tasks_needed(difference, discordant), difference, discordant) == pytest.approx(0.8, abs=0.02)


def test_tasks_needed_grows_as_the_difference_shrinks() -> None:
    assert tasks_needed(0.05, 0.2) == 646
    assert tasks_needed(-0.05, 0.2) == 646
    assert tasks_needed(0.025, 0.2) > 3.5 * 646
    with pytest.raises(ValueError, match=r"difference=0\.3, discordant=0\.2"):
        tasks_needed(0.3, 0.2)


def test_faulty_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"reward is 1\.5"):
        mean_interval([0.2, 1.5])
    with pytest.raises(ValueError, match="3 and 2 tasks"):
        paired_difference([1, 0, 1], [1, 0])
    with pytest.raises(ValueError, match="shape"):
        mean_interval([[[1]]])
