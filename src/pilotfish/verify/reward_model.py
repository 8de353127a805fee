"""A reward model as judge: a sequence classifier that scores a conversation of the task and the answer.

The member's engine (`engine/reward.py`) says the score as a number; the reward is its logistic function, so that a
policy is not paid for scores beyond what the model was trained to tell apart.
"""

from __future__ import annotations

from math import exp, isfinite

from ..task import Task
from ..team import Message, Messages
from ..verifier import RewardModelConfig
from .verdict import Verdict


def chats(task: Task, answer: str) -> list[Messages]:
    """The conversation that is scored."""
    return [[Message(role="user", content=task.question), Message(role="assistant", content=answer)]]


def read(task: Task, answer: str, reply: str) -> Verdict | None:
    """The verdict of a score; None where the reply is no number."""
    assert isinstance(task.judge, RewardModelConfig)
    try:
        score = float(reply)
    except ValueError:
        return None
    if not isfinite(score):
        return None
    away = min(700.0, (task.judge.middle - score) / task.judge.spread)
    return Verdict(1 / (1 + exp(away)), why=f"score {score:.4g}")
