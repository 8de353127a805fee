"""`train`: a recipe in, a run with the best weights out. A killed run goes on where its record ends.

from pilotfish import load_recipe, train
run = train(load_recipe("recipes/quickstart.yaml"), "runs/quickstart")
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.collect.store import Store
from pilotfish.curriculum import Curriculum
from pilotfish.engine.meter import Meter
from pilotfish.episode import Team
from pilotfish.evaluate.arms import Arm, Field, baselines, titles
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run, append
from pilotfish.task import Task
from pilotfish.train.decisions import trained_decisions
from pilotfish.train.diagnostics import holdout_figures
from pilotfish.train.early_stop import EarlyStop
from pilotfish.train.order import Shares
from pilotfish.train.profile import SftConfig, TrainConfig, steps
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row, RowId
from pilotfish.train.row_record import FILE, lines
from pilotfish.train.sifted import sifted
from pilotfish.train.trackers import check_trackers, tell
from pilotfish.workshop import Workshop

if TYPE_CHECKING:
    from pilotfish.engine.policy import PolicyEngine
    from pilotfish.train.grpo import Trainer

Told = Callable[[str, int, Mapping[str, float]], None]
"""Kind of news (`start` with the number of `steps`, `step`, `holdout`, `note: …`), step, figures."""


def train(
    recipe: Recipe,
    folder: Path | str,
    *,
    told: Told = lambda kind, step, figures: None,
    meter: Meter | None = None,
) -> Run:
    """Train a recipe's trainee, or go on with a run that was cut off.

    Args:
        recipe: what to train, on what, how; of one that has stages, each is trained in turn.
        folder: the run's folder; made, or resumed if it holds a run of the same recipe. A finished run stays as it is.
        told: called with news.
        meter: counts what is spent, for whoever shows it.

    Returns:
        The run; its `best` holds the weights that did best on the holdout, of the last stage where there are several.

    Raises:
        RecipeError: nothing to train, a tracker that is not there, or started as one of several processes.
        RunError: the folder belongs to another recipe, or is in use.
        TooManyOutages: see `train.outages`.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RecipeError(
            f"train: WORLD_SIZE is {os.environ['WORLD_SIZE']}; a run is one process today. Start it without accelerate "
            "or torchrun, and put frozen members on other GPUs with `device: cuda:1` or behind an API"
        )
    trainee_of(recipe)
    check_trackers(recipe)
    with Run(folder, recipe) as run:
        if run.state("finished"):
            told("note: this run is finished; nothing is done again", 0, {})
            return run
        with Workshop(recipe, run, meter) as workshop:
            if recipe.stages:
                from pilotfish.train.stages import train_stages

                train_stages(recipe, run, workshop, told)
            else:
                train_one(recipe, run, workshop, told)
        return run


def train_one(recipe: Recipe, run: Run, workshop: Workshop, told: Told) -> None:
    """Train what `recipe.train` says, unless it is done: a finished stage of a run that goes on."""
    if run.state("finished"):
        told("note: this stage is finished; nothing is done again", 0, {})
    elif isinstance(recipe.train, SftConfig):
        _sft(recipe, recipe.train, run)
    elif isinstance(recipe.train, TrainConfig):
        _Training(recipe, recipe.train, run, workshop, told).all()
    else:
        from pilotfish.train.backtrack import backtrack

        backtrack(recipe, run, workshop, told)


def _sft(recipe: Recipe, config: SftConfig, run: Run) -> None:
    from pilotfish.lab.data import read_rows
    from pilotfish.train.sft import sft

    member = recipe.team[trainee_of(recipe)]
    metrics = sft(
        member.model,
        read_rows(config.data, config.steps * config.batch, recipe.seed),
        run.best,
        steps=config.steps,
        lr=config.learning_rate,
        batch=config.batch,
        micro_batch=config.micro_batch,
        lora=member.lora,
        seed=recipe.seed,
        revision=member.revision,
        trust_remote_code=member.trust_remote_code,
    )
    run.mark_best(run.best, metrics["steps"])
    run.keep("finished", dict(metrics))


def trainee_of(recipe: Recipe) -> str:
    """The trainee's name.

    Raises:
        RecipeError: the team has none.
    """
    if recipe.trainee is None:
        raise RecipeError(f"team: no member has `train`; give it to one of {', '.join(recipe.team)}")
    return recipe.trainee


class _Training:
    """One GRPO run: what its parts share."""

    def __init__(self, recipe: Recipe, config: TrainConfig, run: Run, workshop: Workshop, told: Told) -> None:
        self.recipe = recipe
        self.config = config
        self.run = run
        self.workshop = workshop
        self.told = told
        self.trainee = trainee_of(recipe)
        self.topology, *self.mix = recipe.topologies()
        self.decisions = trained_decisions(recipe, config)
        self.tasks: Curriculum = run.curriculum(told)
        self.store = Store(run.root.folder)
        self.stop = EarlyStop(config.patience or sys.maxsize)
        self.stop.restore(run.state("early_stop").get("history", "[]"))
        self.policy: PolicyEngine | None = None

    def all(self) -> None:
        from pilotfish.train.quiet import quiet

        try:
            with quiet():
                self.learn()
            self.run.keep("finished", {"best": self.run.best_step})
        finally:
            if self.policy is not None:
                self.workshop.play(self.policy.close())

    def learn(self) -> None:
        from pilotfish.train.grpo import newest_checkpoint, train, updates_of

        tasks = self.tasks.train
        if self.config.prefix != "fresh":
            tasks, self.store = sifted(self.recipe, self.run, self.workshop, tasks, self.told)
        rows = self.rows(tasks)
        self.workshop.play(self.workshop.seats.vacate())
        model, tokenizer = self.workshop.seats.trainee()
        checkpoint, done = newest_checkpoint(self.run.checkpoints), 0
        if checkpoint is not None:
            done = updates_of(checkpoint) // self.config.updates_per_step
            self.told(f"note: going on from step {done}", done, {})
        self.told("start", done, {"steps": steps(self.config, len(rows))})
        train(
            self.recipe,
            rows,
            model,
            tokenizer,
            self.rollout,
            background=self.workshop.background,
            output=self.run.checkpoints,
            on_step=self.after_step,
            on_log=self.log,
            first_version=self.run.version(0),
            right=self.shares(rows),
            on_rows=self.keep_rows,
        )

    def shares(self, rows: Sequence[RowId]) -> Shares | None:
        """How right the stored answers are that each group stands on; None where none were collected."""
        shaped = self.config.prefix == "shaped"
        places = {row: (row.task, row.set, row.decision if shaped else 0) for row in rows}
        return {row: self.store.share_right(*place) for row, place in places.items()} if self.store.sets else None

    def rows(self, tasks: Sequence[Task]) -> list[RowId]:
        """One id a group.

        Raises:
            RecipeError: fewer sets or rounds of answers were collected than are trained on.
        """
        sets, shaped = self.recipe.sets(self.config), self.config.prefix == "shaped"
        rounds = self.decisions[0] if shaped else (0,)
        if shaped:  # round 0 was looked at when the tasks were sifted
            self.store.expect(self.recipe, rounds=rounds, tasks=tasks)
        # A set that nobody answered, or whose leader did not, has nothing to train on.
        lost = set(self.store.lacking(tasks, sets, rounds)) if self.store.sets else set()
        stands = [(task.id, number) for task in tasks for number in range(sets) if (task.id, number) not in lost]
        trained = [(decision, at) for at, decisions in enumerate(self.decisions) for decision in decisions]
        return [RowId(*stand, *one) for stand in stands for one in trained]

    def rollout(self, policy: PolicyEngine) -> Rollout:
        self.policy = policy
        return Rollout(
            self.topology,
            self.team(policy, training=True),
            {task.id: task for task in self.tasks.train},
            self.workshop.journal,
            self.workshop.pool.judge,
            self.config,
            mix=self.mix,
            alone=next((other for other in baselines(self.recipe) if other.name == "solo"), None),
            seed=self.recipe.seed,
            kept=self.workshop.kept,
            place=self.run.place,
            shaped=self.store.shaped,
        )

    def team(self, policy: PolicyEngine, *, training: bool) -> Team:
        seats = self.workshop.seats
        engines = {**seats.frozen(), self.trainee: seats.leased(policy)}
        return Team(self.recipe.members(training=training), engines)

    def after_step(self, step: int, trainer: Trainer, policy: PolicyEngine) -> bool:
        """Evaluate on the holdout where it is due, keep the best weights, say whether to stop.

        Step 0 is before training: where training only harms, the weights as they were stay the best.
        """
        if step % self.config.evaluate_every and step != self.last(trainer):
            return False
        if not self.tasks.holdout:
            self.save(trainer, step)
            return False
        self.workshop.play(policy.sync(trainer.state.global_step))
        decision = self.stop.update(step, self.holdout(step, trainer, policy))
        self.run.keep("early_stop", {"history": self.stop.to_json()})
        if decision.best or self.stop.best_step is None:  # with nothing measured yet, the last weights are kept
            self.save(trainer, step)
        return decision.stop

    def last(self, trainer: Trainer) -> int:
        return int(trainer.args.max_steps) // self.config.updates_per_step

    def holdout(self, step: int, trainer: Trainer, policy: PolicyEngine) -> float | None:
        """Accuracy of the team on the holdout, of a mix the mean over its topologies, sampled as each `sampling` says
        (greedy by default), with the weights as they are; None where nothing could be judged."""
        shop, name = self.workshop, f"{self.run.place}holdout"
        field = Field(name, self.tasks.holdout, shop.journal, shop.pool.judge, self.recipe.seed, shop.kept)
        team, title = self.team(policy, training=False), titles(self.topology, self.mix)
        played = {
            title(topology): shop.play(field.play(Arm(f"step {step}", topology, team)))
            for topology in (self.topology, *self.mix)
        }
        figures = holdout_figures(self.tasks.holdout, played)
        if "holdout/accuracy" not in figures:
            self.told(f"note: step {step}: no answer on the holdout could be judged", step, {})
            return None
        self.run.log({"kind": "holdout", "step": step, **figures})
        self.told("holdout", step, figures)
        tell(trainer, figures)
        return figures["holdout/accuracy"]

    def save(self, trainer: Trainer, step: int) -> None:
        """Put the weights into the run's `best`; a kill at any moment leaves the old ones or the new ones, whole."""
        partial, old = self.run.folder / "best.part", self.run.folder / "best.old"
        shutil.rmtree(partial, ignore_errors=True)
        trainer.save_model(str(partial))
        self.run.mark_best(partial, step)
        if self.run.best.exists():
            shutil.rmtree(old, ignore_errors=True)
            self.run.best.rename(old)
        partial.rename(self.run.folder / "best")
        shutil.rmtree(old, ignore_errors=True)

    def keep_rows(self, step: int, rows: Sequence[Row]) -> None:
        append(self.run.folder / FILE, lines(rows, step, self.config.group_size, self.config.normalise))

    def log(self, step: int, figures: Mapping[str, Any]) -> None:
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        self.run.log({"kind": "step", "step": step, **numbers})
        self.told("step", step, numbers)
