"""`pilotfish doctor [RECIPE]`: what this machine and a recipe need, looked at before a long run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pilotfish.cli.console import out, printable
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Setting, Traceback, settings
from pilotfish.preflight.machine import Finding

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    recipe: Annotated[Path | None, typer.Argument(metavar="[RECIPE]", help="A recipe, or the folder of a run.")] = None,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """Look at the machine and a recipe.

    Prints ok, warn or fail for each thing that is looked at, with the way out. The exit code is 1 where anything fails.
    """
    with one_line(traceback):
        from pilotfish.cli.progress import quieten
        from pilotfish.preflight.doctor import recipe_findings
        from pilotfish.preflight.machine import machine
        from pilotfish.recipe_file import load_recipe

        loaded = load_recipe(recipe, settings(set)) if recipe else None
        quieten()
        found: Counter[str] = Counter()
        console = out()
        with console.status("looking"):
            for findings in (machine(), recipe_findings(loaded) if loaded else iter(())):
                for finding in findings:
                    found[finding.status] += 1
                    show(console, finding)
        console.print(f"{found['ok']} ok, {found['warn']} to mind, {found['fail']} to mend")
    if found["fail"]:
        raise typer.Exit(1)


def show(console: Console, finding: Finding) -> None:
    """One finding; long text is folded beside its name."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=4)
    grid.add_column(width=22, overflow="fold")
    grid.add_column(overflow="fold")
    what = Text(printable(finding.what))
    if finding.way_out:
        what.append(f"\n→ {printable(finding.way_out)}", style=STYLES[finding.status])
    grid.add_row(Text(finding.status, style=STYLES[finding.status]), Text(finding.name), what)
    console.print(grid)
