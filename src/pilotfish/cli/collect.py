"""`pilotfish collect RECIPE`: ask the agents once, so that training asks nobody; carry the answers from run to run."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from pilotfish.cli.console import err, out
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import RunFolder, Setting, Traceback, open_recipe


def collect(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe, or the folder of a run.")],
    run: RunFolder = None,
    rounds: Annotated[
        str, typer.Option(metavar="0|1,2", help="Which answers: the agents' own, or those that a leader has shaped.")
    ] = "0",
    leader: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Who shapes them: the best weights of a run.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Then write them all to .jsonl, .jsonl.gz or .parquet.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Read them from such a file; nobody is asked.")
    ] = None,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """Record the agents' answers to the training tasks.

    What is recorded is not asked again: the same command goes on after a stop, and asks once more who was absent.
    """
    with one_line(traceback, interrupted=lambda: "stopped; the same command goes on: what was answered is recorded"):
        wanted, folder = open_recipe(recipe, run, set)
        numbers = _numbers(rounds)
        from pilotfish.cli.progress import Training, quieten

        quieten()
        from pilotfish.collect.exchange import export as write
        from pilotfish.collect.files import check_name
        from pilotfish.collect.main import collect as ask
        from pilotfish.engine.meter import Meter
        from pilotfish.preflight.servers import Servers
        from pilotfish.run import Run

        if export is not None:
            check_name(export)
        meter, servers = Meter(), Servers([] if answers else [wanted])
        with Training(err(), "loading the agents", meter) as progress:
            servers.tell(progress.note, folder)
            found = ask(wanted, folder, rounds=numbers, leader=leader, answers=answers, told=progress.told, meter=meter)
        out().print(str(found), soft_wrap=True)
        if export is not None:
            out().print(f"exported   {write(Run(folder), export)} rows to {export}", soft_wrap=True)
        out().print(f"next       pilotfish train {quote(str(folder))}", soft_wrap=True)


def _numbers(rounds: str) -> list[int]:
    from pilotfish.recipe import RecipeError

    try:
        return [int(number) for number in rounds.split(",")]
    except ValueError:
        raise RecipeError(f"--rounds {rounds}: not numbers; write 0, or 1,2") from None
