"""Pass@k and majority@k against all draws, one by one."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.evaluate.at_k import majority_at_k, pass_at_k

votes_and_k = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=9).flatmap(
    lambda votes: st.tuples(st.just(votes), st.integers(1, len(votes)))
)


@given(
    st.lists(st.booleans(), min_size=1, max_size=10).flatmap(lambda r: st.tuples(st.just(r), st.integers(1, len(r))))
)
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(case: tuple[list[bool], int]) -> None:
    right, k = case
    draws = list(combinations(right, k))
    assert pass_at_k(len(right), sum(right), k) == pytest.approx(sum(map(any, draws)) / len(draws))


@settings(max_examples=60)
@given(votes_and_k, st.sets(st.sampled_from("abc")))
def test_majority_is_the_mean_over_all_draws(case: tuple[list[str | None], int], right: set[str]) -> None:
    votes, k = case
    won, draws = 0.0, list(combinations(votes, k))
    for draw in draws:
        counts = Counter(vote for vote in draw if vote is not None)
        top = [label for label, count in counts.items() if count == max(counts.values())]
        won += sum(label in right for label in top) / len(top) if top else 0
    assert majority_at_k(votes, right, k) == pytest.approx(won / len(draws))


def test_a_tie_is_worth_what_first_seen_wins_gives_over_all_orders() -> None:
    votes = ["a", "a", "b", "b", "c"]
    orders = list(permutations(votes, 4))
    won = sum(max(Counter(order), key=Counter(order).__getitem__) == "a" for order in orders)
    assert majority_at_k(votes, {"a"}, 4) == pytest.approx(won / len(orders))


def test_one_vote_is_the_mean_and_unread_answers_never_win() -> None:
    assert majority_at_k(["a", "b", "a", None], {"a"}, 1) == 0.5
    assert majority_at_k([None, None, "a"], {"a"}, 2) == pytest.approx(2 / 3)
    assert majority_at_k([None, None], {"a"}, 2) == 0
    assert majority_at_k([None, None], {None}, 2) == 0


def test_large_pools_are_exact() -> None:
    assert majority_at_k(list(range(64)), {3}, 64) == 1 / 64
    assert pass_at_k(200, 1, 100) == 0.5


def test_impossible_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="k=3 of 2 answers"):
        majority_at_k(["a", "b"], {"a"}, 3)
    with pytest.raises(ValueError, match="n=4, c=5, k=1"):
        pass_at_k(4, 5, 1)
