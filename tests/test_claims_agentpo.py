"""The claims of AgentPO: the script trains what a table measures before it makes it, and the recipes agree with it."""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

import claims
from claims import ROOT, laid, opened, scripted
from pilotfish import Task
from pilotfish.recipe import Recipe
from pilotfish.recipe_file import load_recipe

SCRIPT = ROOT / "recipes/h200/agentpo.sh"
RECIPES = sorted(ROOT.glob("recipes/h200/agentpo-*.yaml"))
BLOCKS = tuple(re.findall(r"^order=\((.*)\)$", SCRIPT.read_text(), re.MULTILINE)[0].split())
FAKE = """#!/usr/bin/env bash
case "$*" in *$FAILS*) exit 1 ;; esac
if [[ $1 == -m ]]; then mkdir -p "$5" && touch "$5/config.json" && exit; fi
echo "$@" >>calls
mkdir -p "$4/checkpoints"
[[ $1 == train ]] || touch "$4/scores.jsonl" "$4/results.md"
"""
"""Stands in for `pilotfish COMMAND RECIPE --run DIR …` and for `python -m pilotfish.lab.shallow MODEL LAYERS DIR`."""
CLAIMS = (
    *("hint", "critic", "against-grpo", "untrained", "cost", "samples"),
    *("transfer", "debate", "roles", "size", "strength-50", "strength-abler"),
)
"""Recipes whose header says a claim."""
STRENGTHS = {
    **{str(steps): (f"h200/agentpo-actor-{steps}", steps) for steps in (50, 100, 400)},
    "200": ("lab/actor", 200),
    "abler": ("lab/abler-actor", 200),
}
"""For each actor of the blocks `strength` and `abler`: its recipe, and its steps."""


called = partial(claims.called, "agentpo.sh")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the recipes and a command that only writes down how it was called."""
    return laid(tmp_path, FAKE)


def measured_weights(recipe: Recipe) -> list[str]:
    """The folders of runs that an evaluation takes weights from."""
    teams = [member.model for team in recipe.teams().values() for member in team.team.values()]
    models = [model.removesuffix("/best") for model in teams if model.startswith("runs/")]
    return [*models, *map(str, recipe.evaluate.weights.values()), *map(str, recipe.evaluate.seeds)]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_alone_trains_what_its_tables_measure_before_it_makes_them(project: Path, block: str) -> None:
    there: set[str] = {"runs/smollm2-15-layers"}
    tables = 0
    for call in called(project, block):
        command, run, recipe = opened(call)
        assert set(measured_weights(recipe) if command == "eval" else models_of(recipe)) <= there, call
        assert command == "eval" or run not in there, f"{run} is trained twice"
        tables += command == "eval"
        there.add(run)
    assert tables


def models_of(recipe: Recipe) -> list[str]:
    """The folders that a training starts from."""
    models = (member.model for member in recipe.team.values())
    return [model.removesuffix("/best") for model in models if model.startswith("runs/")]


def test_every_recipe_of_a_claim_is_run_by_the_script(project: Path) -> None:
    calls = called(project)
    run = {call.split()[1] for call in calls}
    assert {str(file.relative_to(ROOT)) for file in RECIPES} <= run
    assert not list(project.glob("runs/*/checkpoints/*"))


def test_of_one_seed_all_is_of_that_seed(project: Path) -> None:
    seeded = [(call, *opened(call)) for call in called(project, "grpo", "samples-seeds") if "--set seed=" in call]
    assert {recipe.seed for *_, recipe in seeded} == {1, 2}
    for call, command, run, recipe in seeded:
        assert run.endswith(f"-{recipe.seed}")
        if command == "eval":
            of_runs = [place for place in measured_weights(recipe) if place.startswith("runs/h200-")]
            assert all(place.endswith(f"-{recipe.seed}") for place in of_runs), call


@pytest.mark.parametrize(
    ("blocks", "table"),
    [("hint", "hint"), ("grpo", "against-grpo"), ("samples-seeds", "samples"), ("samples samples-seeds", "samples")],
)
def test_the_last_table_is_over_all_seeds(project: Path, blocks: str, table: str) -> None:
    run = f"runs/h200-agentpo-{table}"
    made = [opened(call) for call in called(project, *blocks.split()) if call.startswith("eval")]
    recipe = [recipe for _, folder, recipe in made if folder == run][-1]
    assert list(map(str, recipe.evaluate.seeds)) == [f"{run}-1", f"{run}-2"]


def test_what_is_done_is_passed_by_and_a_table_over_more_seeds_is_made_anew(project: Path) -> None:
    assert called(project, "samples")
    assert called(project, "samples") == []
    again = [call.split()[3] for call in called(project, "samples-seeds") if call.startswith("eval")]
    assert sorted(again) == [f"runs/h200-agentpo-samples{seed}" for seed in ("", "-1", "-2")]
    assert called(project, "samples-seeds") == []


def test_what_fails_leaves_the_rest_alone_and_gets_no_table(project: Path) -> None:
    calls = called(project, "strength", fails="train recipes/h200/agentpo-strength-100", code=1)
    runs = {(call.split()[0], call.split()[3].rpartition("-")[2]) for call in calls}
    assert {("train", "50"), ("eval", "50"), ("train", "400"), ("eval", "400")} <= runs
    assert ("eval", "100") not in {(command, run) for command, run in runs if command == "eval"}
    later = {tuple(call.split()[:2]) for call in called(project, "strength")}
    file = "recipes/h200/agentpo-strength-100.yaml"
    assert later == {("train", file), ("eval", file)}


def test_an_unknown_block_is_refused(project: Path) -> None:
    assert called(project, "hints", code=2) == []


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_tells_how_it_is_run(claim: str) -> None:
    text = (ROOT / f"recipes/h200/agentpo-{claim}.yaml").read_text()
    assert text.startswith("# Claim")
    block = re.search(r"recipes/h200/agentpo\.sh ([a-z-]+) ", text)
    assert block
    assert block[1] in BLOCKS
    for file in re.findall(r"pilotfish (?:train|eval) +(\S+)", text):
        load_recipe(ROOT / file)
    assert f"agentpo-{claim}.yaml" in text
    assert "# The paper's models: " in text


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_method_of_a_claim_is_played(claim: str, tmp_path: Path) -> None:
    recipe = load_recipe(ROOT / f"recipes/h200/agentpo-{claim}.yaml", {"evaluate.weights": "{}"})
    tasks = [Task("a", "What is 2 + 2?", "4"), Task("b", "What is 3 + 3?", "6")]
    made, _ = scripted(recipe, tasks, "The answer is 4.", tmp_path)
    assert len({one.arm.name for one in made}) == len(made)
    assert [one.arm.name for one in made for episode in one.first if episode.verdict.reward is None] == []


def test_trainings_that_are_compared_learn_equally_long_from_the_same_tasks() -> None:
    def figures(name: str) -> str:
        recipe = load_recipe(ROOT / f"recipes/h200/agentpo-{name}.yaml")
        assert recipe.tasks
        return f"{recipe.train} {recipe.tasks.train} {recipe.tasks.holdout} {recipe.evaluate.benchmarks}"

    alike = ("hint", "grpo", "critic", "small", "twin", "transfer")
    strengths = [f"strength-{actor}" for actor in STRENGTHS]
    assert len({figures(name) for name in (*alike, *strengths)}) == 1
    assert len({figures(f"samples-{size}") for size in (100, 500, 1000)}) == 1


def test_actors_of_any_strength_are_measured_alike() -> None:
    recipes = [load_recipe(ROOT / f"recipes/h200/agentpo-strength-{actor}.yaml") for actor in STRENGTHS]
    assert len({str(recipe.evaluate) for recipe in recipes}) == 1
    assert recipes[0].evaluate.weights
    for (file, steps), recipe in zip(STRENGTHS.values(), recipes, strict=True):
        actor = load_recipe(ROOT / f"recipes/{file}.yaml")
        assert recipe.team["actor"].model == f"runs/{actor.name}/best"
        assert actor.train.method == "sft"
        assert actor.train.steps == steps


def test_the_abler_actor_is_taught_as_the_actor_is() -> None:
    actor, abler = (load_recipe(ROOT / f"recipes/lab/{name}.yaml") for name in ("actor", "abler-actor"))
    of_its_own = {"name": abler.name, "train": abler.train}
    assert actor.model_copy(update=of_its_own) == abler
    assert abler.train.model_copy(update={"data": actor.train.data}) == actor.train


def test_every_actor_has_a_table_of_the_same_call_and_a_collaborator_of_its_own(project: Path) -> None:
    calls = {tuple(call.split()[:4:3]) for call in called(project, "strength", "abler")}
    assert {run for command, run in calls if command == "eval"} == {
        f"runs/h200-agentpo-strength-{actor}" for actor in STRENGTHS
    }
    own = {"runs/h200-agentpo-hint", *(f"runs/h200-agentpo-strength-{actor}" for actor in STRENGTHS.keys() - {"200"})}
    assert own <= {run for command, run in calls if command == "train"}
    assert ("train", "runs/h200-agentpo-strength-200") not in calls


def test_a_table_over_seeds_is_made_anew_once_what_failed_is_there(project: Path) -> None:
    called(project, "hint", fails="train recipes/h200/agentpo-hint.yaml --run runs/h200-agentpo-hint-2", code=1)
    *_, recipe = opened([call for call in called(project, "hint") if call.startswith("eval")][-1])
    assert list(map(str, recipe.evaluate.seeds)) == ["runs/h200-agentpo-hint-1", "runs/h200-agentpo-hint-2"]


def test_two_scripts_in_one_folder_make_each_run_once(project: Path) -> None:
    log = project / "calls"
    waits = "until [[ $(wc -l <calls) -ge 2 ]]; do sleep 0.05; done"  # the members, whoever makes them
    (project / "fake").write_text(f'#!/usr/bin/env bash\necho "$@" >>calls\n{waits}\nmkdir -p "$4"\n')
    own = {"PILOTFISH": str(project / "fake"), "PYTHON": "true"}
    commands = [["recipes/h200/agentpo.sh", block] for block in ("hint", "critic")]
    started = [subprocess.Popen(command, cwd=project, env={**os.environ, **own}) for command in commands]
    assert [one.wait() for one in started] == [0, 0]
    runs = [call.split()[:4] for call in log.read_text().splitlines() if call.startswith("train")]
    assert len(runs) == len({tuple(run) for run in runs})


def test_a_training_that_is_killed_counts_as_failed(project: Path) -> None:
    fake = project / "fake"
    fake.write_text(
        FAKE.replace("echo", '[[ $1 == train && $2 == *critic* && $4 == *-1 ]] && kill -9 "$PPID"\necho', 1)
    )
    calls = called(project, "critic", code=1)
    assert [call.split()[3] for call in calls if call.startswith("eval")] == [
        "runs/h200-agentpo-critic-2",
        "runs/h200-agentpo-critic",
    ]
