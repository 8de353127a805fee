"""When to keep a checkpoint and when to stop, from the holdout accuracy alone.

    stop = EarlyStop(patience=3)
    decision = stop.update(step=40, value=0.46)     # Decision(best=True, stop=False)

The whole state is the history of values, so a resumed run that evaluates a step again replaces what it said before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path

from pilotfish.recipe import Recipe, RecipeError
from pilotfish.train.profile import TrainConfig


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from an evaluation."""

    best: bool
    """This checkpoint is the best so far: keep it."""
    stop: bool
    """Patience has run out: end the training."""


class EarlyStop:
    """Stops after `patience` evaluations in a row that did not beat the best."""

    def __init__(self, patience: int) -> None:
        """Args:
            patience: evaluations without progress that end the training, at least 1.

        Raises:
            ValueError: patience below 1.
        """
        if patience < 1:
            raise ValueError(f"patience is {patience}; give 1 or more, or train without early stop")
        self.patience = patience
        self._history: dict[int, float | None] = {}

    def update(self, step: int, value: float | None) -> Decision:
        """Take in one evaluation; larger values are better.

        A value of None or nan could not be measured: it is neither progress nor counted against the patience. A step
        at or before one already seen means that the run was resumed from there: what came later is forgotten.
        """
        self._history = {seen: old for seen, old in self._history.items() if seen < step}
        self._history[step] = None if value is None or isnan(value) else value
        return Decision(best=self.best_step == step, stop=self._stale() >= self.patience)

    @property
    def best_step(self) -> int | None:
        """Step of the best value so far; None when nothing was measured."""
        return max(self._progress(), default=None)

    def ended(self, step: int) -> bool:
        """Whether this step is the last evaluated one, and patience has run out."""
        return max(self._history, default=None) == step and self._stale() >= self.patience

    def to_json(self) -> str:
        """The history, for the checkpoint."""
        return json.dumps(list(self._history.items()))

    def restore(self, text: str) -> None:
        """Go on from what `to_json` gave; the patience remains that given here."""
        self._history = {int(step): value for step, value in json.loads(text)}

    def _progress(self) -> list[int]:
        """The steps that each beat all before them."""
        steps, best = [], -inf
        for step, value in self._history.items():
            if value is not None and value > best:
                steps.append(step)
                best = value
        return steps

    def _stale(self) -> int:
        """Measured evaluations since the best one."""
        best = self.best_step
        return sum(best is not None and step > best and value is not None for step, value in self._history.items())


def check_patience(recipe: Recipe, folder: Path | None = None) -> None:
    """Make sure that a training has the holdout that its patience waits on. One that has begun without it goes on,
    since a run's settings cannot change.

    Args:
        recipe: what is to be trained.
        folder: the run's, where it may have begun.

    Raises:
        RecipeError: names both fields.
    """
    if recipe.tasks is None or recipe.tasks.holdout:
        return
    stages = {f"stages.{name}": (config, f"stages/{name}") for name, config in recipe.stages.items()}
    for place, (config, own) in {"train": (recipe.train, ""), **stages}.items():
        begun = folder is not None and (folder / own / "metrics.jsonl").exists()
        if isinstance(config, TrainConfig) and config.patience and not begun:
            raise RecipeError(
                f"{place}.patience is {config.patience}, and tasks.holdout 0: patience waits on the holdout; raise "
                "tasks.holdout, or leave patience out"
            )
