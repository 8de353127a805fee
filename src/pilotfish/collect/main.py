"""`collect`: ask the agents now, so that training asks nobody. What a killed process collected is not asked again.

    from pilotfish import collect, load_recipe
    print(collect(load_recipe("recipes/mlpo/ci.yaml"), "runs/ci"))
    collect(recipe, "runs/ci", rounds=(1, 2), leader="runs/trained")      # MLPO+: answers that a leader has shaped

The answers go into the run's journal, under the very keys that training looks them up by.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pilotfish.collect.collected import Collected
from pilotfish.collect.imported import import_in
from pilotfish.collect.manifest import Leader
from pilotfish.collect.sets import Collector, Prefix, Told, Unasked
from pilotfish.collect.store import Store
from pilotfish.engine.base import Engine
from pilotfish.engine.meter import Meter
from pilotfish.episode import Team
from pilotfish.recipe import MemberConfig, Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.workshop import Workshop


def collect(
    recipe: Recipe,
    folder: Path | str,
    *,
    rounds: Iterable[int] = (0,),
    leader: Path | str | None = None,
    answers: Path | str | None = None,
    told: Told = lambda kind, step, figures: None,
    meter: Meter | None = None,
) -> Collected:
    """Record the agents' answers to a recipe's training tasks, or go on where an earlier call was cut off.

    Args:
        recipe: whose team answers, on which tasks, in how many sets.
        folder: the run's folder; made if missing.
        rounds: which answers: 0 the agents' own, 1 and up those that a leader has shaped.
        leader: with rounds above 0, a run's folder whose best weights lead; the recipe's trainee when not given.
        answers: a file that `collect.exchange.export` has written, to read from in place of asking.
        told: called with news.
        meter: counts what is spent, for whoever shows it.

    Returns:
        The figures of all that is collected of these rounds.

    Raises:
        RecipeError: nothing can be collected, or the answers here or in the file are of another recipe.
        RunError: the folder belongs to another recipe, or is in use.
        TooManyOutages: too many sets without an answer; the same call goes on from there.
    """
    wanted = _checked(recipe, rounds)
    if leader is not None and (wanted == (0,) or answers is not None):
        why = "a file names its own leader" if answers is not None else "nobody leads in round 0; add --rounds 1,2"
        raise RecipeError(f"collect: leader is {str(leader)!r}, and {why}")
    with Run(folder, recipe) as run, Workshop(recipe, run, meter) as workshop:
        if answers is not None:
            tasks, store = run.curriculum(told).train, Store(run.folder)
            import_in(recipe, workshop, store, tasks, Path(answers), wanted, told)
            return _said(Collected.of(store, tasks, wanted), told)
        if leader is None:
            return collect_in(recipe, run, workshop, wanted, told=told, again=True)
        led = Run(leader)
        base = _leading(recipe, led)
        workshop.seats.move_to(_seating(recipe, base))
        engine = workshop.seats.trained(led.best, led.best_step or 0)
        named = _seating(recipe, base.model_copy(update={"model": str(led.best), "revision": None}))
        return collect_in(named, run, workshop, wanted, told=told, leader=engine, again=True)


def collect_in(
    recipe: Recipe,
    run: Run,
    workshop: Workshop,
    rounds: Iterable[int],
    *,
    told: Told,
    leader: Engine | None = None,
    leading: str = "",
    again: bool = False,
) -> Collected:
    """Collect in a workshop that is open: a stage of a recipe that has several.

    Args:
        recipe: of the stage: its trainee has the weights as they are by now.
        run: the whole run.
        workshop: of that run.
        rounds: see `collect`.
        told: called with news.
        leader: who leads in rounds above 0; the recipe's trainee when not given.
        leading: names the trainee's weights where a stage has trained them; else its model does.
        again: also ask once more who was absent; otherwise what is finished stays as it is.
    """
    wanted = _checked(recipe, rounds)
    tasks, store = run.curriculum(told).train, Store(run.folder)
    weights = leading or _weights(recipe.team[recipe.trainee or ""])
    sampling = recipe.members(training=True)[recipe.trainee or ""].sampling
    known = store.led_by(weights, sampling) if wanted[-1] and leader is None else None
    if not again and set(wanted) <= store.whole(known):
        store.begin(recipe, tasks, known)
        told("note: these answers are collected; nobody is asked again", 0, {})
        return Collected.of(store, tasks, wanted)
    if recipe.collect.answers:
        if 0 not in store.rounds:
            import_in(recipe, workshop, store, tasks, recipe.collect.answers, (0,), told)
        if wanted == (0,):
            return _said(Collected.of(store, tasks, wanted), told)
    earlier = (leader or workshop.seats.engine(recipe.trainee or "")) if wanted[-1] else None
    by = Leader(model=weights, identity=earlier.identity or weights, sampling=sampling) if earlier else None
    store.begin(recipe, tasks, by)
    for warning in _greedy(recipe):
        told(f"note: {warning}", 0, {})
    engines = {**workshop.seats.frozen(), recipe.trainee or "": Unasked()}
    team = Team(recipe.members(training=True), engines, earlier)
    prefix = Prefix(recipe.topology.load(), wanted, by, recipe.seed)
    collector = Collector(recipe, workshop, prefix, lambda task, set: team, tasks, store, told)
    workshop.play(collector.collect())
    return _said(Collected.of(store, tasks, wanted), told)


def _checked(recipe: Recipe, rounds: Iterable[int]) -> tuple[int, ...]:
    """The rounds in order.

    Raises:
        RecipeError: there are none, nobody is trained on them, or they would be of several topologies.
    """
    wanted = tuple(sorted(set(rounds)))
    if recipe.mix:
        others = ", ".join(topology.label for topology in recipe.topologies()[1:])
        raise RecipeError(f"mix: answers are stored for one topology, and with it stands {others}; leave mix out")
    if not wanted or wanted[0] < 0:
        raise RecipeError(f"collect: rounds is {list(wanted)}; name 0 for the agents' own answers, 1 and up for more")
    if recipe.trainee is None:
        raise RecipeError(
            f"team: no member has `train`: there is nothing to collect for; give it to one of {', '.join(recipe.team)}"
        )
    return wanted


def _said(collected: Collected, told: Told) -> Collected:
    if collected.unusable:
        told(f"note: {collected.listed()}", 0, {})
    return collected


def _weights(member: MemberConfig) -> str:
    return f"{member.model}@{member.revision}" if member.revision else member.model


def _greedy(recipe: Recipe) -> list[str]:
    sets = recipe.collect.sets
    return [
        f"agent {name} is sampled at temperature 0: its {sets} sets are one; set team.{name}.sampling.temperature"
        for name, member in recipe.team.items()
        if sets > 1 and not member.train and member.sampling.temperature == 0 and name not in recipe.judges
    ]


def _leading(recipe: Recipe, led: Run) -> MemberConfig:
    """The member that a run has trained, sampled as this recipe samples its own."""
    if led.recipe.trainee is None or not led.best.exists():
        raise RecipeError(f"{led.folder}: has no trained weights to lead; train it first, or name another --leader")
    sampling = recipe.team[recipe.trainee or ""].sampling
    return led.recipe.team[led.recipe.trainee].model_copy(update={"sampling": sampling})


def _seating(recipe: Recipe, member: MemberConfig) -> Recipe:
    """The recipe with another trainee."""
    team = {name: member if name == recipe.trainee else other for name, other in recipe.team.items()}
    return recipe.model_copy(update={"team": team})
