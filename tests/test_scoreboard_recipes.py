"""The recipes of the tables and the scoreboard: their commands are commands, and every method they name is played.

No model: all seats are scripted.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from claims import scripted
from pilotfish import Task
from pilotfish.cli import app
from pilotfish.cli.options import open_recipe
from pilotfish.preflight.stages import stages_of
from pilotfish.recipe import Recipe
from pilotfish.recipe_file import load_recipe

ROOT = Path(__file__).parent.parent
AGENTPO = ("table1", "table2", "cost", "roles-llama-3.2-3b", "debate-llama-3.2-3b")
FILES = [
    "recipes/ci/scoreboard.yaml",
    "recipes/mlpo/table.yaml",
    *(f"recipes/agentpo/{name}.yaml" for name in AGENTPO),
]
TASKS = [Task("a", "What is 2 + 2?", "4"), Task("b", "What is 3 + 3?", "6")]


def commands(file: str) -> list[list[str]]:
    """The commands in a recipe's header, each as its words without `pilotfish`."""
    header = "".join(re.findall(r"^#.*\n", (ROOT / file).read_text(), re.MULTILINE))
    joined = re.sub(r" \\\n#\s*", " ", header)
    return [shlex.split(line)[2:] for line in joined.splitlines() if re.match(r"#\s+pilotfish ", line)]


COMMANDS = [(file, words) for file in FILES for words in commands(file)]


def opened(words: list[str]) -> Recipe:
    """The recipe of a command, read as the command line reads it."""
    group = typer.main.get_command(app)
    command = group.get_command(None, words[0])  # type: ignore[attr-defined, arg-type]
    given = command.make_context(words[0], words[1:]).params
    return open_recipe(Path(words[1]), given["run"], given["set"])[0]


@pytest.mark.parametrize("tasks", [184, 7372])
def test_zero_shot_grpo_takes_as_many_steps_as_what_it_is_compared_with(tasks: int) -> None:
    both, alone = (
        sum(stage.steps(tasks) for stage in stages_of(load_recipe(ROOT / f"recipes/mlpo/{name}.yaml")))
        for name in ("table", "zero-shot-grpo")
    )
    assert both - 12 <= alone <= both


@pytest.mark.parametrize("file", FILES)
def test_a_recipe_tells_how_it_is_run(file: str) -> None:
    assert commands(file)


@pytest.mark.parametrize(("file", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_a_command_of_a_header_is_understood(file: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if words[1].startswith("runs/"):
        assert words[1] == f"runs/{load_recipe(file).name}", "the run that the recipe's own training makes"
    else:
        assert words[1] == file
        opened(words)


SMALL = [(file, words) for file, words in COMMANDS if any("smollm2" in word for word in words)]


def test_every_table_can_be_had_in_small() -> None:
    tables = {file for file in FILES if "table" in file or "cost" in file}
    assert {file for file, _ in SMALL} == tables


@pytest.mark.parametrize(("file", "words"), SMALL, ids=[file for file, _ in SMALL])
def test_in_small_nothing_is_read_from_outside(file: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    recipe = opened(words)
    assert {member.model for member in recipe.team.values()} == {"smollm2"}
    assert all((ROOT / source.source).is_file() for source in recipe.evaluate.benchmarks)
    assert not recipe.evaluate.models


@pytest.mark.parametrize("file", FILES)
def test_every_method_of_a_recipe_is_played(file: str, tmp_path: Path) -> None:
    recipe = load_recipe(ROOT / file)
    made, result = scripted(recipe, TASKS, "<think>Well.</think><answer>4</answer>", tmp_path)
    assert result.attribution
    assert len({one.arm.name for one in made}) == len(made)
    assert len(made) > len(recipe.evaluate.against)
    assert [one.arm.name for one in made for episode in one.first if episode.verdict.reward is None] == []


def test_the_scoreboard_has_eight_methods_and_two_benchmarks_that_need_no_network() -> None:
    recipe = load_recipe(ROOT / "recipes/ci/scoreboard.yaml")
    assert len({recipe.topology.name, *(other.name for other in recipe.evaluate.against)}) >= 8
    assert len(recipe.evaluate.benchmarks) >= 2
    assert {source.kind for source in recipe.evaluate.benchmarks} == {"file", "gym"}
