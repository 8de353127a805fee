"""The checkpoints of a training."""

from __future__ import annotations

import json
from pathlib import Path


def newest_checkpoint(output: Path) -> Path | None:
    """The last complete checkpoint in a folder; one that was being written when the run was killed does not count."""
    found = [path for path in output.glob("checkpoint-*") if _complete(path / "trainer_state.json")]
    return max(found, key=updates_of, default=None)


def updates_of(checkpoint: Path) -> int:
    """Optimizer updates that a checkpoint holds."""
    return int(checkpoint.name.rpartition("-")[2])


def _complete(state: Path) -> bool:
    """The trainer's state is the last file of a checkpoint to be written."""
    try:
        json.loads(state.read_text())
    except (OSError, ValueError):
        return False
    return True
