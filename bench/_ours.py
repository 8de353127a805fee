"""This project's training as the benches of a step watch it: played as `pilotfish train` plays it.

    ours = Ours(recipe, tasks, {"actor": Flown(engine)}, pool.judge, steps)
    ours.train(last=lambda policy, rows: ...)

Figures of a step, in `steps`: `sync_s`, `rollout_s`, and `gap_s`, in which the engine's log-probabilities are compared
with those of the weights; within a rollout the seconds in which calls of the policy, of frozen members and of the
verifier were in flight (`policy_s`, `frozen_s`, `verify_s`) and in which none was (`between_s`); tokens drawn
(`tokens`); updates that were left out, since their gradient was not finite (`lost`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from _steps import Flown, Span, Steps, union
from pilotfish import Journal, Task, Team, Verdict
from pilotfish.background import Background
from pilotfish.engine.lease import Device, Leased
from pilotfish.engine.loading import load
from pilotfish.episode import Judge
from pilotfish.recipe import Recipe
from pilotfish.train.grpo import train
from pilotfish.train.profile import TrainConfig
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row, RowId


class Ours:
    """One training.

    Args:
        recipe: of the team and the training, which has as many steps as `steps` needs.
        tasks: one a group.
        frozen: engines of the frozen members, on the trainee's device.
        judge: gives verdicts.
        steps: times it.
    """

    def __init__(
        self, recipe: Recipe, tasks: Sequence[Task], frozen: Mapping[str, Flown], judge: Judge, steps: Steps
    ) -> None:
        self.recipe = recipe
        self.tasks = {task.id: task for task in tasks}
        self.frozen = frozen
        self.judge = judge
        self.steps = steps
        self.rows: Sequence[Row] = ()
        """Of the last step."""
        self.verdicts: list[Span] = []
        self.flight = 0.0
        self.policy: Flown | None = None

    def train(
        self,
        *,
        first: Callable[[Journal], Awaitable[Any]] | None = None,
        last: Callable[[Any, Sequence[Row]], Awaitable[Any]] | None = None,
    ) -> None:
        """Take all steps.

        Args:
            first: is done with the journal before.
            last: is done with the policy engine and the rows of the last step, after.
        """
        member, background = self.recipe.team[self.recipe.trainee or ""], Background()
        model, tokenizer = load(member.model, dtype="float32", device=member.device)
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(Path(folder) / "journal")
            kept = Journal(Path(folder) / "kept", shared=True)
            if first:
                background.run(_awaited(first(journal)))
            train(
                self.recipe,
                [RowId(task) for task in self.tasks],
                model,
                tokenizer,
                lambda policy: self.rollout(policy, journal, kept),
                background=background,
                output=Path(folder) / "checkpoints",
                on_step=self.on_step,
                on_log=self.on_log,
                on_rows=self.on_rows,
            )
            assert self.policy is not None
            if last:
                background.run(_awaited(last(self.policy.engine, self.rows)))
            background.run(self.policy.close())
            journal.close()
            kept.close()
        background.close()

    def rollout(self, policy: Any, journal: Journal, kept: Journal) -> Rollout:
        """As training has it: engines of one device take turns."""
        assert isinstance(self.recipe.train, TrainConfig)
        self.policy, device = Flown(policy), Device()
        engines = {**self.frozen, self.recipe.trainee or "": self.policy}
        leased = {id(engine): Leased(engine, device) for engine in engines.values()}
        team = Team(self.recipe.members(training=True), {who: leased[id(engine)] for who, engine in engines.items()})
        topology = self.recipe.topology.load()
        return Rollout(topology, team, self.tasks, journal, self.judged, self.recipe.train, kept=kept)

    async def judged(self, task: Task, answer: str, form: str) -> Verdict:
        began = time.perf_counter()
        verdict = await self.judge(task, answer, form)
        self.verdicts.append((began, time.perf_counter()))
        return verdict

    def on_step(self, step: int, trainer: Any, policy: Any) -> bool:
        if step == 0:
            self.steps.watch(trainer)
        return False

    def on_rows(self, step: int, rows: Sequence[Row]) -> None:
        assert self.policy is not None
        self.rows = rows
        spoken, frozen = self.policy.taken(), [engine.taken() for engine in set(self.frozen.values())]
        spans = {"policy": spoken[0], "verify": self.verdicts}
        spans["frozen"] = [span for flown, _ in frozen for span in flown]
        for who, flown in spans.items():
            self.steps.add(f"{who}_s", union(flown))
        self.flight = union(span for flown in spans.values() for span in flown)
        self.steps.add("tokens", spoken[1] + sum(tokens for _, tokens in frozen))
        self.verdicts = []

    def on_log(self, step: int, figures: Mapping[str, float]) -> None:
        for part in ("sync", "rollout", "gap"):
            self.steps.note(f"{part}_s", figures[f"seconds/{part}"])
        self.steps.note("between_s", figures["seconds/rollout"] - self.flight)
        self.steps.note("lost", figures["updates/lost"])


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work
