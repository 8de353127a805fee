"""Whether anything has been answered or learned in a run's folder; until then it gives way to another recipe."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from pilotfish.episode import Journal

PLANS = frozenset(
    f"{name}.json" for name in ("topology", "curriculum", "overlap", "seated", "store", "stages", "stage")
)
"""States that follow from the recipe alone: what is to be played and trained on, and who sits in it."""
BESIDE = frozenset(("recipe.yaml", "lock", "journal", "logs"))
"""What else stands in a folder before the first answer; the journal says itself what it holds."""


def begun(folder: Path) -> bool:
    """Whether a run's folder holds what another recipe would lose: an answer, a checkpoint, a row of metrics, or
    anything that is not known to come before these. One without a lock was in no run's hands, and is its owner's."""
    return not (folder / "lock").exists() or _more(folder) or _answered(folder / "journal")


def _more(folder: Path) -> bool:
    for found in folder.iterdir():
        if found.name == "stages":
            if any(map(_more, found.iterdir())):
                return True
        elif found.name == "checkpoints":
            if any(found.iterdir()):
                return True
        elif found.name.removesuffix(".part") not in PLANS | BESIDE:
            return True
    return False


def _answered(folder: Path) -> bool:
    with closing(Journal(folder, writable=False)) as journal:
        return journal.answered()


def clear(folder: Path) -> None:
    """Take away the plans of a run that has not begun. The journal stays: tries that failed may have cost something."""
    for name in PLANS:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "stages", ignore_errors=True)
