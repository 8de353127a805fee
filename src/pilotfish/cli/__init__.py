"""The command line: `pilotfish init`, `train`, `eval`, and what `pilotfish --help` lists beside them.

One file a command; docs/cli.md has one screen for each. What a command needs beyond typer and rich is imported when it
runs, so that `pilotfish --help` and `pilotfish verify` start without torch.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from pilotfish.cli.collect import collect
from pilotfish.cli.console import say_error
from pilotfish.cli.doctor import doctor
from pilotfish.cli.estimate import estimate
from pilotfish.cli.eval import evaluate
from pilotfish.cli.export import export
from pilotfish.cli.init import init
from pilotfish.cli.report import report
from pilotfish.cli.serve import serve
from pilotfish.cli.tasks import tasks
from pilotfish.cli.train import train
from pilotfish.cli.verify import verify
from pilotfish.cli.view import view

# Older releases of typer depend on click, newer ones carry it inside: BadParameter leads to the errors of either.
CLICK_ERROR: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    help="Train one small language model to make a team of frozen models better.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,  # they print local variables, and a local variable may hold a key
    rich_markup_mode=None,
    add_completion=False,
)
app.command("init")(init)
app.command("train")(train)
app.command("collect")(collect)
app.command("eval")(evaluate)
app.command("serve")(serve)
app.command("report")(report)
app.command("export")(export)
app.command("verify")(verify)
app.command("estimate")(estimate)
app.command("doctor")(doctor)
app.command("tasks")(tasks)
app.command("view")(view)


def _version(asked: bool) -> None:
    if asked:
        try:
            print(f"pilotfish {version('pilotfish')}")
        except PackageNotFoundError:
            print("pilotfish, from a folder that is not installed")
        raise typer.Exit


@app.callback()
def _pilotfish(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train one small language model to make a team of frozen models better."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: without the program's name; `sys.argv` when None.

    Returns:
        The exit code: 0, 1 (`doctor` found a fault, `eval` judged nothing), 2 (what was asked cannot be done), 130
        (interrupted).
    """
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # ± on a terminal that has ASCII only
    try:
        code: Any = app(given, prog_name="pilotfish", standalone_mode=False)
    except typer.Exit as done:
        code = done.exit_code
    except (typer.Abort, KeyboardInterrupt):
        say_error("interrupted")
        code = 130
    except CLICK_ERROR as error:
        code = _misused(error)
    return code if isinstance(code, int) else 0


def _misused(error: Any) -> int:
    context = getattr(error, "ctx", None)
    say_error(f"{error.format_message().rstrip('.')}; see {context.command_path if context else 'pilotfish'} --help")
    return 2


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *more: Any, **named: Any
) -> None:
    """Pilotfish's own warnings as one line; what libraries have to say to developers is left out."""
    if category is UserWarning and "pilotfish" in filename:
        say_error(f"warning: {message}")
