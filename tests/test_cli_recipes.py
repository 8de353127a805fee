"""docs/recipes.md holds every field of a recipe, and every recipe in recipes/ can be read.

The tables of the page are made from the models. After a change: .venv/bin/python tests/test_cli_recipes.py
"""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pilotfish.member import VllmConfig
from pilotfish.recipe import (
    CollectConfig,
    EvaluateConfig,
    LoraConfig,
    MemberConfig,
    Recipe,
    RecipeError,
    TasksConfig,
    TopologyConfig,
    parse_recipe,
)
from pilotfish.recipe_file import load_recipe
from pilotfish.serve.config import ServeConfig
from pilotfish.source import TaskSource
from pilotfish.team import Price, Sampling
from pilotfish.train.profile import PROFILES, BacktrackConfig, CollectStage, RewardConfig, SftConfig, TrainConfig
from pilotfish.verifier import JudgeConfig, RewardModelConfig

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "recipes.md"
MARK = "<!-- The tables below are made by tests/test_cli_recipes.py from the models. -->"

SECTIONS: dict[str, type[BaseModel]] = {
    "Recipe": Recipe,
    "tasks": TasksConfig,
    "A source of tasks": TaskSource,
    "verifier: judge": JudgeConfig,
    "verifier: reward_model": RewardModelConfig,
    "team.MEMBER": MemberConfig,
    "team.MEMBER.train, a LoRA": LoraConfig,
    "team.MEMBER.sampling": Sampling,
    "team.MEMBER.price": Price,
    "team.MEMBER.vllm": VllmConfig,
    "topology": TopologyConfig,
    "train, method grpo": TrainConfig,
    "train.reward": RewardConfig,
    "train, method sft": SftConfig,
    "train, method backtrack": BacktrackConfig,
    "stages.NAME, method collect": CollectStage,
    "collect": CollectConfig,
    "evaluate": EvaluateConfig,
    "serve": ServeConfig,
}
NAMES = {model: title for title, model in SECTIONS.items()}
PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", Any: "anything"}


def tables() -> str:
    """All fields, as Markdown."""
    return "\n".join([*(section(title, model) for title, model in SECTIONS.items()), profiles()])


def section(title: str, model: type[BaseModel]) -> str:
    about = " ".join((model.__doc__ or "").split())
    head = [f"## {title}", "", about, "", "| field | takes | default | |", "|:---|:---|:---|:---|"]
    return "\n".join([*head, *(line(name, field) for name, field in model.model_fields.items()), ""])


def line(name: str, field: FieldInfo) -> str:
    cells = (f"`{name}`", kind(field.annotation), default(field), " ".join((field.description or "").split()))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def kind(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(kind(part) for part in parts if part is not type(None))
    if origin is tuple:
        return f"list of {kind(parts[0])}"
    if origin is dict:
        return f"mapping to {kind(parts[1])}"
    return PLAIN.get(annotation) or f"[{NAMES[annotation]}](#{anchor(NAMES[annotation])})"


def anchor(title: str) -> str:
    return "".join(char for char in title.lower().replace(" ", "-") if char.isalnum() or char in "-_")


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}):
        return "–"
    if isinstance(value, tuple):
        value = [getattr(part, "name", part) for part in value]
        return f"`[{', '.join(map(str, value))}]`"
    if isinstance(value, BaseModel):
        if value == type(value)():
            return "see there"
        changed = value.model_dump(exclude_unset=True)
        return f"`{{{', '.join(f'{name}: {part}' for name, part in changed.items())}}}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def profiles() -> str:
    names = list(PROFILES)
    head = ["## Profiles of the loss", "", "What `train.profile` puts into fields that are left out.", ""]
    rows = [f"| field | {' | '.join(f'`{name}`' for name in names)} |", f"|:---|{':---|' * len(names)}"]
    values = {field: [PROFILES[name][field] for name in names] for field in PROFILES[names[0]]}
    fields = [
        f"| `{field}` | {' | '.join('none' if value is None else str(value) for value in row)} |"
        for field, row in values.items()
    ]
    return "\n".join([*head, *rows, *fields, ""])


def test_the_page_holds_every_field_as_the_models_have_it() -> None:
    written = PAGE.read_text().partition(MARK)[2].strip()
    assert written == tables().strip(), "docs/recipes.md is stale; run .venv/bin/python tests/test_cli_recipes.py"


@pytest.mark.parametrize("model", SECTIONS.values(), ids=SECTIONS.keys())
def test_every_field_says_what_it_is(model: type[BaseModel]) -> None:
    silent = [name for name, field in model.model_fields.items() if not field.description]
    assert silent == []


@pytest.mark.parametrize("model", SECTIONS.values(), ids=SECTIONS.keys())
def test_no_number_is_infinite_but_the_length_at_which_gradients_are_cut(model: type[BaseModel]) -> None:
    for name in (name for name, field in model.model_fields.items() if "number" in kind(field.annotation).split()):
        try:
            model.model_validate({name: math.inf})
            refused = False
        except ValidationError as error:
            refused = name in [part["loc"][0] for part in error.errors() if part["loc"]]
        assert refused == (name != "max_grad_norm"), name


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_cost": "yes"}, "max_cost: a number is expected, and YAML reads this as true"),
        ({"team.actor.sampling.max_tokens": "on"}, r"sampling\.max_tokens: a number is expected, .* as true"),
        ({"team.actor.revision": "1.10"}, r"revision: Input should be a valid string \(got 1\.1\); put it in quotes"),
    ],
)
def test_what_yaml_reads_as_another_kind_is_told(settings: dict[str, str], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        load_recipe(ROOT / "recipes/quickstart.yaml", settings)


def test_an_infinite_number_is_named() -> None:
    seat = {"model": "m", "price": {"input": math.inf}}
    with pytest.raises(RecipeError, match=r"^recipe: team\.actor\.price\.input: .* finite number \(got inf\)$"):
        parse_recipe({"team": {"actor": seat}, "topology": "solo"})


@pytest.mark.parametrize(
    "file", sorted(ROOT.glob("recipes/**/*.yaml")), ids=lambda file: f"{file.parent.name}/{file.stem}"
)
def test_every_recipe_can_be_read_and_read_again_as_it_is_recorded(file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(file)
    (tmp_path / "recipe.yaml").write_text(recipe.dump())
    assert load_recipe(tmp_path) == recipe


@pytest.mark.parametrize("file", sorted(ROOT.glob("recipes/agentpo/*-*.yaml")), ids=lambda file: file.stem)
def test_an_agentpo_recipe_has_the_values_of_its_source(file: Path) -> None:
    recipe = load_recipe(file, {"train.profile": "paper"})
    actor, collaborator = recipe.team["actor"].sampling, recipe.team["collaborator"].sampling
    assert recipe.name == file.stem
    assert recipe.topology.name == file.stem.split("-")[0]
    assert recipe.trainee == "collaborator"
    assert isinstance(recipe.train, TrainConfig)
    assert (recipe.train.group_size, recipe.train.tasks_per_step, recipe.train.learning_rate) == (16, 12, 1e-6)
    assert recipe.train.beta > 0
    assert (collaborator.max_tokens, actor.max_tokens, actor.temperature) == (768, 2048, 0.0)
    assert len(recipe.evaluate.benchmarks) == 5


def main() -> None:
    """Write the tables into the page, below its own words."""
    words = PAGE.read_text().partition(MARK)[0].rstrip()
    PAGE.write_text(f"{words}\n\n{MARK}\n\n{tables().strip()}\n")


if __name__ == "__main__":
    main()


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "twice.yaml"
    file.write_text("team: {actor: {model: m}}\ntopology: solo\ntopology: hint\n")
    with pytest.raises(RecipeError, match=r"(?s)'topology' stands here for the second time.*line 3"):
        load_recipe(file)
