"""GRPO on a run or a stage of one: holdout, best weights, early stop, log; in one process or in several.

    learn(recipe, recipe.train, run, workshop, told)

The main process finds out what is trained on, and calls the others with it. Each plays its own groups of a step and its
own part of the holdout, with engines of its own; the main one writes down what all come to.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.collect.sets import Told
from pilotfish.episode import Episode, Team
from pilotfish.evaluate.arms import Arm, Field, baselines, titles
from pilotfish.processes import Processes
from pilotfish.recipe import Recipe
from pilotfish.run import Run, append
from pilotfish.task import Task
from pilotfish.train.checkpoints import newest_checkpoint, updates_of
from pilotfish.train.decisions import cautions
from pilotfish.train.diagnostics import holdout_figures, holdout_note
from pilotfish.train.early_stop import EarlyStop
from pilotfish.train.groups import Groups, groups
from pilotfish.train.profile import TrainConfig, steps
from pilotfish.train.reach import Reach
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row
from pilotfish.train.row_record import FILE, lines
from pilotfish.train.trackers import tell
from pilotfish.workshop import Workshop

if TYPE_CHECKING:
    from pilotfish.engine.policy import Policy
    from pilotfish.train.grpo import Trainer


@dataclass(frozen=True)
class TakePart:
    """What another process is called with, to learn beside the main one."""

    recipe: Recipe
    config: TrainConfig
    root: Path
    """The whole run's folder."""
    folder: Path
    """The run's, or that of a stage."""
    groups: Groups

    def __call__(self, processes: Processes) -> None:
        root = Run(self.root)
        run = root if self.folder == self.root else Run(self.folder, parent=root)
        with Workshop(self.recipe, run, processes=processes) as workshop:
            Learning(self.recipe, self.config, run, workshop, _unheard, self.groups).all()


def _unheard(kind: str, step: int, figures: Mapping[str, float]) -> None:
    """The main process brings the news."""


def learn(recipe: Recipe, config: TrainConfig, run: Run, workshop: Workshop, told: Told) -> None:
    """Train a run or a stage with GRPO, in all processes of this launch.

    Args:
        recipe: of the run or stage.
        config: its `train`.
        run: where checkpoints, weights and log go.
        workshop: of the main process, which calls this.
        told: called with news.

    Raises:
        RecipeError: see `groups` and `cautions`.
        TooManyOutages: see `train.outages`.
    """
    found = groups(recipe, config, run, workshop, told)
    for caution in cautions(recipe, config, found.tasks.train[0]):
        told(f"note: {caution}", 0, {})
    workshop.processes.call(TakePart(recipe, config, run.root.folder, run.folder, found))
    Learning(recipe, config, run, workshop, told, found).all()
    run.keep("finished", {"best": run.best_step})


class Learning:
    """One GRPO run, as one process sees it: what its parts share."""

    def __init__(
        self, recipe: Recipe, config: TrainConfig, run: Run, workshop: Workshop, told: Told, groups: Groups
    ) -> None:
        self.recipe = recipe
        self.config = config
        self.run = run
        self.workshop = workshop
        self.told = told
        self.groups = groups
        self.trainee = recipe.trainee or ""
        self.topology, *self.mix = recipe.topologies()
        self.reach = Reach([topology.label for topology in recipe.topologies()], config.evaluate_every)
        self.main = workshop.processes.main
        self.stop = EarlyStop(config.patience or sys.maxsize)
        self.stop.restore(run.state("early_stop").get("history", "[]"))
        self.policy: Policy | None = None

    def all(self) -> None:
        """Every step, in this process."""
        from pilotfish.train.quiet import quiet

        try:
            with quiet(), self.workshop.seats.sharing():
                self.learn()
        finally:
            if self.policy is not None:
                self.workshop.play(self.policy.close())

    def learn(self) -> None:
        from pilotfish.train.grpo import train

        checkpoint = newest_checkpoint(self.run.checkpoints)
        done = updates_of(checkpoint) // self.config.updates_per_step if checkpoint else 0
        if self.stop.ended(done):  # killed between its last checkpoint and the note of its end
            return
        self.workshop.play(self.workshop.seats.vacate())
        served = self.workshop.seats.speaker()
        model, tokenizer = self.workshop.seats.trainee()
        if done:
            self.told(f"note: going on from step {done}", done, {})
        self.told("start", done, {"steps": steps(self.config, len(self.groups.rows))})
        train(
            self.recipe,
            self.groups.rows,
            model,
            tokenizer,
            self.rollout,
            background=self.workshop.background,
            output=self.run.checkpoints,
            on_step=self.after_step,
            on_log=self.log,
            first_version=self.run.version(0),
            right=self.groups.right,
            on_rows=self.keep_rows,
            processes=self.workshop.processes,
            served=served,
        )

    def rollout(self, policy: Policy) -> Rollout:
        self.policy = policy
        return Rollout(
            self.topology,
            self.team(policy, training=True),
            {task.id: task for task in self.groups.tasks.train},
            self.workshop.journal,
            self.workshop.pool.judge,
            self.config,
            mix=self.mix,
            alone=next((other for other in baselines(self.recipe) if other.name == "solo"), None),
            seed=self.recipe.seed,
            kept=self.workshop.kept,
            place=self.run.place,
            shaped=self.groups.shaped,
        )

    def team(self, policy: Policy, *, training: bool) -> Team:
        seats = self.workshop.seats
        engines = {**seats.frozen(), self.trainee: seats.leased(policy)}
        return Team(self.recipe.members(training=training), engines)

    def after_step(self, step: int, trainer: Trainer, policy: Policy) -> bool:
        """Evaluate on the holdout where it is due, keep the best weights, say whether to stop.

        Step 0 is before training: where training only harms, the weights as they were stay the best.
        """
        if step % self.config.evaluate_every and step != self.last(trainer):
            return False
        if not self.groups.tasks.holdout:
            self.save(trainer, step)
            return False
        self.workshop.play(policy.sync(trainer.state.global_step))
        decision = self.stop.update(step, self.holdout(step, trainer, policy))
        if self.main:
            self.run.keep("early_stop", {"history": self.stop.to_json()})
        if decision.best or self.stop.best_step is None:  # with nothing measured yet, the last weights are kept
            self.save(trainer, step)
        return decision.stop

    def last(self, trainer: Trainer) -> int:
        return int(trainer.args.max_steps) // self.config.updates_per_step

    def holdout(self, step: int, trainer: Trainer, policy: Policy) -> float | None:
        """Accuracy of the team on the holdout, of a mix the mean over its topologies, sampled as each `sampling` says
        (greedy by default), with the weights as they are; None where too few tasks could be judged."""
        title = titles(self.topology, self.mix)
        team = self.team(policy, training=False)
        played = {
            title(topology): self.on_holdout(Arm(f"step {step}", topology, team))
            for topology in (self.topology, *self.mix)
        }
        figures = holdout_figures(self.groups.tasks.holdout, played)
        if self.main:
            self.run.log({"kind": "holdout", "step": step, **figures})
            tell(trainer, figures)
        if note := holdout_note(figures, played):
            self.told(f"note: step {step}: {note}", step, {})
        if "holdout/accuracy" in figures:
            self.told("holdout", step, figures)
        return figures.get("holdout/accuracy")

    def on_holdout(self, arm: Arm) -> list[Episode]:
        """An episode a task of the holdout; those without a verdict are played once more, which asks what failed."""
        tasks = self.groups.tasks.holdout
        episodes = {episode.task: episode for episode in self.played(arm, tasks)}
        if lost := [task for task in tasks if episodes[task.id].verdict.reward is None]:
            episodes |= {episode.task: episode for episode in self.played(arm, lost)}
        return [episodes[task.id] for task in tasks]

    def played(self, arm: Arm, tasks: Sequence[Task]) -> list[Episode]:
        """An episode a task; each process plays its part of them."""
        shop, name = self.workshop, f"{self.run.place}holdout"
        judge, seed = shop.pool.judge, self.recipe.seed
        return shop.play(Field(name, tasks, shop.journal, judge, seed, shop.kept, together=shop.processes).play(arm))

    def save(self, trainer: Trainer, step: int) -> None:
        """Put the weights into the run's `best`; a kill at any moment leaves the old ones or the new ones, whole."""
        partial, old = self.run.folder / "best.part", self.run.folder / "best.old"
        if self.main:
            shutil.rmtree(partial, ignore_errors=True)
        trainer.save_model(str(partial))  # the main process writes; where weights are divided all take part
        if not self.main:
            return
        self.run.mark_best(partial, step)
        if self.run.best.exists():
            shutil.rmtree(old, ignore_errors=True)
            self.run.best.rename(old)
        partial.rename(self.run.folder / "best")
        shutil.rmtree(old, ignore_errors=True)

    def keep_rows(self, step: int, rows: Sequence[Row]) -> None:
        if self.main:
            append(self.run.folder / FILE, lines(rows, step, self.config.group_size, self.config.normalise))
        for note in self.reach.after(step, rows):
            self.told(f"note: {note}", step + 1, {})

    def log(self, step: int, figures: Mapping[str, Any]) -> None:
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        self.run.log({"kind": "step", "step": step, **numbers})
        self.told("step", step, numbers)
