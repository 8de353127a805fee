"""`pilotfish serve RUN`: a finished run's team behind an OpenAI-compatible server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilotfish.cli.console import say_error
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import RunFolder, Setting, Traceback, open_recipe


def serve(
    place: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or its recipe.")],
    run: RunFolder = None,
    host: Annotated[str | None, typer.Option(help="Where it listens; this machine alone by default.")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 8000 by default.")] = None,
    key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable with API keys; needed with --host.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep questions and answers in the run's journal.")] = False,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """Serve a run's team as one model.

    Speaks the OpenAI format at http://127.0.0.1:8000/v1; the models are `team`, `alone`, `actor` and each member.
    """
    with one_line(traceback, interrupted=lambda: "stopped"):
        flags = {"host": host, "port": port, "key_env": key_env, "record": record or None}
        given = [f"serve.{name}={value}" for name, value in flags.items() if value is not None]
        recipe, folder = open_recipe(place, run, [*(set or ()), *given])
        from pilotfish.cli.progress import quieten
        from pilotfish.run import Run
        from pilotfish.serve.main import serve as run_server

        quieten()
        run_server(recipe, Run(folder), told=say_error)
