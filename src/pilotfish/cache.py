"""The cache folder: converted models, and answers at temperature 0 that outlive a run."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$PILOTFISH_CACHE`, or `~/.cache/pilotfish`."""
    return Path(os.environ.get("PILOTFISH_CACHE") or "~/.cache/pilotfish").expanduser()
