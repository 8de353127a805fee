"""`pilotfish report RUN`: the last evaluation of a run as a page, and its tables as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilotfish.cli.console import out
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Traceback


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that was evaluated.")],
    folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the files go; the run's folder by default.")
    ] = None,
    traceback: Traceback = False,
) -> None:
    """Write the report of a run's last evaluation: report.html, .md, .csv, .json, and a CSV for every figure.

    Nobody is asked: what `eval` left in the folder is read. The page needs no network.
    """
    with one_line(traceback):
        from pilotfish.report.main import FIGURES
        from pilotfish.report.main import report as write

        written = write(run, folder)
        names = [file.name for file in written if file.parent.name != FIGURES]
        figures = len(written) - len(names)
        out().print(f"in {folder or run}: {', '.join(names)}, and {figures} CSV files in {FIGURES}/", soft_wrap=True)
