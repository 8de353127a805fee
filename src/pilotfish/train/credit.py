"""Credit: where the rows of a group go apart, and what is added to the team's reward for the trainee's own words.

With `credit: decision` the rows of a group share all that comes before their decision. Where earlier decisions of the
same episode are trained too, the words that stand there are those of one row of the earlier group, drawn by the seed
among those that no failed call ended, and never by its reward, so that they are asked once. With `credit: episode`
rows go apart at the first decision: each group has the same whole episodes, and trains one decision of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pilotfish.engine.base import Completion
from pilotfish.episode import Episode, fork
from pilotfish.task import Task
from pilotfish.train.profile import RewardConfig, TrainConfig
from pilotfish.verify import leaks
from pilotfish.verify.form import form_fault


def branches(config: TrainConfig, depth: int, place: str) -> list[int]:
    """Rows of an earlier decision's group, in the order in which one is drawn for later decisions to go on from.

    Args:
        config: whose rows they are.
        depth: the earlier decision.
        place: names step and task; the draw is made from it.
    """
    return random.Random(f"{place}/branch {depth}").sample(range(config.group_size), config.group_size)


def lost_branch(episode: Episode, prefix: Mapping[int, int]) -> int | None:
    """The earlier decision whose drawn branch a failed call ended, and with it all rows that go on from there.

    Args:
        episode: of any of these rows.
        prefix: the drawn row of each earlier decision.
    """
    drawn = {salt: depth for depth, row in prefix.items() for salt in fork(depth, row).values()}
    failed = (placed.salt[-1] for placed in episode.turns if placed.turn.outcome == "failed" and placed.salt)
    return next((drawn[salt] for salt in failed if salt in drawn), None)


def salts_of(config: TrainConfig, decision: int, row: int, prefix: Mapping[int, int]) -> dict[int, str]:
    """The salts with which a row's episode is played.

    Args:
        config: whose rows they are.
        decision: that the row trains.
        row: its number in the group.
        prefix: the drawn row of each decision before it that is trained in the same step in the same episode.
    """
    if config.credit == "episode":
        return fork(0, row)
    salts: dict[int, str] = {}
    for depth in sorted(prefix):
        salts = fork(depth, prefix[depth], salts)
    return fork(decision, row, salts)


def worth(
    reward: RewardConfig, verdicts: Sequence[float], said: Sequence[Completion], *, task: Task, form: str, limit: int
) -> float | None:
    """The reward of a row before anything is compared: the team's, and the terms for the trainee's own words.

    Args:
        reward: the weights of the terms.
        verdicts: of the team's judged answers, whose mean counts.
        said: the words that are credited, a decision's or all of an episode; the mean of their terms counts.
        task: that they were said on.
        form: in which they are to be.
        limit: most tokens that each may have.

    Returns:
        None where no answer was judged.
    """
    if not verdicts:
        return None
    right = mean(verdicts)
    terms = [_terms(reward, words, task, form, right / limit) for words in said]
    return right + (mean(terms) if terms else 0.0)


def _terms(reward: RewardConfig, said: Completion, task: Task, form: str, per_token: float) -> float:
    """`length` is of right answers only: a group of wrong ones would differ in nothing else, and learn to be silent."""
    whole = reward.format != 0 and _whole(said, form)
    leaked = reward.leak > 0 and leaks(task, said.text)
    return reward.format * whole - reward.length * len(said.completion_ids or ()) * per_token - reward.leak * leaked


def _whole(said: Completion, form: str) -> bool:
    return bool(said.text.strip()) and said.finish_reason == "stop" and form_fault(said.text, form) is None


def mean(values: Sequence[float | bool]) -> float:
    return sum(values) / len(values)
