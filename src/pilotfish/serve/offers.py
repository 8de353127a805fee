"""What a run offers as models: the team, the trainee alone, the actor alone, and each member.

offers = offers_of(recipe, run, seats)
offers["team"].topology.label, offers["team"].trained
"""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.engine.base import Engine
from pilotfish.episode import Team
from pilotfish.evaluate.arms import answering
from pilotfish.outcome import outcomes
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.topology import Topology, alone, solo


@dataclass(frozen=True)
class Offer:
    """A model as clients name it: a topology and who plays it."""

    name: str
    topology: Topology
    team: Team
    trained: bool = False
    """Whether weights that training has changed speak in it."""


def offers_of(recipe: Recipe, run: Run, seats: Seats) -> dict[str, Offer]:
    """The models by name. `team`, `alone` and `actor` come before a member of that name.

    Args:
        recipe: the run's, or with settings that its training did not have.
        run: its best weights sit in the trainee's seat, where there are any.
        seats: of the recipe; what is in process is loaded.
    """
    engines = seats.frozen()
    seated = has_weights(recipe, run)
    trained = seated and all(one.trained for one in outcomes(run)[-1:])
    if recipe.trainee is not None:
        engines[recipe.trainee] = _trainee(recipe, run, seats, seated)
    seats.start_servers()
    team = Team(recipe.members(), engines)
    played = {"team": recipe.topology.load(), **_unaided(recipe)}
    return {
        name: Offer(name, topology, team, trained and (name == "team" or recipe.trainee in answering(topology)))
        for name, topology in played.items()
    }


def has_weights(recipe: Recipe, run: Run) -> bool:
    """Whether the run has weights for the recipe's trainee; those of another model are not seated on this one."""
    if recipe.trainee is None or recipe.trainee not in run.recipe.team or not run.best.exists():
        return False
    return recipe.team[recipe.trainee].deployment == run.recipe.team[recipe.trainee].deployment


def _trainee(recipe: Recipe, run: Run, seats: Seats, seated: bool) -> Engine:
    return seats.trained(run.best, run.best_version) if seated else seats.engine(recipe.trainee or "")


def _unaided(recipe: Recipe) -> dict[str, Topology]:
    """Who is offered without the team."""
    by_itself = next((one.load() for one in recipe.evaluate.against if one.name == solo.name), solo)
    seated = [name for name in recipe.team if name not in recipe.judges]
    single = {name: by_itself.bind(member=name) for name in seated}
    named = {}
    if recipe.trainee is not None:
        leads = recipe.topology.load().form == alone.form
        named["alone"] = alone.bind(member=recipe.trainee) if leads else single[recipe.trainee]
    if actor := _actor(recipe, seated):
        named["actor"] = single[actor]
    return {**single, **named}


def _actor(recipe: Recipe, seated: list[str]) -> str | None:
    """The frozen member that answers in the recipe's topology; where the trainee does, the first frozen one."""
    frozen = [name for name in seated if name != recipe.trainee]
    answers = [name for name in answering(recipe.topology.load()) if name in frozen]
    return next(iter((*answers, *frozen)), None)
