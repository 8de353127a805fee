"""What may be told of a place outside this machine: a hub name, of a path its last part, of an address nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pilotfish.recipe import Recipe

EMBEDDED = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""What `smollm2` is called on the hub."""
ADDRESS = "https://HOST/v1"
"""Stands where an address was."""


def public(model: str) -> str:
    """A model's name without the folders of this machine."""
    if model == "smollm2":
        return EMBEDDED
    return model if on_hub(model) else Path(model).name


def described(model: str) -> str:
    """A model in a sentence."""
    return public(model) if model == "smollm2" or on_hub(model) else f"the local model `{public(model)}`"


def on_hub(model: str) -> bool:
    """Whether a name is OWNER/NAME, and no folder or file here."""
    if model.count("/") != 1 or model.startswith((".", "~")) or model.endswith(".gguf"):
        return False
    return not Path(model).exists()


def public_recipe(recipe: Recipe) -> Recipe:
    """The recipe with nothing in its team and topology that names a machine."""
    team = {
        name: member.model_copy(
            update={"model": public(member.model), "base_url": ADDRESS if member.addresses else None}
        )
        for name, member in recipe.team.items()
    }
    topology, *mix = (
        config.model_copy(update={"name": Path(config.name).name, "options": public_value(config.options)})
        for config in (recipe.topology, *recipe.mix)
    )
    return recipe.model_copy(update={"team": team, "topology": topology, "mix": tuple(mix)})


def public_value(value: Any) -> Any:
    """Plain data with each path in it cut down to its last part."""
    if isinstance(value, dict):
        return {key: public_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [public_value(part) for part in value]
    return Path(value).name if isinstance(value, str) and _is_place(value) else value


def _is_place(text: str) -> bool:
    return "\n" not in text and (text.startswith(("/", "~", "./", "../")) or ("/" in text and Path(text).exists()))
