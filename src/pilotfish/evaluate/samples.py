"""Several samples a task: pass@k and majority@k of an arm, with their intervals over tasks.

points = at_ks(played, tasks)          # k = 1, 2, 3, … up to the number of samples; an answer is right at reward 1

Exact over all choices of k of the n samples (see `at_k`). An episode without a verdict is no sample; a task with fewer
than k verdicts leaves the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan

from pilotfish.episode import Episode
from pilotfish.evaluate.arms import Played
from pilotfish.evaluate.at_k import majority_at_k, pass_at_k
from pilotfish.evaluate.stats import Interval, mean_interval
from pilotfish.task import Task
from pilotfish.verify.majority import agreeing, read_vote

STEPS = (*range(1, 17), 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True, slots=True)
class AtK:
    """An arm with k answers a task."""

    arm: str
    k: int
    pass_at: Interval
    """At least one of k answers is right."""
    majority: Interval
    """The answer that most of k came to is right; ties share."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """The judged answers to one task."""

    votes: list[int | None]
    """Equal numbers for answers that are one; None for one that cannot be read."""
    right: frozenset[int]
    correct: int

    def pass_at(self, k: int) -> float:
        return pass_at_k(len(self.votes), self.correct, k)

    def majority(self, k: int) -> float:
        return majority_at_k(self.votes, self.right, k)


def at_ks(played: Played, tasks: Sequence[Task]) -> list[AtK]:
    """An arm's figures by k; none where there is one sample a task."""
    n, form = len(played.samples), played.arm.topology.form
    if n == 1:
        return []
    pools = [_pool(task, episodes, form) for task, episodes in zip(tasks, played.by_task, strict=True)]
    return [
        AtK(played.arm.name, k, _mean(pools, k, _Pool.pass_at), _mean(pools, k, _Pool.majority)) for k in steps_to(n)
    ]


def steps_to(n: int) -> list[int]:
    """1 to n, thinned out above 16."""
    return sorted({k for k in STEPS if k < n} | {n})


def _pool(task: Task, episodes: Sequence[Episode], form: str) -> _Pool:
    judged = [episode for episode in episodes if episode.verdict.reward is not None]
    groups = agreeing([read_vote(task, episode.answer or "", form) for episode in judged], task.verifier)
    labels = {at: label for label, group in enumerate(groups) for at in group}
    right = [bool(episode.verdict.correct) for episode in judged]
    won = frozenset(label for label, group in enumerate(groups) if right[group[0]])
    return _Pool([labels.get(at) for at in range(len(judged))], won, sum(right))


def _mean(pools: Sequence[_Pool], k: int, figure: Callable[[_Pool, int], float]) -> Interval:
    return mean_interval([figure(pool, k) if k <= len(pool.votes) else nan for pool in pools])
