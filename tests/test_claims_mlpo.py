"""The claims of MLPO: the script makes the members and runs that a table names before it makes the table."""

from __future__ import annotations

import gzip
import sys
from functools import partial
from pathlib import Path

import pytest

import claims
from claims import ROOT, laid, opened
from pilotfish.recipe import Recipe
from pilotfish.recipe_file import load_recipe

BLOCKS = ("table", "share", "seeds", "votes", "rounds", "decimals", "scoreboard", "agents", "sets", "order", "filter")
BLOCKS += ("filter-seeds", "votes-seeds", "decimals-seeds", "leaders-seeds")
FAKE = """#!/usr/bin/env bash
echo "$@" >>calls
case "$*" in *$FAILS*) exit 1 ;; esac
mkdir -p "$4/checkpoints"
[[ $1 == train ]] || touch "$4/scores.jsonl"
"""
"""Stands in for `pilotfish COMMAND RECIPE --run DIR …`."""


called = partial(claims.called, "mlpo.sh")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the recipes and a command that only writes down how it was called."""
    return laid(tmp_path, FAKE)


def named(command: str, recipe: Recipe) -> list[Path]:
    """The folders of runs that a command takes weights from."""
    models = [Path(member.model) for member in recipe.team.values() if member.model.startswith("runs/")]
    return [*models, *(recipe.evaluate.weights.values() if command == "eval" else ())]


@pytest.mark.parametrize("blocks", [*((block,) for block in BLOCKS), ("leaders", "share"), ()], ids=" ".join)
def test_what_a_run_takes_weights_from_is_trained_before_it(project: Path, blocks: tuple[str, ...]) -> None:
    trained: dict[str, Recipe] = {}
    measured = 0
    for call in called(project, *blocks):
        command, run, recipe = opened(call)
        measured += command == "eval"
        for folder in named(command, recipe):
            parts = folder.parts
            stages = [name for name, stage in trained["/".join(parts[:2])].stages.items() if stage]
            assert parts[2:] in ((), ("best",)) or (parts[2] == "stages" and parts[3] in stages), folder
        if command == "train":
            assert run not in trained, f"{run} is trained twice"
            trained[run] = recipe
    assert measured


@pytest.mark.parametrize(("block", "table"), [("seeds", "mlpo"), ("filter-seeds", "mlpo-filter")])
def test_of_one_seed_all_is_of_that_seed_and_the_last_table_is_over_seeds(
    project: Path, block: str, table: str
) -> None:
    earlier = project / f"runs/tables/h200-{table}"
    earlier.mkdir(parents=True)
    (earlier / "recipe.yaml").write_text("kept")
    (earlier / "scores.jsonl.gz").write_bytes(gzip.compress(b"scores"))
    found = [opened(call) for call in called(project, block)]
    for command, run, recipe in found:
        if "h200" in run:
            assert run.endswith(f"-{recipe.seed}")
        if command == "eval":
            assert all(str(folder).endswith(f"-{recipe.seed}") for folder in recipe.evaluate.weights.values())
    assert found[-1][:2] == ("eval", f"runs/h200-{table}-2")
    assert list(map(str, found[-1][2].evaluate.seeds)) == [f"runs/h200-{table}", f"runs/h200-{table}-1"]
    kept = project / f"runs/h200-{table}"
    assert [(kept / name).read_text() for name in ("recipe.yaml", "scores.jsonl")] == ["kept", "scores"]


def test_seed_0_is_not_taken_from_elsewhere_where_it_is_made_here(project: Path) -> None:
    earlier = project / "runs/tables/h200-mlpo"
    earlier.mkdir(parents=True)
    (earlier / "recipe.yaml").write_text("kept")
    (earlier / "scores.jsonl.gz").write_bytes(gzip.compress(b"scores"))
    *_, recipe = opened(called(project, "seeds", SEEDS="0 1")[-1])
    assert list(map(str, recipe.evaluate.seeds)) == ["runs/h200-mlpo-0"]


def test_zero_shot_grpo_learns_on_the_tasks_of_mlpo_in_as_many_rows() -> None:
    mlpo, alone = (load_recipe(ROOT / f"recipes/h200/{name}.yaml") for name in ("mlpo", "mlpo-zero-shot"))
    assert (alone.tasks, alone.seed, alone.team["leader"]) == (mlpo.tasks, mlpo.seed, mlpo.team["leader"])
    assert alone.evaluate.benchmarks == mlpo.evaluate.benchmarks, "else other tasks would be dropped"
    learned = [stage for stage in mlpo.stages.values() if stage and stage.method == "grpo"]
    assert alone.train.method == "grpo"
    assert alone.train.steps == sum(stage.steps or 0 for stage in learned)
    assert {stage.rows_per_step for stage in learned} == {alone.train.rows_per_step}


def test_what_fails_leaves_the_rest_alone_and_is_made_up_for_by_the_same_call(project: Path) -> None:
    calls = called(project, "filter", fails="filter-off.yaml", code=1)
    assert any(call.startswith("train recipes/h200/mlpo-filter-half.yaml") for call in calls)
    assert not any(call.startswith("eval") for call in calls), "a table without one of its trainings"
    assert not (project / "runs/h200-mlpo-no-sft/checkpoints").exists()
    assert [call.split()[:2] for call in called(project, "filter")] == [
        ["train", "recipes/h200/mlpo-filter-off.yaml"],
        ["eval", "recipes/h200/mlpo-filter.yaml"],
    ]


def test_a_block_that_is_not_there_is_named(project: Path) -> None:
    assert called(project, "tabel", code=2) == []


def test_two_gpus_have_as_many_places_each(project: Path) -> None:
    waits = "until (($(wc -l <calls) >= 4)); do sleep 0.05; done"  # as many as there are members
    (project / "fake").write_text(
        f'#!/usr/bin/env bash\necho "$1 $CUDA_VISIBLE_DEVICES" >>calls\nmkdir -p "$4"\n{waits}\n'
    )
    calls = called(project, "filter", GPUS="0 3", AT_ONCE="2", TABLES_AT_ONCE="1")
    assert sorted(calls[:4]) == ["train 0", "train 0", "train 3", "train 3"]
    assert calls[-1] == "eval 0"


def test_several_processes_share_an_evaluation(project: Path) -> None:
    torchrun = f"{sys.executable} -m torch.distributed.run"
    *_, first, second = called(project, "filter", EVAL_PROCESSES="2", TORCHRUN=torchrun)
    assert first == second
    assert opened(first)[:2] == ("eval", "runs/h200-mlpo-filter")
