"""A recipe that lays its fields over those of another one, its `base`."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from pilotfish.recipe import RecipeError
from pilotfish.recipe_file import load_recipe
from pilotfish.train.profile import TrainConfig

BASE = """
    name: under
    seed: 3
    tasks: {train: rows.jsonl, limit: 100}
    team:
      collaborator: {model: small, train: full, sampling: {temperature: 0, max_tokens: 32}}
      actor: {model: large}
    topology: hint
    train: {steps: 40, group_size: 16}
    collect: {sets: 4, drop_right: 0.5}
    evaluate: {benchmarks: [one.jsonl, two.jsonl], against: [solo]}
"""


def lay(folder: Path, over: str, under: str = BASE) -> Path:
    """Writes under/base.yaml, and beside its folder the recipe that is laid over it; returns the latter."""
    (folder / "under").mkdir(exist_ok=True)
    (folder / "under" / "base.yaml").write_text(dedent(under))
    (folder / "over.yaml").write_text("base: under/base.yaml\n" + dedent(over))
    return folder / "over.yaml"


def test_mappings_are_merged_key_by_key(tmp_path: Path) -> None:
    recipe = load_recipe(lay(tmp_path, "team: {collaborator: {sampling: {max_tokens: 8}}}\ntasks: {limit: 7}"))
    sampling = recipe.team["collaborator"].sampling
    assert (sampling.max_tokens, sampling.temperature) == (8, 0.0)
    assert list(recipe.team) == ["collaborator", "actor"]
    assert recipe.tasks
    assert (recipe.tasks.limit, recipe.tasks.train[0].source) == (7, "rows.jsonl")
    assert recipe.seed == 3


def test_lists_and_scalars_are_replaced(tmp_path: Path) -> None:
    recipe = load_recipe(lay(tmp_path, "seed: 4\nevaluate: {benchmarks: [three.jsonl]}"))
    assert [source.source for source in recipe.evaluate.benchmarks] == ["three.jsonl"]
    assert recipe.seed == 4


def test_a_string_takes_the_place_of_a_whole_mapping(tmp_path: Path) -> None:
    under = BASE.replace("topology: hint", "topology: {name: leader, options: {rounds: 2}}")
    recipe = load_recipe(lay(tmp_path, "topology: critic", under))
    assert (recipe.topology.name, recipe.topology.options) == ("critic", {})


def test_null_takes_a_mapping_away_and_its_default_holds(tmp_path: Path) -> None:
    over = "tasks: null\ntrain: null\nteam: {actor: null, collaborator: {sampling: {max_tokens: 8}}}\ntopology: solo"
    recipe = load_recipe(lay(tmp_path, over))
    assert recipe.tasks is None
    assert recipe.train == TrainConfig()
    assert list(recipe.team) == ["collaborator"]


def test_a_team_of_which_nobody_is_left_is_refused(tmp_path: Path) -> None:
    over = lay(tmp_path, "team: {actor: null, collaborator: null}\ntopology: solo")
    with pytest.raises(RecipeError, match=r"over\.yaml: recipe: team is \{\}: there is nobody to ask; seat"):
        load_recipe(over)


def test_null_in_the_place_of_a_value_is_the_value_null(tmp_path: Path) -> None:
    assert load_recipe(lay(tmp_path, "collect: {drop_right: null}")).collect.drop_right is None


def test_the_name_is_not_inherited(tmp_path: Path) -> None:
    assert load_recipe(lay(tmp_path, "seed: 4")).name == "run"
    assert load_recipe(lay(tmp_path, "name: over")).name == "over"


def test_a_base_may_have_a_base_each_relative_to_the_file_that_says_it(tmp_path: Path) -> None:
    file = lay(tmp_path, "train: {steps: 2}", "base: ../bottom/base.yaml\ntrain: {steps: 3, group_size: 8}")
    (tmp_path / "bottom").mkdir()
    (tmp_path / "bottom" / "base.yaml").write_text(dedent(BASE))
    recipe = load_recipe(file)
    assert isinstance(recipe.train, TrainConfig)
    assert (recipe.train.steps, recipe.train.group_size, recipe.topology.name) == (2, 8, "hint")


def test_settings_may_be_values_as_well_as_text(tmp_path: Path) -> None:
    given = {"seed": 5, "evaluate.benchmarks": ["one.jsonl"], "train.steps": "7", "collect.drop_right": None}
    recipe = load_recipe(lay(tmp_path, ""), given)
    assert (recipe.seed, recipe.train.steps, recipe.collect.drop_right) == (5, 7, None)
    assert [source.source for source in recipe.evaluate.benchmarks] == ["one.jsonl"]


def test_set_comes_after_the_base(tmp_path: Path) -> None:
    recipe = load_recipe(lay(tmp_path, "seed: 4"), {"seed": "9", "topology.options.actor": "collaborator"})
    assert recipe.seed == 9
    assert (recipe.topology.name, recipe.topology.options) == ("hint", {"actor": "collaborator"})


def test_the_stored_recipe_is_whole_without_its_base(tmp_path: Path) -> None:
    file = lay(tmp_path, "name: over\ntasks: {limit: 7}")
    recipe = load_recipe(file)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text(recipe.dump())
    (tmp_path / "under" / "base.yaml").unlink()
    assert load_recipe(tmp_path / "run") == recipe
    assert "base" not in yaml.safe_load(recipe.dump())


@pytest.mark.parametrize(
    ("base", "shown"), [("[a.yaml, b.yaml]", r"\['a.yaml', 'b.yaml'\]"), ("{a: b}", "a"), ("", "None")]
)
def test_a_base_that_is_no_text_is_refused_with_its_value(tmp_path: Path, base: str, shown: str) -> None:
    file = tmp_path / "over.yaml"
    file.write_text(f"base: {base}\n")
    with pytest.raises(RecipeError, match=rf"over\.yaml: base is .*{shown}.*; name one recipe"):
        load_recipe(file)


def test_a_missing_base_is_named_with_who_wants_it(tmp_path: Path) -> None:
    file = lay(tmp_path, "seed: 4")
    (tmp_path / "under" / "base.yaml").unlink()
    with pytest.raises(RecipeError, match=r"under/base\.yaml, the base of .*over\.yaml: no such file"):
        load_recipe(file)


def test_a_circle_of_bases_is_shown(tmp_path: Path) -> None:
    file = lay(tmp_path, "seed: 4", "base: ../over.yaml")
    with pytest.raises(
        RecipeError, match=r"circle: .*over\.yaml -> .*base\.yaml -> .*over\.yaml; take one of them out"
    ):
        load_recipe(file)


def test_a_recipe_that_is_its_own_base_is_a_circle(tmp_path: Path) -> None:
    (tmp_path / "self.yaml").write_text("base: self.yaml\n")
    with pytest.raises(RecipeError, match=r"circle: .*self\.yaml -> .*self\.yaml"):
        load_recipe(tmp_path / "self.yaml")


def test_a_wrong_field_of_the_base_is_an_error_of_the_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"over\.yaml: tasks\.limits: no such field"):
        load_recipe(lay(tmp_path, "seed: 4", BASE.replace("limit:", "limits:")))
