"""A recipe's file: YAML in, laid over its `base`, with what `--set` overrides, and a `Recipe` out.

recipe = load_recipe("recipes/quickstart.yaml", {"seed": "1"})
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pilotfish.recipe import Recipe, RecipeError, parse_recipe


def load_recipe(path: Path | str, settings: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe, with overrides.

    Args:
        path: a YAML file, or the folder of a run (its `recipe.yaml`).
        settings: dotted field -> value, e.g. `{"team.actor.model": "smollm2", "seed": 1}`; text is read as YAML.

    Raises:
        RecipeError: no such file, not YAML, or a field that is wrong.
    """
    file = Path(path) / "recipe.yaml" if Path(path).is_dir() else Path(path)
    if file != Path(path) and not file.exists():
        raise RecipeError(f"{path}: holds no recipe.yaml, so it is no run; name a YAML file or a run's folder")
    data = _resolved(file, ())
    for field, value in (settings or {}).items():
        _set(data, field, value)
    return parse_recipe(data, str(file))


def _resolved(file: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """A file's fields, laid over those of its `base`, all but the base's name.

    Args:
        file: the recipe, or the base of one.
        above: the files that led to it, as resolved paths; the recipe itself first.

    Raises:
        RecipeError: a file that cannot be read, a base that is no text, or a circle of bases.
    """
    data = _read(file, f"{file}, the base of {above[-1]}" if above else str(file))
    if "base" not in data:
        return data
    base = data.pop("base")
    if not isinstance(base, str):
        raise RecipeError(f"{file}: base is {base!r}; name one recipe, relative to this file")
    chain = (*above, file.resolve())
    below = file.parent / base
    if below.resolve() in chain:
        circle = " -> ".join(str(one) for one in (*chain, below.resolve()))
        raise RecipeError(f"{file}: base goes round in a circle: {circle}; take one of them out")
    under = _resolved(below, chain)
    under.pop("name", None)
    return _laid_over(under, data)


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key, and null takes a mapping away; everything else is replaced."""
    merged = dict(under)
    for key, value in over.items():
        if isinstance(merged.get(key), dict) and isinstance(value, dict):
            merged[key] = _laid_over(merged[key], value)
        elif isinstance(merged.get(key), dict) and value is None:
            del merged[key]
        else:
            merged[key] = value
    return merged


def _read(file: Path, named: str) -> dict[str, Any]:
    """The mapping that a file holds; `named` is what errors call the file."""
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError as error:
        raise RecipeError(f"{named}: no such file; name a YAML file or a run's folder") from error
    except OSError as error:
        raise RecipeError(f"{named}: cannot be read ({error.strerror}); name a YAML file or a run's folder") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{named}: not UTF-8; save it as UTF-8") from error
    except yaml.YAMLError as error:
        raise RecipeError(f"{named}: not YAML: {error}") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{named}: not a recipe: a mapping with `team` and `topology` is expected")
    return data


class _Loader(yaml.SafeLoader):
    """YAML in which a key stands once: of two, the one further down would win unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [(self.construct_object(key, deep=True), key.start_mark) for key, _ in node.value]
        for at, (key, mark) in enumerate(keys):
            if key in [earlier for earlier, _ in keys[:at]]:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands here for the second time", mark)
        return super().construct_mapping(node, deep)


def _set(data: dict[str, Any], field: str, value: Any) -> None:
    *parents, last = field.split(".")
    place: Any = data
    for parent in parents:
        if isinstance(place.get(parent), str):  # a shorthand: `topology: hint`, `train: math8k`
            place[parent] = {"source" if parent == "train" and place is data.get("tasks") else "name": place[parent]}
        place = place.setdefault(parent, {})
        if isinstance(place, list) and len(place) == 1:  # of one source: `tasks.train.limit`
            place = place[0]
        if not isinstance(place, dict):
            raise RecipeError(f"--set {field}: {parent} is not a mapping in this recipe; give all of it at once")
    try:
        place[last] = yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError as error:
        raise RecipeError(f"--set {field}={value}: not a YAML value") from error
