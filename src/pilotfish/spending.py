"""What a run has spent, from its record: the meter, and with it `max_cost`, counts from there."""

from __future__ import annotations

from pilotfish.engine.meter import Meter
from pilotfish.episode import Journal
from pilotfish.recipe import Recipe


def set_meter(meter: Meter, recipe: Recipe, journal: Journal, processes: int = 1) -> None:
    """Let a meter go on from a run's record, up to its `max_cost`, or to this process's part of what that leaves."""
    meter.priced = any(member.price.paid for team in recipe.teams().values() for member in team.team.values())
    money, meter.tokens = spent(recipe, journal)
    meter.begin(recipe.max_cost, money, processes)


def spent(recipe: Recipe, journal: Journal) -> tuple[float, int]:
    """Money and tokens that a run has spent: all that it has asked, and not what an earlier run had answered for it."""
    prices = {name: {seat: member.price for seat, member in team.team.items()} for name, team in recipe.teams().items()}
    money, tokens = 0.0, 0
    for bill in journal.bills():
        if bill.asker and bill.member in recipe.team:
            money += bill.usage.cost(prices[_model(bill.asker, recipe)][bill.member])
            tokens += bill.usage.total
    return money, tokens


def _model(asker: str, recipe: Recipe) -> str:
    """For which of the recipe's teams an episode was played: the name of its arm begins with the team's."""
    return next((name for name in recipe.evaluate.models if f"|{arm_name(name, '')}" in asker), "")


def arm_name(model: str, arm: str) -> str:
    """What an arm is called that is played by a team of `evaluate.models`."""
    return f"{model}: {arm}" if model else arm
