"""`pilotfish view RUN`: the episodes of a run in a browser, or as a folder of pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilotfish.cli.console import err, out
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Traceback


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run; it may be at work.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where the pages are served.")] = 7420,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="DIR", help="Write a folder that opens without a server.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Episodes that an exported folder holds at most.")] = 2000,
    traceback: Traceback = False,
) -> None:
    """Look into a run: its episodes turn by turn, groups side by side, curves.

    Nothing is asked of any model and nothing is written into the run. The pages are served to this machine alone.
    """
    with one_line(traceback, interrupted=lambda: "stopped"):
        from pilotfish.run import Run

        if export is not None:
            from pilotfish.view.export import export as write

            written = write(Run(run), export, most)
            out().print(f"{written} in {export}; open {export / 'index.html'}", soft_wrap=True)
            return
        from pilotfish.view.app import listen, serve

        found, listening = Run(run), listen(port)
        err().print(f"{run}: http://127.0.0.1:{port} (Ctrl-C ends it)", soft_wrap=True)
        serve(found, listening)
