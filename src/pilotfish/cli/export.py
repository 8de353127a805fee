"""`pilotfish export RUN --inspect`: the last evaluation of a run in the format of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilotfish.cli.console import out
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Traceback


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that was evaluated.")],
    inspect: Annotated[bool, typer.Option("--inspect", help="Logs of inspect_ai, for `inspect view`.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the logs go; inspect/ in the run by default.")
    ] = None,
    traceback: Traceback = False,
) -> None:
    """Write a run's last evaluation for another program: one log for each benchmark and method."""
    with one_line(traceback):
        from pilotfish.recipe import RecipeError

        if not inspect:
            raise RecipeError("say what is written: pilotfish export RUN --inspect")
        from pilotfish.report.inspect_log import FOLDER
        from pilotfish.report.inspect_log import export as write

        written = write(run, folder)
        place = folder or run / FOLDER
        out().print(f"{len(written)} logs in {place}; see them with: inspect view --log-dir {place}", soft_wrap=True)
