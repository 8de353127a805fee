"""Pilotfish: train one small language model to make a team of frozen models better.

    from pilotfish import evaluate, load_recipe, train
    run = train(load_recipe("recipes/quickstart.yaml"), "runs/quickstart")
    evaluate(run.recipe, run)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotfish.engine.base import Completion, Engine
from pilotfish.episode import Episode, Journal, Room, Scopes, Team, Turn, fork, play, replay
from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.recipe import Recipe, load_recipe
from pilotfish.run import Run
from pilotfish.task import Task, load_tasks
from pilotfish.team import Member, Price, Sampling, Usage
from pilotfish.topology import Prompt, Prompts, Topology, topology
from pilotfish.verify import Verdict, judge

if TYPE_CHECKING:
    from pilotfish.evaluate.bench import evaluate
    from pilotfish.train.main import train

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
    "evaluate",
    "fork",
    "judge",
    "load_recipe",
    "load_tasks",
    "play",
    "replay",
    "topology",
    "train",
]

LATE = {"train": "pilotfish.train.main", "evaluate": "pilotfish.evaluate.bench"}
"""What is imported on first use: torch is slow to import, and playing episodes does not need it."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module 'pilotfish' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(LATE[name]), name)
