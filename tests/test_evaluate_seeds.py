"""Runs of other seeds beside this one: read from their scores, compared over seeds and tasks."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from board import board, said, seat
from mock_server import MockServer
from pilotfish import Journal, Run, ScriptedEngine, Task, Team, Verdict
from pilotfish.cli import main
from pilotfish.evaluate.arms import Arm, Field, Played, Role
from pilotfish.evaluate.bench import Result, evaluate, measure
from pilotfish.evaluate.page import page_markdown
from pilotfish.evaluate.record import write
from pilotfish.evaluate.scores import lines, scored
from pilotfish.evaluate.seeds import OtherSeeds
from pilotfish.evaluate.stats import nested_difference
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.team import Member
from pilotfish.topology import solo

TASKS = [Task(f"t{number}", f"Task {number}?", "1") for number in range(40)]
SEEDS = {0: 0.7, 1: 0.5, 2: 0.6}


def rewards(seed: int) -> list[float]:
    return [float(draw < SEEDS[seed]) for draw in np.random.default_rng(seed).random(len(TASKS))]


async def played(name: str, role: Role, right: list[float], folder: Path) -> Played:
    async def judge(task: Task, answer: str, form: str) -> Verdict:
        return Verdict(right[int(task.id[1:])], answer)

    team = Team({"actor": Member("actor", "m")}, {"actor": ScriptedEngine(lambda messages, sampling, seed: "x")})
    arm = Arm(name, solo, team, role)
    return Played(arm, [await Field("b", TASKS, Journal(folder), judge).play(arm)])


async def arms(seed: int, folder: Path, solo_seed: int = 1) -> list[Played]:
    baseline = await played("solo", "baseline", rewards(solo_seed), folder)
    return [baseline, await played("hint, trained", "trained", rewards(seed), folder)]


def other_run(seed: int, folder: Path, data: dict[str, object], solo_seed: int = 1) -> str:
    """A run as its evaluation leaves it; the actor alone is right where this seed's draws say so."""
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(parse_recipe({**data, "seed": seed}).dump())
    scores = [
        score for one in asyncio.run(arms(seed, folder / "journal", solo_seed)) for score in scored("b", one, TASKS)
    ]
    (folder / "scores.jsonl").write_text("".join(f"{line}\n" for line in lines(scores)))
    return str(folder)


@pytest.fixture
def data(tmp_path: Path) -> dict[str, object]:
    return board(tmp_path, "http://127.0.0.1:1/v1")


def own(data: dict[str, object], *folders: str) -> Recipe:
    return parse_recipe({**data, "evaluate": {"seeds": list(folders)}})


def measured(recipe: Recipe, folder: Path) -> Result:
    async def scenario() -> Result:
        return await measure(Field("b", TASKS, Journal(folder), _never), await arms(0, folder), OtherSeeds(recipe))

    return asyncio.run(scenario())


def checked(recipe: Recipe, folder: Path) -> None:
    arms_of = [one.arm for one in asyncio.run(arms(0, folder))]
    OtherSeeds(recipe).check([Field("b", TASKS, Journal(folder), _never)], arms_of)


async def _never(task: Task, answer: str, form: str) -> Verdict:
    raise AssertionError("whole methods are judged already")


@pytest.mark.filterwarnings("error")
def test_a_trained_arm_is_compared_over_seeds_and_tasks(tmp_path: Path, data: dict[str, object]) -> None:
    folders = [other_run(seed, tmp_path / f"run{seed}", data) for seed in (1, 2)]
    result = measured(own(data, *folders), tmp_path / "own")
    found = result.seeds
    assert found is not None
    assert found.seeds == [0, 1, 2]
    assert found.accuracy == {"hint, trained": [pytest.approx(np.mean(rewards(seed))) for seed in (0, 1, 2)]}
    expected = nested_difference([rewards(0), rewards(1), rewards(2)], rewards(1))
    assert found.difference_to == {"hint, trained": {"solo": expected}}
    page = page_markdown(result)
    assert "| method | seed 0 | seed 1 | seed 2 |" in page
    assert "Differences over training seeds and tasks together" in page
    write([result], tmp_path)
    record = json.loads((tmp_path / "results.json").read_text())["over seeds"]["b"]
    assert record["difference_to"]["hint, trained"]["solo"]["n"] == len(TASKS)


def test_where_the_runs_seat_other_models_every_arm_has_seeds(tmp_path: Path, data: dict[str, object]) -> None:
    teams = [{"team": {"actor": seat("http://127.0.0.1:1/v1", f"tuned-{seed}")}} for seed in (1, 2)]
    folders = [
        other_run(seed, tmp_path / f"run{seed}", {**data, **team}, solo_seed=seed)
        for seed, team in zip((1, 2), teams, strict=True)
    ]
    found = measured(own(data, *folders), tmp_path / "own").seeds
    assert found is not None
    solo_rewards = [rewards(1), rewards(1), rewards(2)]
    assert found.accuracy["solo"] == [pytest.approx(np.mean(seed)) for seed in solo_rewards]
    expected = nested_difference([rewards(0), rewards(1), rewards(2)], solo_rewards)
    assert found.difference_to["hint, trained"] == {"solo": expected}


def test_a_run_that_does_not_fit_is_refused_by_name(tmp_path: Path, data: dict[str, object]) -> None:
    one = other_run(1, tmp_path / "one", data)
    twin = other_run(1, tmp_path / "twin", data)
    with pytest.raises(RecipeError, match=r"twin has seed 1|one has seed 1"):
        OtherSeeds(own(data, one, twin))
    file = tmp_path / "one" / "scores.jsonl"
    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines()[:-1]))
    lacks = r"one has no score of 'hint, trained' on task t39 of b; evaluate it"
    with pytest.warns(UserWarning, match=f"b: no table over seeds: .*{lacks}"):
        assert measured(own(data, one), tmp_path / "own").seeds is None, "what was played is measured all the same"
    with pytest.raises(RecipeError, match=lacks):
        checked(own(data, one), tmp_path / "own")
    file.unlink()
    with pytest.raises(RecipeError, match=r"scores\.jsonl is not there; run `pilotfish eval "):
        OtherSeeds(own(data, one))
    with pytest.raises(RecipeError, match="no such file"):
        OtherSeeds(own(data, str(tmp_path / "none")))


def test_another_gold_answer_under_the_same_id_is_refused(tmp_path: Path, data: dict[str, object]) -> None:
    one = other_run(1, tmp_path / "one", data)
    file = tmp_path / "one" / "scores.jsonl"
    scores = [json.loads(line) for line in file.read_text().splitlines()]
    for score in scores:
        score["gold"] = "2" if score["task"] in ("t7", "t9") else score["gold"]
    file.write_text("".join(json.dumps(score) + "\n" for score in scores))
    with pytest.raises(RecipeError, match=r"one: the answer to task t7 of b is '2' there, and '1' here; evaluate it"):
        checked(own(data, one), tmp_path / "own")
    file.write_text("".join(json.dumps({**score, "gold": None}) + "\n" for score in scores))
    checked(own(data, one), tmp_path / "own")


def test_what_another_run_lacks_is_told_before_anybody_is_asked_and_the_command_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "other run"
    with MockServer(reply=said) as server:
        data = board(tmp_path, server.base_url, tasks=3)
        first = {**data["evaluate"], "benchmarks": data["evaluate"]["benchmarks"][:1], "against": []}
        recipe = parse_recipe({**data, "team": {"actor": seat(server.base_url, "big")}, "seed": 1, "evaluate": first})
        with Run(folder, recipe) as run:
            evaluate(recipe, run)
        asked = server.calls
        recipe = parse_recipe({**data, "evaluate": {**data["evaluate"], "seeds": [str(folder)]}})
        lacks = r"no score of 'vote' on task t0 of first; evaluate it on the same tasks with `pilotfish (.*)`, or"
        with pytest.raises(RecipeError, match=lacks) as refused, Run(tmp_path / "own", recipe) as run:
            evaluate(recipe, run)
        assert server.calls == asked
        found = re.search(lacks, str(refused.value))
        assert found
        assert main(shlex.split(found[1])) == 0
        with Run(tmp_path / "own", recipe) as run:
            assert all(result.seeds for result in evaluate(recipe, run))
    file = folder / "scores.jsonl"
    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines() if '"vote"' not in line))
    with pytest.raises(RecipeError, match=lacks), Run(tmp_path / "own", recipe) as run:
        evaluate(recipe, run, recorded=True)


def test_the_command_has_each_setting_that_decides_what_is_played(tmp_path: Path, data: dict[str, object]) -> None:
    changed = {"untrained": False, "controls": ["empty"], "weights": {"zero-shot": "runs/other"}}
    one = other_run(1, tmp_path / "it's one", {**data, "evaluate": changed})
    other = other_run(2, tmp_path / "it's two", data)
    file = Path(one) / "scores.jsonl"
    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines()[:-1]))
    with pytest.raises(RecipeError, match="has no score") as refused:
        checked(own(data, one, other), tmp_path / "own")
    _, command, rest = str(refused.value).split("`")
    settings = ("untrained=true", "controls=[]", "weights={}")
    assert shlex.split(command)[3:] == [part for one in settings for part in ("--set", f"evaluate.{one}")]
    assert shlex.split(rest)[-2:] == ["--set", f'evaluate.seeds=["{other}"]']


def test_without_other_seeds_nothing_is_told(tmp_path: Path, data: dict[str, object]) -> None:
    result = measured(own(data), tmp_path / "own")
    assert result.seeds is None
