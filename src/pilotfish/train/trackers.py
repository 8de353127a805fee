"""Trackers: trackio, tensorboard and wandb, which `train.report_to` names. TRL writes to them; here stands what that
leaves open: whether they are installed, what a run is called in them, and the figures that TRL does not know.

with tracked(trainer, output):
    tell(trainer, {"holdout/accuracy": 0.5})
    trainer.train()
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.recipe import Recipe, RecipeError
from pilotfish.train.profile import TrainConfig

if TYPE_CHECKING:
    from pilotfish.train.grpo import Trainer

TRACKERS = ("trackio", "tensorboard", "wandb")
PROJECT = "pilotfish"
"""What runs are filed under in trackio and wandb; $WANDB_PROJECT says otherwise."""
NAME = "tracker"
"""File, beside the checkpoints, that holds the run's name in trackers."""


def check_trackers(recipe: Recipe) -> None:
    """Make sure that what a recipe reports to is there.

    Raises:
        RecipeError: a tracker that is unknown or not installed.
    """
    for name in trackers(recipe):
        if name not in TRACKERS:
            raise RecipeError(f"report_to: {name!r} is no tracker; choose from {', '.join(TRACKERS)}")
        if find_spec(name) is None:
            raise RecipeError(f"report_to: {name} is not installed; pip install {name}, or leave it out")


def trackers(recipe: Recipe) -> list[str]:
    """All that a recipe's training, or any of its stages, reports to."""
    configs = [config for config in (recipe.train, *recipe.stages.values()) if isinstance(config, TrainConfig)]
    return list(dict.fromkeys(name for config in configs for name in config.report_to))


@contextmanager
def tracked(trainer: Trainer, output: Path) -> Iterator[None]:
    """Report a training under one name, however often it is resumed; what was reported is whole afterwards.

    Args:
        trainer: not begun yet.
        output: its folder of checkpoints, which remembers the name.
    """
    named = set(TRACKERS) & set(trainer.args.report_to or ())
    if not named:
        yield
        return
    name = _name(output)
    trainer.args.run_name, trainer.args.project = name, PROJECT
    trainer.args.report_to = []  # from here on read for times alone, which TRL logs under the names of its methods
    for callback in trainer.callback_handler.callbacks if "tensorboard" in named else ():
        if hasattr(callback, "tb_writer") and callback.logging_dir is None:  # not set by $TENSORBOARD_LOGGING_DIR
            callback.logging_dir = str(output.parent / "tensorboard")
    if "wandb" in named:
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        import_module("wandb").init(project=project, id=name, name=name, resume="allow")
    try:
        yield
    finally:
        _finish(named)


def _name(output: Path) -> str:
    """The run's folder, its stage, and letters of its own: another run in a folder of that name is another run."""
    file = output / NAME
    if not file.exists():
        run = output.parents[2].name if output.parent.parent.name == "stages" else ""
        words = [part for part in (run, output.parent.resolve().name, secrets.token_hex(3)) if part]
        output.mkdir(parents=True, exist_ok=True)
        file.write_text(re.sub(r"[^\w.-]+", "-", "-".join(words)))
    return file.read_text()


def tell(trainer: Trainer, figures: Mapping[str, Any]) -> None:
    """Send figures to the trackers, at the step where the training is."""
    trainer.callback_handler.on_log(trainer.args, trainer.state, trainer.control, dict(figures))


def _finish(named: set[str]) -> None:
    """Close what is open: of wandb always, since the next stage is a run of its own; of trackio where training broke
    off."""
    if "wandb" in named:
        import_module("wandb").finish()
    if "trackio" in named:
        trackio = import_module("trackio")
        if trackio.context_vars.current_run.get() is not None:
            trackio.finish()
