"""Which models sat in an evaluation: kept in the run as they are seated, compared where only its record is measured.

keep_seated(run, "big", recipe, seats)          # before a team plays
sitting = Sitting.of(run, "big", recipe)
sitting.spoke(turn)                             # whether the model that the recipe names said this
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pilotfish.engine.base import Engine
from pilotfish.episode import Turn
from pilotfish.episode.calls import deterministic, identity_in, put_in
from pilotfish.recipe import Recipe
from pilotfish.run import Run

NAME = "seated"
"""State of the run: by team and member, a `Seat`."""


@dataclass(frozen=True)
class Seat:
    """Who sat behind a member."""

    deployment: str
    """The model's declared name, revision and form. Of the run's own team as it was first: no other may follow it,
    and the keys of its calls do not name it."""
    identity: str | None
    """The engine's, where keys name it: at temperature 0, but for the trainee's, and of what differs from the run's own
    team."""


def keep_seated(run: Run, model: str, recipe: Recipe, engine: Callable[[str], Engine]) -> None:
    """Remember who sits behind the members of a team.

    Args:
        run: that is evaluated.
        model: a name in `evaluate.models`; empty for the recipe's own team.
        recipe: with its own team.
        engine: a member's; the trainee's with its weights before training.
    """
    team, kept = recipe.teams()[model], run.state(NAME)
    before, seats = _seats(kept, model), {}
    for name, member in team.team.items():
        sat = before[name].deployment if name in before and not model else member.deployment
        if sat != member.deployment and member.sampling.temperature > 0:
            warnings.warn(
                f"{name} was {sat} when this run was evaluated before, and is {member.deployment} now: above "
                "temperature 0 what is recorded is taken for its own; to ask anew, choose another folder with --run",
                stacklevel=1,  # from here, so that it is told once
            )
        cold = member.sampling.temperature == 0
        greedy = cold and not member.train  # the trainee speaks with several weights
        named = greedy or member.deployment != recipe.team[name].deployment
        first = before.get(name) if not model and not (cold and name in recipe.judges) else None
        identity = engine(name).identity if named else None
        seats[name] = asdict(Seat(first.deployment if first else member.deployment, identity))
    if seats != kept.get(model):
        run.keep(NAME, {**kept, model: seats})


def _seats(kept: Mapping[str, Any], model: str) -> dict[str, Seat]:
    return {name: Seat(**seat) for name, seat in kept.get(model, {}).items()}


@dataclass(frozen=True)
class Sitting:
    """Who sat behind a team's members when it was last played, and who the recipe says does."""

    seats: Mapping[str, Seat]
    """Empty in runs that were evaluated before this was kept."""
    named: Mapping[str, str]
    """Deployments, by member."""

    @classmethod
    def of(cls, run: Run, model: str, recipe: Recipe) -> Sitting:
        """Args as for `keep_seated`."""
        team = recipe.teams()[model].team
        return cls(_seats(run.state(NAME), model), {name: member.deployment for name, member in team.items()})

    def identity(self, name: str) -> str | None:
        """The identity of a member's engine; None where it is not known."""
        return self.seats[name].identity if name in self.seats else None

    def spoke(self, turn: Turn, key: str | None = None) -> bool:
        """Whether the model that the recipe names has taken a turn, as far as it is known.

        Args:
            turn: from the record.
            key: of the same call as this team makes it, where it was made again.
        """
        seat = self.seats.get(turn.member)
        if seat is None or put_in(turn.scope):
            return True
        if seat.deployment != self.named[turn.member]:
            return False
        if deterministic(turn.scope):
            return seat.identity is None or identity_in(turn.scope) == seat.identity
        return key is None or key == turn.key
