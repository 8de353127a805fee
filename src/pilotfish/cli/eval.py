"""`pilotfish eval RUN`: play every arm on its benchmarks, and print what each was worth and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.cli.console import err, out, say_error
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import RunFolder, Setting, Traceback, open_recipe

if TYPE_CHECKING:
    from pilotfish.run import Run


def evaluate(
    run_or_recipe: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or a recipe.")],
    run: RunFolder = None,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """Measure a run against its baselines.

    Plays the team trained and untrained, the baselines and the controls on each benchmark; what is recorded is not
    asked again. Tables are printed and written into the run's folder.
    """
    with one_line(traceback, interrupted=lambda: "stopped; the same command goes on: what was answered is recorded"):
        recipe, folder = open_recipe(run_or_recipe, run, set)
        from pilotfish.cli.progress import Evaluation, quieten

        quieten()
        from pilotfish.evaluate.bench import evaluate as play_all
        from pilotfish.evaluate.record import names
        from pilotfish.evaluate.rounds_table import rounds_rich
        from pilotfish.evaluate.table import render_rich
        from pilotfish.run import Run

        with (
            Run(folder, recipe) as opened,
            Evaluation(err(), [b.title for b in recipe.evaluate.benchmarks]) as progress,
        ):
            if recipe.trainee and not opened.best.exists():
                progress.note(f"{folder}: no trained weights; the team is measured as it is before training")
            results = play_all(recipe, opened, progress=progress.told)
        for result in results:
            out().print(f"\n{result.benchmark}", style="bold")
            out().print(render_rich(result.rows))
            for arm, cells in result.rounds.items():
                out().print(f"\n{result.benchmark}: {arm}", style="bold", markup=False)
                out().print(rounds_rich(cells))
        written = [*names(results), *_plot(opened)]
        out().print(f"in {folder}: {', '.join(written)}", soft_wrap=True)


def _plot(run: Run) -> list[str]:
    """Draw the training's curves where there are any."""
    if not run.metrics.exists():
        return []
    from pilotfish.evaluate.plot import plot_training

    try:
        plot_training(run.metrics, run.folder / "training.png")
    except ModuleNotFoundError as error:
        say_error(f"no picture of the training: {error}")
    except ValueError:  # a run that was stopped before its first step has nothing to draw
        return []
    return ["training.png"] if (run.folder / "training.png").exists() else []
