"""A scene for rollout tests: a scripted trainee with token ids, a scripted actor, and the groups of a step.

rows = Scene(journal, hint).step()      # 4 rows of each of two tasks
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pilotfish import Journal, ScriptedEngine, Task, Team, Topology, Verdict
from pilotfish.engine.base import Completion
from pilotfish.team import Member, Sampling
from pilotfish.topology import solo
from pilotfish.train.profile import TrainConfig
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row, RowId

TASKS = {name: Task(name, f"What is {name}?", "19") for name in ("a", "b")}
LIMIT = 8


class Spoken(ScriptedEngine):
    """A scripted trainee with token ids: one a word."""

    async def complete(self, messages: Any, sampling: Any, seed: int) -> Completion:
        done = await super().complete(messages, sampling, seed)
        words = done.text.split() or [""]
        ids = tuple(len(word) for word in words)
        return replace(done, prompt_ids=(1, 2), completion_ids=ids, logprobs=(-1.0,) * len(ids))


class Scene:
    """A trainee and an actor that never say the same twice, and the rollout of a topology."""

    def __init__(
        self,
        journal: Journal,
        played: Topology,
        *,
        mix: Sequence[Topology] = (),
        actor_temperature: float = 0.0,
        **config: Any,
    ) -> None:
        numbers = itertools.count()
        self.trainee = Spoken(lambda messages, sampling, seed: f"hint {next(numbers)}", identity=None)
        self.actor = ScriptedEngine(lambda messages, sampling, seed: f"answer {next(numbers)}")
        members = {
            "collaborator": Member("collaborator", "pilot", True, Sampling(temperature=1.0, max_tokens=LIMIT)),
            "actor": Member("actor", "scripted", False, Sampling(temperature=actor_temperature)),
        }
        team = Team(members, {"collaborator": self.trainee, "actor": self.actor})
        settings = {"group_size": 4, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 8, **config}
        self.rollout = Rollout(played, team, TASKS, journal, self.judge, TrainConfig(**settings), mix=mix, alone=solo)
        self.verdicts: dict[str, float | None] = {}

    async def judge(self, task: Task, answer: str, form: str) -> Verdict:
        reward = self.verdicts.setdefault(answer, len(self.verdicts) % 2)
        return Verdict(reward, answer, "" if reward is not None else "away")

    def step(self, number: int = 0, decision: int = 0) -> list[Row]:
        return self.train([RowId(task, decision=decision) for task in TASKS], number)

    def train(self, groups: Sequence[RowId], number: int = 0) -> list[Row]:
        ids = [str(group) for group in groups for _ in range(4)]
        return asyncio.run(self.rollout.step(ids, number))
