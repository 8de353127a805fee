"""`pilotfish` in one process or several, which finds no answers of another run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pilotfish.cache import cache_folder


def launched(count: int, command: str, recipe: str, folder: Path, settings: list[str]) -> None:
    """Run a command that makes a run, with settings `NAME=VALUE`, and end with it where it fails."""
    if folder.exists():
        sys.exit(f"{folder} is there already, with figures of its own; name another folder")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count), "-m", "--"]
    given = [word for setting in settings for word in ("--set", setting)]
    words = ["pilotfish", command, recipe, "--run", str(folder), *given]
    with tempfile.TemporaryDirectory() as cache:
        for kept in cache_folder().glob("*"):
            if kept.name != "answers":
                (Path(cache) / kept.name).symlink_to(kept.resolve())
        environment = {**os.environ, "PILOTFISH_CACHE": cache}
        subprocess.run([sys.executable, *(launcher if count > 1 else ["-m"]), *words], check=True, env=environment)
