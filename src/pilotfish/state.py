"""A run's files, each written whole or not at all; its small states, JSON, are refused by name where one is not whole.

write(run / "curriculum.json", json.dumps(state))
state = read(run / "curriculum.json")               # {} where there is none
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

WAYS_OUT = {
    "topology": "remove it: that your own files have not changed since the run began is then taken for granted",
    "curriculum": "remove it: the tasks are then divided anew, alike unless a source or a benchmark has changed",
    "early_stop": "remove it: patience then counts anew",
    "finished": "remove it: what is left of the training since its newest checkpoint is then done again",
    "seated": "remove it: which models sat in earlier evaluations is then not known",
    "filter": "remove it: the tasks are then filtered anew",
    "backtrack": "remove it: the chains are then made anew, from what is recorded",
    "overlap": "remove it: it is written again",
    "stage": "remove the folder that it is in, to train that stage again",
    "stages": 'write {"count": N} into it, N the number of folders in stages/, or more where one was ever removed',
    "step": 'write {"step": N} into it, N the step of the best holdout/accuracy in metrics.jsonl',
}
"""What to do where one is cut off, by its name, and what is lost by that."""


class RunError(Exception):
    """A run's folder that cannot be used as asked. Names the folder and the way out."""


def read(file: Path) -> dict[str, Any]:
    """A state; empty when there is none.

    Raises:
        RunError: the file is empty or cut off.
    """
    if not file.exists():
        return {}
    try:
        state = json.loads(file.read_bytes())
    except ValueError:
        state = None
    if not isinstance(state, dict):
        way_out = WAYS_OUT.get(file.stem, "restore it, or begin in another folder with --run")
        raise RunError(f"{file}: empty or cut off, as it may be after the machine went down; {way_out}")
    return state


def write(file: Path, text: str) -> None:
    """Write a file, whole or not at all, also where the machine goes down: it is on the disk before it has its name."""
    partial = file.with_name(f"{file.name}.part")
    with partial.open("w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(partial, file)
