"""Credit: where the rows of a group go apart, and what is added to the team's reward for the trainee's own words.

With `credit: decision` the rows of a group share all that comes before their decision. Where earlier decisions of the
same episode are trained too, the words that stand there are those of one row of the earlier group, drawn by the seed
and never by its reward, so that they are asked once. With `credit: episode` rows go apart at the first decision: each
group has the same whole episodes, and trains one decision of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pilotfish.engine.base import Completion
from pilotfish.episode import fork
from pilotfish.task import Task
from pilotfish.train.profile import RewardConfig, TrainConfig
from pilotfish.verify import contains_answer
from pilotfish.verify.form import form_fault


def salts_of(config: TrainConfig, decision: int, row: int, earlier: Sequence[int], place: str) -> dict[int, str]:
    """The salts with which a row's episode is played.

    Args:
        config: whose rows they are.
        decision: that the row trains.
        row: its number in the group.
        earlier: decisions before it that are trained in the same step on the same task.
        place: names that step and task; from it the branches are drawn on which `earlier` stand.
    """
    if config.credit == "episode":
        return fork(0, row)
    prefix: dict[int, str] = {}
    for depth in sorted(earlier):
        drawn = random.Random(f"{place}/branch {depth}").randrange(config.group_size)
        prefix = fork(depth, drawn, prefix)
    return fork(decision, row, prefix)


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
    whole = bool(said.text.strip()) and said.finish_reason == "stop" and form_fault(said.text, form) is None
    leaked = reward.leak > 0 and leaks(task, said.text)
    return reward.format * whole - reward.length * len(said.completion_ids or ()) * per_token - reward.leak * leaked


def leaks(task: Task, text: str) -> bool:
    """Whether the trainee's words already contain a gold answer."""
    golds = [task.answer, *task.meta.get("alt_answers", ())]
    return any(contains_answer(str(gold), text, task.verifier) for gold in golds)


def mean(values: Sequence[float | bool]) -> float:
    return sum(values) / len(values)
