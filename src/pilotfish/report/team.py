"""Who sat in the team: a figure of the report, from the run's recipe."""

from __future__ import annotations

from pilotfish.recipe import Recipe
from pilotfish.report.figure import Figure, number, tabled, text


def seated(recipe: Recipe) -> Figure:
    """The recipe's own team; addresses and keys are nobody's business."""
    rows = [
        {
            "member": name,
            "model": member.model,
            "revision": member.revision,
            "engine": member.engine,
            "trainee": "trainee" if member.train else "",
            "temperature": member.sampling.temperature,
            "max_tokens": member.sampling.max_tokens,
            "price_input": member.price.input,
            "price_output": member.price.output,
        }
        for name, member in recipe.team.items()
    ]
    columns = {
        "member": text("member"),
        "model": text("model"),
        "trained": text("trainee"),
        "temperature": number("temperature"),
        "most tokens": number("max_tokens"),
        "price in": number("price_input", zero=False),
        "price out": number("price_output", zero=False),
    }
    note = f"Topology {recipe.topology.name}. Prices are for a million tokens."
    return tabled("team", "Team", rows, columns, names=3, note=note)
