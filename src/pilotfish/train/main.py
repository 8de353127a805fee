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

from pilotfish.background import Background
from pilotfish.cache import cache_folder
from pilotfish.curriculum import Curriculum, curriculum
from pilotfish.episode import Journal, Team
from pilotfish.evaluate.arms import Arm, Field, baselines, words_of
from pilotfish.overlap import Overlap
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.train.early_stop import EarlyStop
from pilotfish.train.profile import SftConfig, TrainConfig, steps
from pilotfish.train.rollout import Rollout, RowId, leaks
from pilotfish.verify import VerifierPool

if TYPE_CHECKING:
    from pilotfish.engine.policy import PolicyEngine
    from pilotfish.train.grpo import Trainer

Told = Callable[[str, int, Mapping[str, float]], None]
"""Kind of news (`start` with the number of `steps`, `step`, `holdout`, `note: …`), step, figures."""


def train(recipe: Recipe, folder: Path | str, *, told: Told = lambda kind, step, figures: None) -> Run:
    """Train a recipe's trainee, or go on with a run that was cut off.

    Args:
        recipe: what to train, on what, how.
        folder: the run's folder; made, or resumed if it holds a run of the same recipe. A finished run stays as it is.
        told: called with news.

    Returns:
        The run; its `best` holds the weights that did best on the holdout.

    Raises:
        RecipeError: nothing to train, or started as one of several processes.
        RunError: the folder belongs to another recipe, or is in use.
        TooManyOutages: see `train.outages`.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RecipeError(
            f"train: WORLD_SIZE is {os.environ['WORLD_SIZE']}; a run is one process today. Start it without accelerate "
            "or torchrun, and put frozen members on other GPUs with `device: cuda:1` or behind an API"
        )
    with Run(folder, recipe) as run:
        if run.state("finished"):
            told("note: this run is finished; nothing is done again", 0, {})
        elif isinstance(recipe.train, SftConfig):
            _sft(recipe, recipe.train, run)
        else:
            _Training(recipe, recipe.train, run, told).all()
        return run


def _sft(recipe: Recipe, config: SftConfig, run: Run) -> None:
    from pilotfish.engine.embedded import NAME, embedded
    from pilotfish.lab.data import read_rows
    from pilotfish.train.sft import sft

    member = recipe.team[_trainee(recipe)]
    metrics = sft(
        str(embedded()) if member.model == NAME else member.model,
        read_rows(config.data, config.steps * config.batch, recipe.seed),
        run.best,
        steps=config.steps,
        lr=config.learning_rate,
        batch=config.batch,
        micro_batch=config.micro_batch,
        lora=member.lora,
        seed=recipe.seed,
    )
    run.mark_best(run.best, metrics["steps"])
    run.keep("finished", dict(metrics))


def _trainee(recipe: Recipe) -> str:
    if recipe.trainee is None:
        raise RecipeError(f"team: no member has `train`; give it to one of {', '.join(recipe.team)}")
    return recipe.trainee


class _Training:
    """One GRPO run: what its parts share."""

    def __init__(self, recipe: Recipe, config: TrainConfig, run: Run, told: Told) -> None:
        self.recipe = recipe
        self.config = config
        self.run = run
        self.told = told
        self.trainee = _trainee(recipe)
        self.topology = recipe.topology.load()
        self.tasks: Curriculum = curriculum(recipe, run.state("curriculum"))
        run.hold_topology()
        run.keep("curriculum", self.tasks.ids())
        self.background = Background()
        self.seats = Seats(recipe)
        self.journal = run.journal()
        self.kept = Journal(cache_folder() / "answers", shared=True)
        self.pool = VerifierPool()
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
            self.close()

    def learn(self) -> None:
        from pilotfish.train.grpo import newest_checkpoint, train, updates_of

        if self.tasks.repeats:
            self.run.keep("overlap", {"repeats": [str(repeat) for repeat in self.tasks.repeats]})
            self.told(f"note: {_listed(self.tasks.repeats)}", 0, {})
        model, tokenizer = self.seats.trainee()
        rows = [RowId(task.id, set=0, decision=self.config.decision) for task in self.tasks.train]
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
            background=self.background,
            output=self.run.checkpoints,
            on_step=self.after_step,
            on_log=self.log,
        )

    def rollout(self, policy: PolicyEngine) -> Rollout:
        self.policy = policy
        return Rollout(
            self.topology,
            self.team(policy, training=True),
            {task.id: task for task in self.tasks.train},
            self.journal,
            self.pool.judge,
            self.config,
            alone=next((other for other in baselines(self.recipe) if other.name == "solo"), None),
            seed=self.recipe.seed,
            kept=self.kept,
        )

    def team(self, policy: PolicyEngine, *, training: bool) -> Team:
        engines = {**self.seats.frozen(), self.trainee: self.seats.leased(policy)}
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
        self.background.run(policy.sync(trainer.state.global_step))
        decision = self.stop.update(step, self.holdout(step, policy))
        self.run.keep("early_stop", {"history": self.stop.to_json()})
        if decision.best or self.stop.best_step is None:  # with nothing measured yet, the last weights are kept
            self.save(trainer, step)
        return decision.stop

    def last(self, trainer: Trainer) -> int:
        return int(trainer.args.max_steps) // self.config.updates_per_step

    def holdout(self, step: int, policy: PolicyEngine) -> float | None:
        """Accuracy of the team on the holdout, sampled as the members' `sampling` says (greedy by default), with the
        weights as they are; None where nothing could be judged."""
        field = Field("holdout", self.tasks.holdout, self.journal, self.pool.judge, self.recipe.seed, self.kept)
        arm = Arm(f"step {step}", self.topology, self.team(policy, training=False))
        episodes = self.background.run(field.play(arm))
        rewards = [episode.verdict.reward for episode in episodes if episode.verdict.reward is not None]
        pairs = zip(self.tasks.holdout, episodes, strict=True)
        figures = {"holdout/leak_rate": sum(leaks(task, words_of(episode)) for task, episode in pairs) / len(episodes)}
        if not rewards:
            self.told(f"note: step {step}: no answer on the holdout could be judged", step, {})
            return None
        figures["holdout/accuracy"] = sum(rewards) / len(rewards)
        self.run.log({"kind": "holdout", "step": step, **figures})
        self.told("holdout", step, figures)
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

    def log(self, step: int, figures: Mapping[str, Any]) -> None:
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        self.run.log({"kind": "step", "step": step, **numbers})
        self.told("step", step, numbers)

    def close(self) -> None:
        if self.policy is not None:
            self.background.run(self.policy.close())
        self.background.run(self.seats.close())
        self.background.close()
        self.pool.close()
        self.journal.close()
        self.kept.close()


def _listed(repeats: Sequence[Overlap]) -> str:
    shown = "; ".join(str(repeat) for repeat in repeats[:5])
    more = f"; and {len(repeats) - 5} more" if len(repeats) > 5 else ""
    return f"training tasks that stand in a benchmark (all in overlap.json): {shown}{more}"
