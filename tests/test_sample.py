"""An estimate from real calls: a loopback server's own counts are what is measured, and the run that follows asks for
none of it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from board import seat
from mock_server import Call, MockServer
from pilotfish.cli import main
from pilotfish.preflight.estimate import estimate_recipe
from pilotfish.preflight.hours import waiting
from pilotfish.preflight.measured import Measured, Spread
from pilotfish.preflight.sample import sample
from pilotfish.recipe import Recipe, RecipeError, parse_recipe


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")


def answer(body: dict[str, Any]) -> str:
    """Ten words where there is a draft, four where there is none; right on every other question."""
    asked = str(body["messages"][-1]["content"])
    number = int(asked.split("What is ")[1].split(" ")[0])
    long = "and so and so and so " if "Comment on it" in asked else ""
    return f"{long}The answer is {number + number % 2}"


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=answer) as opened:
        yield opened


def rows(file: str, count: int) -> str:
    tasks = ({"question": f"What is {n} + 0?", "answer": str(n)} for n in range(count))
    Path(file).write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return file


def recipe(server: MockServer, **changes: Any) -> Recipe:
    """Two members behind the server; the collaborator is not trained, so that nothing is loaded."""
    member = seat(server.base_url, temperature=0.0, concurrency=2)
    data = {
        "team": {"collaborator": {**member, "model": "other"}, "actor": member},
        "topology": "critic",
        "evaluate": {"benchmarks": [rows("test.jsonl", 30)], "against": ["solo"]},
        **changes,
    }
    return parse_recipe(data)


def test_what_is_measured_is_what_the_server_counted(server: MockServer) -> None:
    taken = sample(recipe(server), 6)
    assert server.calls == 6 * 3, "a draft, which is solo's answer; a comment; a revision"
    actor, collaborator = taken.measured["actor"], taken.measured["collaborator"]
    assert (actor.calls, collaborator.calls) == (12, 6)
    assert actor.completion.mean == pytest.approx((4 + 10) / 2)
    assert actor.prompt.total + collaborator.prompt.total == server.prompt_tokens
    assert taken.right["solo"] == (3, 6)


def test_an_estimate_counts_with_measured_tokens_prompts_and_seconds(server: MockServer) -> None:
    found = estimate_recipe(recipe(server), sample(recipe(server), 6).measured)
    lines = {(line.stage, line.member): line for line in found.lines}
    assert found.rough == ()
    assert lines["solo", "actor"].likely.completion == 30 * 7
    least, likely, most = (lines["solo", "actor"].cost()[place] for place in (1, 0, 2))
    assert least < likely < most
    assert {stage for stage, _ in waiting(found.lines).items()} == {"solo", "critic"}


def test_the_run_finds_the_samples_answers(server: MockServer) -> None:
    Path("own.yaml").write_text(recipe(server).dump())
    assert main(["estimate", "own.yaml", "--samples", "6"]) == 0
    sampled = server.calls
    assert main(["eval", "own.yaml"]) == 0
    assert server.calls == 30 * 3, "at temperature 0 a sampled answer is not asked for again"
    assert main(["estimate", "own.yaml", "--samples", "6"]) == 0
    assert (sampled, server.calls) == (6 * 3, 30 * 3)


def test_the_command_says_what_was_measured_in_80_columns(
    server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.yaml").write_text(recipe(server).dump())
    assert main(["estimate", "own.yaml", "--samples", "6"]) == 0
    shown = capsys.readouterr().out
    assert "sample     6 tasks: solo 3 of 6 right, critic 3 of 6 right; spent 0.00" in shown
    assert "actor      12 calls of" in shown
    assert "7 ± 2 (12 calls measured)" in " ".join(shown.split())
    assert "range" in shown
    assert "a guess" not in shown
    assert "Waiting for answers: " in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_sample_that_nobody_answers_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def outage(call: Call) -> str:
        return "503"

    with MockServer(fault=outage) as server:
        Path("own.yaml").write_text(recipe(server).dump())
        assert main(["estimate", "own.yaml", "--samples", "2"]) == 2
    err = capsys.readouterr().err
    assert "no call of the sample was answered (actor: " in err
    assert err.count("\n") == 1


def test_asking_the_actor_alone_needs_a_recipe_with_solo(server: MockServer) -> None:
    assert set(sample(recipe(server), 2, alone=True).measured) == {"actor"}
    against_nobody = recipe(server, evaluate={"benchmarks": [rows("test.jsonl", 4)], "against": []})
    with pytest.raises(RecipeError, match="has no `solo`"):
        sample(against_nobody, 2, alone=True)


def test_a_limit_of_calls_a_minute_is_the_least_time(server: MockServer) -> None:
    member = {**seat(server.base_url, temperature=0.0), "requests_per_minute": 10}
    slow = recipe(server, team={"actor": member}, topology="solo")
    spread = Spread()
    for seconds in (1.0, 3.0):
        spread.add(seconds)
    known = Measured(prompt=spread, completion=spread, seconds=spread)
    (bounds,) = waiting(estimate_recipe(slow, {"actor": known}).lines).values()
    assert bounds == (180.0, 180.0), "30 calls, 10 a minute"
    fast = recipe(server, team={"actor": {**member, "requests_per_minute": None, "concurrency": 10}}, topology="solo")
    (bounds,) = waiting(estimate_recipe(fast, {"actor": known}).lines).values()
    assert bounds == pytest.approx((3 * 0.0, 2 * 4.0 + 3.0)), "three waves; the last waits for the slowest"
