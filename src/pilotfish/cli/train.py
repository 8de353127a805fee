"""`pilotfish train RECIPE`: train the trainee of a recipe, with progress; or go on with a run that was cut off."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.cli.console import err, out
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import RunFolder, Setting, Traceback, open_recipe

if TYPE_CHECKING:
    from pilotfish.run import Run


def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe, or the folder of a run to go on with.")],
    run: RunFolder = None,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """Train a recipe's trainee.

    A killed run goes on where its record ends: name its folder, or the recipe again.
    """
    from pilotfish.processes import follows, joined

    if follows():  # the main process reads the recipe, shows what is done, and calls this one
        with one_line(traceback), joined() as processes:
            processes.follow()
        return
    folder = run or recipe
    with one_line(traceback, interrupted=lambda: f"stopped; to go on: pilotfish train {quote(str(folder))}"):
        wanted, folder = open_recipe(recipe, run, set)
        from pilotfish.cli.progress import Training, quieten
        from pilotfish.engine.meter import Meter
        from pilotfish.preflight.servers import Servers
        from pilotfish.run import Run

        quieten()
        finished = (folder / "recipe.yaml").exists() and Run(folder).finished
        meter, servers = Meter(), Servers([] if finished else [wanted])
        with Training(err(), f"loading {wanted.trainee or 'the team'}", meter) as progress:
            from pilotfish.train.main import train as train_recipe  # takes seconds

            servers.tell(progress.note, folder)
            done = train_recipe(wanted, folder, told=progress.told, meter=meter)
        for line in summary(done):
            out().print(line, soft_wrap=True)


def summary(run: Run) -> list[str]:
    """What a finished training came to: before and after on the holdout, and what to do next."""
    from pilotfish.outcome import outcomes

    best, lines = run.best_step, []
    if gain := run.gain():
        worth = f"{gain.before:.3f} before, {gain.after:.3f} at step {best}, the best"
        lines.append(f"holdout    {worth} ({gain.judged} tasks)")
    if run.best.exists():
        lines.append(f"weights    {run.best}" + (f" (step {best})" if best is not None else ""))
    lines += [f"note       {one.note}" for one in outcomes(run)[-1:] if one.note]
    if run.recipe.evaluate.benchmarks:
        lines.append(f"next       pilotfish eval {quote(str(run.folder))}")
    return lines
