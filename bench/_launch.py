"""`pilotfish` in one process and in several: what is compared finds none of the other's answers."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pilotfish.cache import cache_folder


def parser(description: str | None) -> argparse.ArgumentParser:
    """Of what is launched, how often, and where its runs are made."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("recipe")
    options.add_argument("folder", type=Path)
    options.add_argument("--counts", type=int, nargs="+", default=[1, 2])
    options.add_argument("--set", action="append", default=[], help="for all of them, as for `pilotfish`")
    return options


def launch(count: int, command: str, recipe: str, folder: Path, settings: list[str], *, begun: bool = False) -> None:
    """Run a command that makes a run.

    Args:
        count: of processes.
        command: `train` or `eval`.
        recipe: its file.
        folder: of the run.
        settings: `NAME=VALUE` each.
        begun: whether the folder is there already, to go on with.

    Raises:
        CalledProcessError: it failed.
    """
    if folder.exists() and not begun:
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
