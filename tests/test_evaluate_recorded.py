"""What an evaluation has played is measured from its record alone: nobody is asked, no weights are there."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from board import board, said, seat, tasks_file
from mock_server import Call, MockServer
from pilotfish import Run, ScriptedEngine, Team
from pilotfish.cli import main
from pilotfish.engine.base import Refused
from pilotfish.evaluate import bench
from pilotfish.evaluate.arms import Arm, Role, leading
from pilotfish.evaluate.bench import Result, evaluate
from pilotfish.recipe import parse_recipe
from pilotfish.run import RunError
from pilotfish.team import Member
from pilotfish.topology import hint, solo
from pilotfish.verify.judge import example
from tiny import save_tiny

BIG = {"big": {"actor": {"model": "big"}}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


def play(data: dict[str, Any], folder: Path) -> list[Result]:
    recipe = parse_recipe(data)
    with Run(folder, recipe) as run:
        return evaluate(recipe, run)


def recall(data: dict[str, Any], folder: Path) -> list[Result]:
    """Measure from the record, where no engine can be made."""

    def load(*arguments: Any) -> None:
        raise AssertionError("an engine is loaded")

    recipe = parse_recipe(data)
    with pytest.MonkeyPatch.context() as patch, Run(folder, recipe) as run:
        patch.setattr(bench, "Seats", load)
        return evaluate(recipe, run, recorded=True)


def files(folder: Path) -> dict[str, Any]:
    """What an evaluation has written, without the time of day; taken away."""
    found: dict[str, Any] = {}
    for file in [*folder.glob("results*"), folder / "scores.jsonl"]:
        found[file.name] = file.read_text()
        file.unlink()
    told = json.loads(found["results.json"])
    del told["written"]
    return {**found, "results.json": told}


def names(result: Result) -> list[str]:
    return [row.name for row in result.rows]


def cut_off(data: dict[str, Any], folder: Path, calls: int) -> None:
    """Play until so many calls are answered."""

    def refused(call: Call) -> str | None:
        return "401" if call.number > calls else None

    with MockServer(reply=said, fault=refused) as server:
        data["team"]["actor"]["base_url"] = server.base_url
        data["evaluate"]["concurrency"] = 1
        with pytest.raises(Exception, match="401"):
            play(data, folder)


def test_the_record_of_several_teams_benchmarks_samples_and_seeds_gives_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOARD_KEY", "secret")
    with MockServer(reply=said) as server:
        data = board(tmp_path, server.base_url, models=BIG, samples=2)
        data["team"]["actor"]["key_env"] = "BOARD_KEY"
        other = board(tmp_path, server.base_url, models=BIG, samples=2)
        other["team"]["actor"]["model"] = "tall"
        play({**other, "seed": 1}, tmp_path / "other")
        data["evaluate"]["seeds"] = [str(tmp_path / "other")]
        play(data, tmp_path / "run")
        calls = server.calls
        whole = files(tmp_path / "run")
        monkeypatch.delenv("BOARD_KEY")
        recall(data, tmp_path / "run")
        assert server.calls == calls
    assert "over seeds" in whole["results.json"]
    assert files(tmp_path / "run") == whole


def test_answers_that_a_member_has_judged_are_not_judged_again(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> str:
        return f"{example(body['messages']).removesuffix('1')}3" if body["model"] == "judge" else said(body)

    verifier = {"name": "judge", "member": "judge", "rubric": "It is right.", "scale": 4}
    judged = {"source": tasks_file(tmp_path / "judged.jsonl", 4), "verifier": verifier}
    with MockServer(reply=reply) as server:
        data = board(tmp_path, server.base_url, benchmarks=[judged])
        data["team"]["judge"] = seat(server.base_url, "judge", temperature=0.0)
        play(data, tmp_path / "run")
        calls = server.calls
        whole = files(tmp_path / "run")
        recall(data, tmp_path / "run")
        assert server.calls == calls
    assert whole["results.json"]["judged"][0]["accuracy"] == 0.75
    assert any(point["by"] == "samples" for point in whole["results.json"]["by budget"]["judged"]["vote"])
    assert files(tmp_path / "run") == whole


def test_other_words_to_a_judge_are_not_recorded(tmp_path: Path) -> None:
    verifier = {"name": "judge", "member": "judge", "rubric": "It is right.", "scale": 4}
    judged = {"source": tasks_file(tmp_path / "judged.jsonl", 4), "verifier": verifier}
    with MockServer(reply=lambda body: example(body["messages"]) if body["model"] == "judge" else said(body)) as server:
        data = board(tmp_path, server.base_url, benchmarks=[judged])
        data["team"]["judge"] = seat(server.base_url, "judge", temperature=0.0)
        play(data, tmp_path / "run")
        verifier["rubric"] = "It is short."
        with pytest.raises(RunError, match="0 of 4 episodes are recorded, and 4 of other questions"):
            recall(data, tmp_path / "run")


def test_verdicts_are_given_anew(tmp_path: Path) -> None:
    with MockServer(reply=said) as server:
        data = board(tmp_path, server.base_url)
        before = play(data, tmp_path / "run")[0].rows
        for file in tmp_path.glob("*.jsonl"):
            tasks = [{**json.loads(line), "answer": "-1"} for line in file.read_text().splitlines()]
            file.write_text("".join(json.dumps(task) + "\n" for task in tasks))
        after = recall(data, tmp_path / "run")[0].rows
    assert any(row.accuracy for row in before)
    assert not any(row.accuracy for row in after)


def trained(folder: Path) -> dict[str, Any]:
    """A trained adviser and its actor, a second team, another run's weights, and all controls; weights are random."""
    paths = {name: str(save_tiny(folder / name, number)) for number, name in enumerate(["mind", "small", "big"])}
    save_tiny(folder / "elsewhere", 3)
    sampling = {"temperature": 0.8, "max_tokens": 3}
    return {
        "tasks": {"train": tasks_file(folder / "train.jsonl", 6), "holdout": 2},
        "team": {
            "collaborator": {"model": paths["mind"], "train": "full", "sampling": {"max_tokens": 3}},
            "actor": {"model": paths["small"], "sampling": sampling, "price": {"output": 1}},
        },
        "topology": "hint",
        "evaluate": {
            "benchmarks": [tasks_file(folder / "test.jsonl", 2)],
            "against": ["solo", {"name": "vote", "options": {"samples": 2}}],
            "controls": ["empty", "constant", "shuffled", "trainee"],
            "constants": 2,
            "models": {"big": {"actor": {"model": paths["big"], "price": {"output": 9}}}},
            "weights": {"elsewhere": str(folder / "elsewhere")},
        },
    }


@pytest.mark.parametrize("best", [0, 1])
def test_without_any_weights_the_record_gives_the_same_files(best: int, tmp_path: Path) -> None:
    data, folder = trained(tmp_path), tmp_path / "run"
    run = Run(folder, parse_recipe(data))
    save_tiny(run.best, 4)
    run.mark_best(run.best, best)
    (result,) = play(data, folder)
    own = ["solo", "vote", "collaborator alone", "hint, untrained", "hint, elsewhere", "hint, trained"]
    own += ["best constant words", "empty words", "another task's words"]
    assert names(result) == [*own, *(f"big: {name}" for name in own)]
    whole = files(folder)
    for gone in (*(tmp_path / name for name in ("mind", "small", "big", "elsewhere")), run.best):
        shutil.rmtree(gone)
    (tmp_path / "train.jsonl").unlink()
    recall(data, folder)
    assert "search for constant words" in whole["results.json"]["asked"]
    points = [len(whole["results.json"]["by budget"]["test"][name]) for name in ("vote", "big: vote")]
    assert points == [2, 2], "a vote of one is told of each team"
    assert files(folder) == whole


def test_two_trainings_are_no_one_method(tmp_path: Path) -> None:
    data, folder = trained(tmp_path), tmp_path / "run"
    data["evaluate"] |= {"weights": {}, "models": {}, "controls": [], "against": ["solo"]}
    run = Run(folder, parse_recipe(data))
    for step, tasks in ((1, 2), (2, 1)):
        save_tiny(run.best, 4 + step)
        run.mark_best(run.best, step)
        tasks_file(tmp_path / "test.jsonl", tasks)
        play(data, folder)
    tasks_file(tmp_path / "test.jsonl", 2)
    with pytest.warns(
        UserWarning, match="hint, trained: 2 of 2 episodes are recorded, of 2 different weights; left out"
    ):
        (result,) = recall(data, folder)
    assert names(result) == ["solo", "hint, untrained"]


def test_a_method_that_was_cut_off_is_left_out_by_name_and_the_others_are_what_they_would_have_been(
    tmp_path: Path,
) -> None:
    data = board(tmp_path, "http://127.0.0.1:1/v1")
    cut_off(data, tmp_path / "run", calls=18 + 7)
    with pytest.warns(UserWarning, match="left out") as told:
        (result,) = recall(data, tmp_path / "run")
    lines = [line for warning in told if "left out" in (line := str(warning.message))]
    assert lines[0] == "first: reflect: 1 of 6 episodes are recorded; left out"
    assert lines[1:] == [
        "first: solo: 0 of 6 episodes are recorded; left out",
        *(f"second: {name}: 0 of 6 episodes are recorded; left out" for name in ("vote", "reflect", "solo")),
    ]
    assert names(result) == ["vote"]
    with MockServer(reply=said) as server:
        data["team"]["actor"]["base_url"] = server.base_url
        (whole, _) = play(data, tmp_path / "whole")
    assert result.rows[0].accuracy == whole.rows[0].accuracy
    assert [score.answer for score in result.scores] == [s.answer for s in whole.scores if s.arm == "vote"]


def test_weights_of_the_runs_own_that_never_spoke_are_not_missed_and_those_that_the_recipe_names_are(
    tmp_path: Path,
) -> None:
    data = trained(tmp_path)
    data["evaluate"] |= {"weights": {}, "models": {}, "controls": [], "against": ["solo"]}
    play(data, tmp_path / "run")
    data["evaluate"]["weights"] = {"elsewhere": str(tmp_path / "nowhere")}
    with pytest.warns(UserWarning, match="left out") as told:
        (result,) = recall(data, tmp_path / "run")
    assert [line for warning in told if "left out" in (line := str(warning.message))] == [
        "test: hint, elsewhere: 0 of 2 episodes are recorded; left out"
    ]
    assert names(result) == ["solo", "hint, untrained"]


@pytest.mark.parametrize("changed", [{"instruction": "Be brief."}, {"source": "other.jsonl", "label": "first"}])
def test_episodes_of_other_questions_are_not_taken_for_the_recipes(changed: dict[str, str], tmp_path: Path) -> None:
    data = board(tmp_path, "", against=[])
    data["evaluate"]["benchmarks"] = data["evaluate"]["benchmarks"][:1]
    with MockServer(reply=said) as server:
        data["team"]["actor"]["base_url"] = server.base_url
        play(data, tmp_path / "run")
    rows = [{"id": f"t{n}", "question": f"What is {n} + 2?", "answer": str(n + 2)} for n in range(6)]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"source": data["evaluate"]["benchmarks"][0], **changed}
    source["source"] = str(tmp_path / source["source"])
    data["evaluate"]["benchmarks"] = [source]
    with pytest.raises(RunError, match="solo: 0 of 6 episodes are recorded, and 6 of other questions, prompts, sampl"):
        recall(data, tmp_path / "run")


def told(data: dict[str, Any], folder: Path) -> tuple[list[str], list[str]]:
    """What of the first benchmark is measured from the record, and what is said to be left out."""
    with pytest.warns(UserWarning, match="left out") as warned:
        first, *_ = recall(data, folder)
    return names(first), [line for one in warned if (line := str(one.message)).startswith("first")]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_another_model_under_the_same_name_does_not_answer_for_the_recipes(temperature: float, tmp_path: Path) -> None:
    def of(model: str) -> dict[str, Any]:
        return {**data, "evaluate": {**data["evaluate"], "models": {"big": {"actor": {"model": model}}}}}

    def lacking(good: int) -> tuple[list[str], list[str]]:
        differ = f"{6 - good} of other questions, prompts, sampling or models"
        return ["solo"], [f"first: big: solo: {good} of 6 episodes are recorded, and {differ}; left out"]

    folder, most = tmp_path / "run", [99]
    with MockServer(reply=said, fault=lambda call: "401" if call.number > most[0] else None) as server:
        data = board(tmp_path, server.base_url, against=[], concurrency=1)
        data["team"]["actor"] = seat(server.base_url, temperature=temperature)
        play(of("big"), folder)
        assert told(of("tall"), folder) == told(of("small"), folder) == lacking(0)
        most = [server.calls + 4]
        with pytest.raises(Refused, match="401"):
            play(of("tall"), folder)
    assert told(of("tall"), folder) == lacking(4)
    (folder / "seated.json").unlink()
    assert names(recall(of("tall"), folder)[0]) == ["solo", "big: solo"], "nobody knows who spoke"


def test_a_recipe_of_a_run_that_names_another_model_by_now_measures_nothing(tmp_path: Path) -> None:
    data = board(tmp_path, "", against=[])
    with MockServer(reply=said) as server:
        data["team"]["actor"]["base_url"] = server.base_url
        play(data, tmp_path / "run")
        data["team"]["actor"]["model"] = "tall"
        (tmp_path / "run" / "recipe.yaml").write_text(json.dumps(data))
        for _ in range(2):
            with pytest.raises(RunError, match=r"solo: 0 of 6 episodes are recorded, and 6 of .* or models"):
                recall(data, tmp_path / "run")
            with pytest.warns(UserWarning, match="actor was small .*, and is tall now: .* what is recorded is taken"):
                play(data, tmp_path / "run")


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_another_judge_has_not_judged(temperature: float, tmp_path: Path) -> None:
    verifier = {"name": "judge", "member": "judge", "rubric": "It is right.", "scale": 4}
    judged = {"source": tasks_file(tmp_path / "judged.jsonl", 4), "verifier": verifier}
    with MockServer(reply=lambda body: said(body) if body["model"] == "small" else example(body["messages"])) as server:
        data = board(tmp_path, server.base_url, benchmarks=[judged], against=[])
        data["team"]["judge"] = seat(server.base_url, "judge", temperature=temperature)
        play(data, tmp_path / "run")
        data["team"]["judge"]["model"] = "other judge"
        with pytest.raises(RunError, match=r"0 of 4 episodes are recorded, and 4 of .* or models"):
            recall(data, tmp_path / "run")
        with pytest.warns(UserWarning, match="judge was judge .*other judge now") if temperature else nullcontext():
            play(data, tmp_path / "run")
        if not temperature:  # else the verdicts are the first one's still
            assert names(recall(data, tmp_path / "run")[0]) == ["solo"]
            return
        with pytest.raises(RunError, match=r"0 of 4 episodes are recorded, and 4 of .* or models"):
            recall(data, tmp_path / "run")


def test_nothing_recorded_is_an_error_and_makes_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = board(tmp_path, "http://127.0.0.1:1/v1")
    Path("own.yaml").write_text(json.dumps(data))
    assert main(["eval", "own.yaml", "--recorded"]) == 2
    assert "runs/own: no run there" in capfd.readouterr().err
    assert not Path("runs").exists()
    Run("runs/own", parse_recipe(data))
    assert main(["eval", "runs/own", "--recorded"]) == 2
    assert "runs/own: no method is recorded whole: first: vote: 0 of 6 episodes are recorded;" in capfd.readouterr().err
    assert not Path("runs/own/results.json").exists()


def test_eval_measures_a_run_that_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cut_off(board(tmp_path, ""), Path("runs/own"), calls=18)
    assert main(["eval", "runs/own", "--recorded"]) == 0
    out, err = capfd.readouterr()
    assert "in runs/own: results.md" in out
    assert "warning: first: reflect: 0 of 6 episodes are recorded; left out" in err
    assert [row["name"] for row in json.loads(Path("runs/own/results.json").read_text())["first"]] == ["vote"]


def arm(name: str, role: Role, *, own: bool) -> Arm:
    team = Team({"actor": Member("actor", "m")}, {"actor": ScriptedEngine(["x"])})
    return Arm(name, hint if own else solo, team, role, own=own)


def test_the_recipes_own_topology_leads_also_where_its_last_weights_are_lacking() -> None:
    arms = [arm("alone, sft", "trained", own=False), arm("leader, sft", "trained", own=True)]
    cut = [*arms, arm("alone, mlpo", "trained", own=False)]
    assert leading(cut) is arms[1]
    assert leading(cut[2:]) is cut[2]
