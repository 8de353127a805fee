"""Pass@k and majority@k of one task, exact, from n of its answers.

    from pilotfish.evaluate.at_k import majority_at_k, pass_at_k
    pass_at_k(n=16, c=3, k=4)                                     # 0.607
    majority_at_k(["12", "12", "7", None], right={"12"}, k=3)     # 0.75

The figure of a benchmark is their mean over its tasks, with the interval of `stats.mean_interval`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from fractions import Fraction
from math import comb

Ways = dict[tuple[int, int], int]
"""In how many ways (answers drawn so far, labels tied with the winner) comes about."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that at least one of k answers is right, from n answers of which c are (Chen et al., 2021).

    Raises:
        ValueError: unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass_at_k: n={n}, c={c}, k={k}; needs 0 <= c <= n and 1 <= k <= n")
    return 1 - comb(n - c, k) / comb(n, k)


def majority_at_k(votes: Sequence[Hashable | None], right: Collection[Hashable], k: int) -> float:
    """Chance that the majority of k answers, drawn without replacement from one task's n answers, is right. Exact.

    Tied answers share the chance equally, which is what "the one seen first wins" comes to over random orders.

    Args:
        votes: one label an answer, equal for equivalent answers; None for an answer that could not be read, which is
            drawn like any other and has no vote. When no drawn answer has one, the task is lost.
        right: the labels that are right.
        k: answers drawn, 1 <= k <= n.

    Raises:
        ValueError: k is not between 1 and the number of answers.
    """
    if not 1 <= k <= len(votes):
        raise ValueError(f"majority_at_k: k={k} of {len(votes)} answers; needs 1 <= k <= {len(votes)}")
    sizes = Counter(vote for vote in votes if vote is not None)
    blank = len(votes) - sizes.total()
    won = sum(
        (
            _winning_draws(own, [*(sizes - Counter({label: own})).values()], blank, k)
            for label, own in sizes.items()
            if label in right
        ),
        Fraction(0),
    )
    return float(won / comb(len(votes), k))


def _winning_draws(own: int, others: Sequence[int], blank: int, k: int) -> Fraction:
    """Draws of k answers in which a label with `own` answers wins; a tie with t others counts 1 / (t + 1)."""
    won = Fraction(0)
    for count in range(1, min(own, k) + 1):
        ways = {(count, 0): comb(own, count)}
        for size in others:
            ways = _with_label(ways, size, k, most=count)
        for (drawn, tied), number in _with_label(ways, blank, k, most=k).items():
            if drawn == k:
                won += Fraction(number, tied + 1)
    return won


def _with_label(ways: Ways, size: int, k: int, most: int) -> Ways:
    """`ways` to draw (answers, tied labels) once up to `most` of a further label's `size` answers are drawn too."""
    grown: Ways = {}
    for (drawn, tied), number in ways.items():
        for count in range(min(size, most, k - drawn) + 1):
            state = (drawn + count, tied + (count == most))
            grown[state] = grown.get(state, 0) + number * comb(size, count)
    return grown
