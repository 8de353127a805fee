"""`pilotfish eval RUN`: play every arm on its benchmarks, and print what each was worth and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.cli.console import err, out, printable, say_error
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import RunFolder, Setting, Traceback, open_recipe

if TYPE_CHECKING:
    from pilotfish.evaluate.bench import Result
    from pilotfish.recipe import Recipe
    from pilotfish.run import Run


def evaluate(
    run_or_recipe: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or a recipe.")],
    run: RunFolder = None,
    set: Setting = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Ask nobody: measure what the run's record has whole.")
    ] = False,
    traceback: Traceback = False,
) -> None:
    """Measure a run against its baselines.

    Plays the team trained and untrained, the baselines and the controls on each benchmark; what is recorded is not
    asked again. Tables are printed and written into the run's folder. With --recorded no model is needed: methods that
    were played on every task are measured, others left out by name. The exit code is 1 where no method has a verdict.
    """
    from pilotfish.cli.progress import Evaluation, quieten
    from pilotfish.processes import follows, joined

    if follows():  # the main process reads the recipe, measures, writes, and calls this one to play
        quieten()
        with one_line(traceback), joined(sharing=True) as processes:
            processes.follow()
        return
    with one_line(traceback, interrupted=lambda: "stopped; the same command goes on: what was answered is recorded"):
        recipe, folder = open_recipe(run_or_recipe, run, set)
        quieten()
        from pilotfish.engine.meter import Meter
        from pilotfish.evaluate.bench import evaluate as play_all
        from pilotfish.evaluate.page import page_rich
        from pilotfish.evaluate.record import names
        from pilotfish.preflight.servers import Servers

        measured, meter, servers = recipe.evaluate, Meter(), Servers(() if recorded else recipe.teams().values())
        with (
            joined(sharing=True) as processes,
            Evaluation(err(), [b.title for b in measured.benchmarks], meter, measured.samples) as progress,
        ):
            servers.tell(progress.note, folder)
            with _run(folder, recipe, recorded) as opened:
                if recipe.trainee and not opened.best.exists() and not measured.weights and not recorded:
                    progress.note(f"{folder}: no trained weights; the team is measured as it is before training")
                results = play_all(
                    recipe, opened, progress=progress.told, meter=meter, recorded=recorded, processes=processes
                )
        for result in results:
            out().print(page_rich(result))
        for one in (one for result in results for one in result.weights):
            out().print(f"\nnote: {printable(one.told)}", soft_wrap=True)
        from pilotfish.report.main import report

        pages = [str(page.relative_to(folder)) for page in report(folder) if page.parent == folder]
        written = [*names(results), *_plots(opened, results), *pages]
        out().print(f"in {folder}: {', '.join(written)}", soft_wrap=True)
    if not _judged(results):
        raise typer.Exit(1)


def _judged(results: Sequence[Result]) -> bool:
    """Say what has failed, and whether each benchmark has a method with a verdict."""
    from pilotfish.evaluate.scores import failures

    for line in (line for result in results for line in failures(result.scores)):
        say_error(f"warning: {line}")
    empty = [result.benchmark for result in results if not any(row.n for row in result.rows)]
    if empty:
        say_error(f"{', '.join(empty)}: no method has a verdict; mend that and give the same command again")
    return not empty


def _run(folder: Path, recipe: Recipe, recorded: bool) -> Run:
    """The run's folder, made if missing; not where only what it has recorded is of use."""
    from pilotfish.run import Run

    if recorded:
        Run(folder)
    return Run(folder, recipe)


def _plots(run: Run, results: Sequence[Result]) -> list[str]:
    """Draw the training's curves where there are any, and accuracy over budget where a method has several."""
    try:
        return [*_training(run), *_budgets(run, results)]
    except ModuleNotFoundError as error:
        say_error(f"no pictures: {error}")
        return []


def _training(run: Run) -> Iterator[str]:
    from pilotfish.evaluate.plot import plot_training

    trained = {"training.png": run, **{f"training-{stage.folder.name}.png": stage for stage in run.stages()}}
    for name, one in trained.items():
        if one.metrics.exists():
            with suppress(ValueError):  # what was stopped before its first step has nothing to draw
                plot_training(one.metrics, run.folder / name)
                yield name


def _budgets(run: Run, results: Sequence[Result]) -> Iterator[str]:
    from pilotfish.evaluate.budget_table import is_curve
    from pilotfish.evaluate.plot import plot_budget
    from pilotfish.evaluate.record import file_name

    for result in results:
        if is_curve(result.budgets):
            name = file_name(f"{result.benchmark}-budget", "png")
            plot_budget(result.budgets, run.folder / name)
            yield name
