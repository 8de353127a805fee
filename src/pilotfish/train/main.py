"""`train`: a recipe in, a run with the best weights out. A killed run goes on where its record ends.

from pilotfish import load_recipe, train
run = train(load_recipe("recipes/quickstart.yaml"), "runs/quickstart")

In a launch of several processes (torchrun, accelerate) each of them calls it; docs/scaling.md says what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pilotfish.engine.adapter import adapter_in
from pilotfish.engine.meter import Meter
from pilotfish.processes import Processes, joined
from pilotfish.recipe import MemberConfig, Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.train.early_stop import check_patience
from pilotfish.train.learning import learn
from pilotfish.train.profile import SftConfig, TrainConfig, passes
from pilotfish.train.trackers import check_trackers
from pilotfish.workshop import Workshop

Told = Callable[[str, int, Mapping[str, float]], None]
"""Kind of news (`start` with the number of `steps`, `step`, `holdout`, `note: …`), step, figures."""


def train(
    recipe: Recipe,
    folder: Path | str,
    *,
    told: Told = lambda kind, step, figures: None,
    meter: Meter | None = None,
) -> Run:
    """Train a recipe's trainee, or go on with a run that was cut off.

    Args:
        recipe: what to train, on what, how; of one that has stages, each is trained in turn.
        folder: the run's folder; made, or resumed if it holds a run of the same recipe. A finished run stays as it is.
        told: called with news.
        meter: counts what is spent, for whoever shows it.

    Returns:
        The run; its `best` holds the weights that did best on the holdout, of the last stage where there are several.

    Raises:
        RecipeError: nothing to train, a tracker that is not there, a patience without a holdout, or a recipe or a
            launch that several processes cannot do.
        RunError: the folder belongs to another recipe, or is in use; or another process was lost.
        SystemExit: in one of several processes: another has failed, and said why.
        TooManyOutages: see `train.outages`.
    """
    if recipe.trainee is None:
        raise RecipeError(f"team: no member has `train`; give it to one of {', '.join(recipe.team)}")
    check_base(recipe.trainee, recipe.team[recipe.trainee])
    check_trackers(recipe)
    check_patience(recipe, Path(folder))
    with joined() as processes:
        check_division(recipe, processes.count)
        if not processes.main:
            processes.follow()
            return Run(folder)
        with Run(folder, recipe) as run:
            if run.state("finished"):
                told("note: this run is finished; nothing is done again", 0, {})
                return run
            if processes.sharded:
                told(f"note: the weights in training are divided among {processes.count} processes", 0, {})
            with Workshop(recipe, run, meter, processes) as workshop, workshop.seats.answerable():
                if recipe.stages:
                    from pilotfish.train.stages import train_stages

                    train_stages(recipe, run, workshop, told)
                else:
                    train_one(recipe, run, workshop, told)
            return run


def check_base(name: str, trainee: MemberConfig) -> None:
    """Make sure that training begins with whole weights: what it leaves is told from the base that they name.

    Raises:
        RecipeError: they are an adapter.
    """
    if adapter_in(trainee.model):
        raise RecipeError(
            f"team.{name}.model: {trainee.model} is an adapter, and training begins with whole weights; of a "
            "run `pilotfish export` without --adapter writes the sum"
        )


def check_division(recipe: Recipe, processes: int) -> None:
    """Make sure that so many processes can do what a recipe says, before the first of its stages begins.

    Raises:
        RecipeError: names what they cannot do, and the way out.
    """
    if processes == 1:
        return
    for config in (recipe.train, *recipe.stages.values()):
        if isinstance(config, TrainConfig):
            try:
                passes(config, processes)
            except ValueError as error:
                raise RecipeError(str(error)) from None


def train_one(recipe: Recipe, run: Run, workshop: Workshop, told: Told) -> None:
    """Train what `recipe.train` says, unless it is done: a finished stage of a run that goes on."""
    if run.state("finished"):
        told("note: this stage is finished; nothing is done again", 0, {})
    elif isinstance(recipe.train, SftConfig):
        _sft(recipe, recipe.train, run, workshop.processes, told)
    elif isinstance(recipe.train, TrainConfig):
        learn(recipe, recipe.train, run, workshop, told)
    else:
        from pilotfish.train.backtrack import backtrack

        backtrack(recipe, run, workshop, told)


def _sft(recipe: Recipe, config: SftConfig, run: Run, processes: Processes, told: Told) -> None:
    from pilotfish.lab.data import read_rows
    from pilotfish.train.fine_tune import fine_tune

    rows = read_rows(config.data, config.steps * config.batch, recipe.seed)
    metrics = fine_tune(
        recipe, config, run, processes, told, rows, config.batch, config.micro_batch, steps=config.steps
    )
    run.keep("finished", dict(metrics))
