"""Options that several commands have, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pilotfish.recipe import Recipe

Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field, e.g. team.actor.model=smollm2. Repeatable."),
]
RunFolder = Annotated[Path | None, typer.Option("--run", metavar="DIR", help="The run's folder.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show where an error was raised.")]


def settings(given: Sequence[str] | None, option: str = "--set") -> dict[str, str]:
    """`field=value` strings as a mapping.

    Raises:
        RecipeError: one of them has no `=` or no field.
    """
    from pilotfish.recipe import RecipeError

    parsed = {}
    for text in given or ():
        field, equals, value = text.partition("=")
        if not equals or not field.strip():
            raise RecipeError(f"{option} {text}: no field with a value; write {option} FIELD=VALUE")
        parsed[field.strip()] = value
    return parsed


def open_recipe(place: Path, folder: Path | None, given: Sequence[str] | None) -> tuple[Recipe, Path]:
    """A recipe and the folder of its run.

    Args:
        place: a recipe, or the folder of a run.
        folder: the run's folder where it was named; else the run itself, or runs/NAME after the recipe.
        given: overrides, `field=value`.

    Raises:
        RecipeError: see `load_recipe`.
    """
    from pilotfish.recipe_file import load_recipe

    recipe = load_recipe(place, settings(given))
    if folder is not None:
        return recipe, folder
    if place.is_dir():
        return recipe, place
    return recipe, Path("runs") / (recipe.name if "name" in recipe.model_fields_set else place.stem)
