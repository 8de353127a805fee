"""Pilotfish: train one small language model to make a team of frozen models better.

from pilotfish import evaluate, load_recipe, train
run = train(load_recipe("recipes/quickstart.yaml"), "runs/quickstart")
evaluate(run.recipe, run)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pilotfish.collect
import pilotfish.evaluate
import pilotfish.serve
import pilotfish.train  # noqa: F401
from pilotfish.engine.base import Completion, Engine
from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.episode import Episode, Journal, Room, Scopes, Team, Turn, fork, play, replay
from pilotfish.recipe import Recipe
from pilotfish.recipe_file import load_recipe
from pilotfish.run import Run
from pilotfish.task import Task, load_tasks
from pilotfish.team import Member, Price, Sampling, Usage
from pilotfish.topology import Prompt, Prompts, Topology, topology
from pilotfish.verify import Verdict, judge

if TYPE_CHECKING:
    from pilotfish.collect.collected import Collected
    from pilotfish.evaluate.bench import Result
    from pilotfish.processes import Processes

Told = Callable[[str, int, Mapping[str, float]], None]
Progress = Callable[[str, int, int], None]

__all__ = [
    "Completion",
    "Engine",
    "Episode",
    "Journal",
    "Member",
    "Price",
    "Prompt",
    "Prompts",
    "Recipe",
    "Room",
    "Run",
    "Sampling",
    "Scopes",
    "ScriptedEngine",
    "Task",
    "Team",
    "Topology",
    "Turn",
    "Usage",
    "Verdict",
    "collect",
    "evaluate",
    "fork",
    "judge",
    "load_recipe",
    "load_tasks",
    "play",
    "replay",
    "serve",
    "topology",
    "train",
]


def train(recipe: Recipe, folder: Path | str, *, told: Told = lambda kind, step, figures: None) -> Run:
    """Train a recipe's trainee in a run's folder: `pilotfish.train.main.train`, imported on first use."""
    from pilotfish.train.main import train

    return train(recipe, folder, told=told)


def collect(
    recipe: Recipe,
    folder: Path | str,
    *,
    rounds: Iterable[int] = (0,),
    leader: Path | str | None = None,
    answers: Path | str | None = None,
    told: Told = lambda kind, step, figures: None,
) -> Collected:
    """Record the agents' answers to a recipe's tasks: `pilotfish.collect.main.collect`, imported on first use."""
    from pilotfish.collect.main import collect

    return collect(recipe, folder, rounds=rounds, leader=leader, answers=answers, told=told)


def evaluate(
    recipe: Recipe,
    run: Run,
    *,
    progress: Progress = lambda stage, done, of: None,
    recorded: bool = False,
    processes: Processes | None = None,
) -> list[Result]:
    """Compare a run's team with what the recipe names: `pilotfish.evaluate.bench.evaluate`, imported on first use."""
    from pilotfish.evaluate.bench import evaluate

    return evaluate(recipe, run, progress=progress, recorded=recorded, processes=processes)


def serve(recipe: Recipe, run: Run, *, told: Callable[[str], None] = lambda line: None) -> None:
    """Serve a run's team until the process is interrupted: `pilotfish.serve.main.serve`, imported on first use."""
    from pilotfish.serve.main import serve

    serve(recipe, run, told=told)
