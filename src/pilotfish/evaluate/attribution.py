"""Where a team's gain comes from, read from its episodes.

    found = await attribute(arm, alone, tasks, judge)     # None where there is nothing to tell of

Three questions, for every arm of a comparison:

- Flips: which tasks does the team get right that the actor alone gets wrong, and the other way round?
- Leaks: how often do the adviser's words already hold the gold answer, and what is the team worth with and without?
- For a critic: do its comments tell right drafts from wrong ones, and what becomes of the drafts? The two are apart: a
  trained critic can raise the revised answer and still not tell right from wrong, as "look again" does.

What a leader does with its agents' answers is in `rounds.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from pilotfish.episode import Episode, Judge, Turn
from pilotfish.evaluate.arms import Played, answering, reward_of, words_of
from pilotfish.evaluate.comment import Says, says
from pilotfish.evaluate.stats import Difference, Floats, Interval, mean_interval, paired_difference
from pilotfish.task import Task
from pilotfish.topology import Topology
from pilotfish.verify.registry import leaks
from pilotfish.verify.verdict import RIGHT

SAYS: tuple[Says, ...] = ("right", "unclear", "wrong")
"""From the comment that speaks for a draft to the one that speaks against it."""


@dataclass(frozen=True, slots=True)
class Flips:
    """Tasks whose answer went from wrong to right or back, by id."""

    wrong_to_right: tuple[str, ...]
    right_to_wrong: tuple[str, ...]
    n: int
    """Tasks with a verdict on both answers."""


@dataclass(frozen=True, slots=True)
class Leaks:
    """The adviser's first words that already hold the gold answer; a critic's also where they repeat the draft's."""

    tasks: tuple[str, ...]
    """Where they do, by id."""
    rate: Interval
    with_leak: Interval
    """The team's accuracy on these tasks."""
    without_leak: Interval


@dataclass(frozen=True, slots=True)
class Critique:
    """A critic's first comments, on the drafts they were made on, and the team's answers after them."""

    drafts: Interval
    """Accuracy of the drafts."""
    revised: Interval
    """Accuracy of the team's answers, over the same tasks."""
    change: Difference
    """Revised answers minus drafts."""
    flips: Flips
    """From the draft to the team's answer."""
    comments: Mapping[Says, tuple[int, int]]
    """By what they say (`comment.says`): how many were made on right drafts, and how many on wrong ones."""
    separation: Interval
    """Area under the ROC curve: the chance that of a right and a wrong draft the comment speaks worse of the wrong one,
    a tie counting half. 0.5 is no better than saying the same of all."""
    precision: Interval
    """Share of wrong drafts among those of which the comment says wrong."""
    recall: Interval
    """Share of the wrong drafts of which the comment says wrong."""
    told: Interval
    """Share of the wrong drafts whose comment holds the gold answer: the critic solved the task itself."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """What can be told of one arm on one benchmark; None where a question does not apply."""

    against: str | None
    """The arm that the flips are counted from: the actor alone."""
    flips: Flips | None
    leaks: Leaks | None
    critique: Critique | None


async def attribute(one: Played, alone: Played | None, tasks: Sequence[Task], judge: Judge) -> Attribution | None:
    """What can be told of one arm.

    Args:
        one: the arm as it was played.
        alone: the actor alone on the same tasks; None where it was not played.
        tasks: in the order they were played in.
        judge: gives the verdict on a critic's drafts.

    Returns:
        None where nothing can be told: nobody advises, and there is nothing to compare with.
    """
    episodes, topology = one.first, one.arm.topology
    compared = None if alone is None else flips(tasks, _rewards(alone.first), _rewards(episodes))
    advised = leaked(tasks, episodes) if advises(topology, episodes) else None
    critique = await criticised(topology, tasks, episodes, judge) if advised else None
    against = None if alone is None else alone.arm.name
    return Attribution(against, compared, advised, critique) if compared or advised else None


def advises(topology: Topology, episodes: Sequence[Episode]) -> bool:
    """Whether the trainee's words are for another member, and not the team's answer itself."""
    decisions = [placed for episode in episodes for placed in episode.decisions()[:1]]
    seats = {placed.turn.member for placed in decisions}
    return bool(decisions) and not seats & set(answering(topology)) and not all(placed.final for placed in decisions)


def flips(tasks: Sequence[Task], before: Sequence[float], after: Sequence[float]) -> Flips:
    """Compare two answers to each task by their rewards, nan where there is no verdict."""
    pairs = [
        (task.id, first >= RIGHT, then >= RIGHT)
        for task, first, then in zip(tasks, before, after, strict=True)
        if not (isnan(first) or isnan(then))
    ]
    return Flips(
        tuple(task for task, first, then in pairs if then and not first),
        tuple(task for task, first, then in pairs if first and not then),
        len(pairs),
    )


def leaked(tasks: Sequence[Task], episodes: Sequence[Episode]) -> Leaks:
    """Where the trainee's first words hold the gold answer; episodes in the order of the tasks."""
    held = [leaks(task, words_of(episode)) for task, episode in zip(tasks, episodes, strict=True)]
    found = list(zip(held, _rewards(episodes), strict=True))
    return Leaks(
        tuple(task.id for task, leak in zip(tasks, held, strict=True) if leak),
        mean_interval([float(leak) for leak in held]),
        mean_interval([reward for leak, reward in found if leak]),
        mean_interval([reward for leak, reward in found if not leak]),
    )


async def criticised(
    topology: Topology, tasks: Sequence[Task], episodes: Sequence[Episode], judge: Judge
) -> Critique | None:
    """What the trainee's comments were worth; None where it comments on no draft.

    A draft is what another member said last before the trainee's first decision, where that member speaks again after
    it. Of several rounds the first comment is read, and the team's answer is the last.
    """
    pairs = [(task, episode, _comment(episode)) for task, episode in zip(tasks, episodes, strict=True)]
    made = [(task, episode, *pair) for task, episode, pair in pairs if pair]
    if not made:
        return None
    verdicts = await asyncio.gather(*(judge(task, draft.text, topology.form) for task, _, draft, _ in made))
    drafts = [nan if verdict.reward is None else verdict.reward for verdict in verdicts]
    revised = _rewards([episode for _, episode, _, _ in made])
    heard = [
        _Heard(reward < RIGHT, says(task, draft.text, comment.text), leaks(task, comment.text))
        for (task, _, draft, comment), reward in zip(made, drafts, strict=True)
        if not isnan(reward)
    ]
    return _critique([task for task, *_ in made], drafts, revised, heard)


class _Heard(NamedTuple):
    """A comment on a judged draft."""

    wrong: bool
    """Whether the draft is."""
    says: Says
    told: bool
    """Whether the comment holds the gold answer."""


def _critique(
    tasks: Sequence[Task], drafts: Sequence[float], revised: Sequence[float], heard: Sequence[_Heard]
) -> Critique:
    kinds = Counter((one.says, one.wrong) for one in heard)
    comments = {said: (kinds[said, False], kinds[said, True]) for said in SAYS}
    return Critique(
        mean_interval(drafts),
        mean_interval(revised),
        paired_difference(revised, drafts),
        flips(tasks, drafts, revised),
        comments,
        separation(comments),
        precision=mean_interval([float(one.wrong) for one in heard if one.says == "wrong"]),
        recall=mean_interval([float(one.says == "wrong") for one in heard if one.wrong]),
        told=mean_interval([float(one.told) for one in heard if one.wrong]),
    )


def separation(counts: Mapping[Says, tuple[int, int]], *, draws: int = 10_000, seed: int = 0) -> Interval:
    """Area under the ROC curve of the comments as a score of three steps, with its 95 % interval.

    The interval is that of the shares' posterior under Jeffreys' prior (Dirichlet with 1/2), drawn for right and wrong
    drafts apart: a bootstrap would claim certainty for a critic that always says the same.

    Args:
        counts: comments on right and on wrong drafts, by what they say.
        draws: from the posterior.
        seed: the same seed and counts give the same interval.

    Returns:
        nan throughout where all drafts are right or all are wrong.
    """
    right, wrong = (np.array([counts[said][kind] for said in SAYS], dtype=np.float64) for kind in (0, 1))
    n = int(right.sum() + wrong.sum())
    if not right.any() or not wrong.any():
        return Interval(nan, nan, nan, n)
    rng = np.random.default_rng(seed)
    drawn = _area(rng.dirichlet(right + 0.5, draws), rng.dirichlet(wrong + 0.5, draws))
    estimate, (low, high) = float(_area(right / right.sum(), wrong / wrong.sum())), np.quantile(drawn, [0.025, 0.975])
    return Interval(estimate, min(estimate, float(low)), max(estimate, float(high)), n)


def _area(right: Floats, wrong: Floats) -> Floats:
    """Of shares by what is said, (..., 3): the chance that a wrong draft fares worse than a right one."""
    return np.asarray((wrong * (np.cumsum(right, axis=-1) - right / 2)).sum(axis=-1))


def _rewards(episodes: Sequence[Episode]) -> list[float]:
    return [reward_of(episode) for episode in episodes]


def _comment(episode: Episode) -> tuple[Turn, Turn] | None:
    """A draft and the trainee's comment on it."""
    at = next((at for at, placed in enumerate(episode.turns) if placed.turn.member == episode.trainee), None)
    outside = [placed.turn for placed in episode.turns[:at] if len(placed.position) == 1]
    if at is None or len(episode.turns[at].position) > 1 or not outside:
        return None
    draft, comment = outside[-1], episode.turns[at].turn
    again = any(placed.turn.member == draft.member for placed in episode.turns[at + 1 :])
    return (draft, comment) if again and draft.answered and comment.answered else None
