"""Statistics of an evaluation: intervals, paired differences, tests, and how many tasks a claim needs.

    from pilotfish.evaluate.stats import mean_interval, paired_difference
    paired_difference(team_rewards, solo_rewards)      # the same tasks, in the same order

The unit is the task: tasks are resampled, never single answers, since answers to one task are alike. A reward of None
(or nan) means that nobody could judge the answer; such a task leaves the figure and is counted in `unjudged`.

Intervals are percentile bootstraps with two repairs, as accuracies come from as few as 30 tasks:

- The plain percentile is too narrow by sqrt((n - 1) / n) and knows no Student's t. The quantiles are therefore taken
  further out (Hesterberg's expanded percentile, The American Statistician 69, 2015). BCa was tried: it covers less for
  paired differences, where most tasks are ties (30 tasks, 8 % discordant: 0.80 against 0.84 of a nominal 0.95).
- When all tasks score alike the bootstrap would claim certainty. The draws then take in the share of other tasks that n
  equal ones leave open: 30 of 30 right is [0.89, 1], not [1, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, nan, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
"""Coverage of the bootstrap intervals."""
_FEW_LEVELS = 64
_CELLS = 2_000_000
"""Most resampled values held at once: 16 MB of values and 8 MB of indices."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval; all three are nan when no task was judged."""

    estimate: float
    low: float
    high: float
    n: int
    """Tasks in the estimate."""
    unjudged: int = 0
    """Tasks left out because they have no verdict."""


@dataclass(frozen=True, slots=True)
class Difference(Interval):
    """First arm minus second arm over the tasks that both have a verdict for."""

    better: int = 0
    """Tasks on which the first arm scores higher (0/1 rewards: wrong to right)."""
    worse: int = 0
    """Tasks on which it scores lower (right to wrong)."""


def mean_interval(values: ArrayLike, *, draws: int = 10_000, seed: int = 0) -> Interval:
    """Mean reward with its bootstrap interval over tasks.

    Args:
        values: rewards in [0, 1], shape (tasks,) or (tasks, samples); None or nan where there is no verdict. A task's
            score is the mean over its judged samples.
        draws: bootstrap resamples.
        seed: the same seed and values give the same interval.

    Raises:
        ValueError: a reward outside [0, 1], or a wrong shape.
    """
    return _interval(_task_scores(values), (0.0, 1.0), draws, seed)


def paired_difference(a: ArrayLike, b: ArrayLike, *, draws: int = 10_000, seed: int = 0) -> Difference:
    """Mean of `a` minus mean of `b` on the same tasks, with its bootstrap interval over tasks.

    Args:
        a: rewards of the first arm, (tasks,) or (tasks, samples); the arms may have different numbers of samples.
        b: rewards of the second arm, its tasks in the same order.
        draws, seed: as for `mean_interval`.

    Raises:
        ValueError: different numbers of tasks, a reward outside [0, 1], a wrong shape.
    """
    gaps = _gaps(a, b)
    return _difference(_interval(gaps, (-1.0, 1.0), draws, seed), gaps)


def nested_difference(a: ArrayLike, b: ArrayLike, *, draws: int = 10_000, seed: int = 0) -> Difference:
    """Difference of two methods over training seeds and tasks together: would other seeds and other tasks agree?

    Tasks are resampled, jointly for both arms. Seeds cannot be: a bootstrap of three values never leaves their range
    and covers at most 75 %. Each arm's seed effect is drawn instead from Student's t with seeds - 1 degrees of
    freedom, scaled by the standard error of its seed means once the noise of single answers is taken out (two-way
    random effects). The arms' seeds are independent: seed 0 of one method has nothing to do with seed 0 of the other.
    Two seeds give honest and very wide intervals; use three or more.

    Args:
        a: rewards of the first method, shape (seeds, tasks), two seeds or more; (tasks,) if it was not trained.
        b: rewards of the second, likewise; the arms may have different numbers of seeds.
        draws, seed: as for `mean_interval`.

    Raises:
        ValueError: a trained arm with one seed, different numbers of tasks, a reward outside [0, 1].
    """
    first, second = _seed_rows(a), _seed_rows(b)
    _same_tasks(first.shape[1], second.shape[1])
    judged = np.asarray(~(np.isnan(first).any(axis=0) | np.isnan(second).any(axis=0)))
    first, second = first[:, judged], second[:, judged]
    gaps = np.full(len(judged), nan)
    gaps[judged] = first.mean(axis=0) - second.mean(axis=0)

    def seeds_too(rng: np.random.Generator) -> Floats:
        return _seed_effect(first, draws, rng) - _seed_effect(second, draws, rng)

    return _difference(_interval(gaps, (-1.0, 1.0), draws, seed, seeds_too), gaps)


def standard_error(values: ArrayLike) -> float:
    """Standard error of the mean reward over tasks (n - 1 in the variance); nan for fewer than two judged tasks."""
    scores = _task_scores(values)
    kept = scores[~np.isnan(scores)]
    return float(kept.std(ddof=1) / sqrt(len(kept))) if len(kept) > 1 else nan


def two_se(values: ArrayLike) -> Interval:
    """Mean plus and minus two standard errors, the error bars of MLPO's figures; not clipped to [0, 1]."""
    scores = _task_scores(values)
    kept = scores[~np.isnan(scores)]
    mean = float(kept.mean()) if len(kept) else nan
    reach = 2 * standard_error(kept)
    return Interval(mean, mean - reach, mean + reach, len(kept), len(scores) - len(kept))


def mcnemar(a: ArrayLike, b: ArrayLike) -> float:
    """Exact two-sided p-value of McNemar's test on 0/1 rewards, one sample a task.

    Twice the smaller binomial tail of the discordant tasks, at most 1; tasks without a verdict in either arm leave.

    Raises:
        ValueError: more than one sample a task, or a reward that is neither 0 nor 1.
    """
    for arm in (_rewards(a), _rewards(b)):
        odd = arm[~np.isnan(arm) & (arm != 0) & (arm != 1)]
        if arm.ndim != 1 or odd.size:
            what = f"shape {arm.shape}" if arm.ndim != 1 else f"a reward of {odd[0]:g}"
            raise ValueError(f"mcnemar needs one 0/1 reward a task, got {what}; use paired_difference")
    gaps = _gaps(a, b)
    better, worse = int((gaps > 0).sum()), int((gaps < 0).sum())
    return min(1.0, float(2 * _half_tail(better + worse, min(better, worse))))


def holm(pvalues: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment for several comparisons at once; adjusted p-values in the order given.

    Raises:
        ValueError: a p-value outside [0, 1].
    """
    if wrong := [p for p in pvalues if not 0 <= p <= 1]:
        raise ValueError(f"holm: {wrong[0]} is not a p-value")
    adjusted, floor = [0.0] * len(pvalues), 0.0
    for rank, place in enumerate(sorted(range(len(pvalues)), key=pvalues.__getitem__)):
        floor = max(floor, min(1.0, (len(pvalues) - rank) * pvalues[place]))
        adjusted[place] = floor
    return adjusted


def tasks_needed(difference: float, discordant: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Tasks that a paired 0/1 comparison needs to show a difference (Connor, Biometrics 43, 1987).

    The normal approximation of McNemar's test, and 1 / |difference| tasks more for the continuity of the exact one.

    Args:
        difference: the accuracy gap to be found, e.g. 0.05; its sign does not matter.
        discordant: share of tasks that exactly one arm gets right; at least the difference.
        power: chance to find it.
        alpha: two-sided level of the test.

    Raises:
        ValueError: unless 0 < |difference| <= discordant <= 1, and power and alpha in (0, 1).
    """
    gap = abs(difference)
    if not (0 < gap <= discordant <= 1 and 0 < power < 1 and 0 < alpha < 1):
        raise ValueError(
            f"tasks_needed: difference={difference}, discordant={discordant}, power={power}, alpha={alpha}; "
            "needs 0 < |difference| <= discordant <= 1, and power and alpha between 0 and 1"
        )
    z = NormalDist().inv_cdf
    reach = z(1 - alpha / 2) * sqrt(discordant) + z(power) * sqrt(discordant - gap**2)
    return ceil((reach / gap) ** 2 + 1 / gap)


def _interval(
    scores: Floats,
    bounds: tuple[float, float],
    draws: int,
    seed: int,
    effect: Callable[[np.random.Generator], Floats] | None = None,
) -> Interval:
    """Interval of the mean of task scores.

    Args:
        scores: within `bounds`, (tasks,), nan where unjudged.
        effect: gives (draws,) deviations that come on top of the tasks'.
    """
    kept = scores[~np.isnan(scores)]
    unjudged = len(scores) - len(kept)
    if not len(kept):
        return Interval(nan, nan, nan, 0, unjudged)
    rng = np.random.default_rng(seed)
    means = _resampled_means(kept, bounds, draws, rng)
    if effect is not None:
        means = means + effect(rng)
    tail = _tail(len(kept))
    low, high = np.clip(np.quantile(means, [tail, 1 - tail]), *bounds)
    return Interval(float(kept.mean()), float(low), float(high), len(kept), unjudged)


def _resampled_means(scores: Floats, bounds: tuple[float, float], draws: int, rng: np.random.Generator) -> Floats:
    """Means of bootstrap resamples of `scores` (n,), n >= 1; shape (draws,).

    Rewards take few distinct values; how often each occurs can then be drawn at once, which is the same thing and
    hundreds of times faster.
    """
    n = len(scores)
    levels, counts = np.unique(scores, return_counts=True)
    if len(levels) == 1:
        share = 1 - rng.random(draws) ** (1 / n)
        return np.asarray(scores[0] + share * (rng.choice(bounds, draws) - scores[0]))
    if len(levels) <= _FEW_LEVELS:
        return np.asarray(rng.multinomial(n, counts / n, size=draws) @ levels / n)
    rows = max(1, _CELLS // n)
    parts = [min(rows, draws - start) for start in range(0, draws, rows)]
    return np.concatenate([scores[rng.integers(n, size=(part, n), dtype=np.int32)].mean(axis=1) for part in parts])


def _tail(n: int) -> float:
    """Probability to cut off at each end: the normal one, moved out by Student's t with n - 1 degrees of freedom
    (Cornish-Fisher expansion) and by sqrt(n / (n - 1))."""
    freedom = max(1, n - 1)
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return NormalDist().cdf(-t * sqrt(n / freedom))


def _seed_effect(rewards: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Draws of the error that the choice of training seeds puts into the mean of `rewards` (seeds, tasks)."""
    seeds, tasks = rewards.shape
    if seeds == 1:
        return np.zeros(draws)
    means = rewards.mean(axis=1, keepdims=True)
    residuals = rewards - means - rewards.mean(axis=0) + rewards.mean()
    noise = (residuals**2).sum() / ((seeds - 1) * max(1, tasks - 1))
    variance = max(0.0, float(means.var(ddof=1) - noise / tasks))
    return np.asarray(rng.standard_t(seeds - 1, draws) * sqrt(variance / seeds))


def _half_tail(n: int, most: int) -> Fraction:
    """Chance of at most `most` heads among n fair coins, in whole numbers: no float holds 2 ** 14,000."""
    ways = total = 1
    for heads in range(1, most + 1):
        ways = ways * (n - heads + 1) // heads
        total += ways
    return Fraction(total, 2**n)


def _difference(found: Interval, gaps: Floats) -> Difference:
    better, worse = int((gaps > 0).sum()), int((gaps < 0).sum())
    return Difference(found.estimate, found.low, found.high, found.n, found.unjudged, better, worse)


def _gaps(a: ArrayLike, b: ArrayLike) -> Floats:
    first, second = _task_scores(a), _task_scores(b)
    _same_tasks(len(first), len(second))
    return first - second


def _same_tasks(first: int, second: int) -> None:
    if first != second:
        raise ValueError(f"the arms have {first} and {second} tasks; a paired comparison needs the same ones in order")


def _seed_rows(values: ArrayLike) -> Floats:
    """Rewards as (seeds, tasks); an untrained arm becomes one row."""
    rewards = _rewards(values)
    if rewards.ndim == 2 and rewards.shape[0] == 1:
        raise ValueError("one training seed says nothing about others; train two or more, or use paired_difference")
    return np.atleast_2d(rewards)


def _task_scores(values: ArrayLike) -> Floats:
    """One score a task, (tasks,): the mean over its judged samples, nan when there are none."""
    rewards = _rewards(values)
    if rewards.ndim == 1:
        return rewards
    judged = (~np.isnan(rewards)).sum(axis=1)
    return np.where(judged > 0, np.nansum(rewards, axis=1) / np.maximum(judged, 1), nan)


def _rewards(values: ArrayLike) -> Floats:
    rewards = np.asarray(values, dtype=np.float64)
    if rewards.ndim not in (1, 2):
        raise ValueError(f"rewards have shape {rewards.shape}; give (tasks,) or one row for each of two dimensions")
    if (wrong := rewards[(rewards < 0) | (rewards > 1)]).size:
        raise ValueError(f"a reward is {wrong[0]:g}; verdicts give rewards between 0 and 1, or None")
    return rewards
