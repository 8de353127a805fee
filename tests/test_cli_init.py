"""`pilotfish init`, and with it the three commands from a user's own rows to a trained and measured copilot."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mock_server import Call, MockServer
from pilotfish.cli import main
from pilotfish.cli.figures import money
from pilotfish.recipe_file import load_recipe
from tiny import save_tiny

KEY = "not-a-real-key-7"


def reply(body: dict[str, Any]) -> str:
    """Right on every second question; the system's words tell an adviser from an actor."""
    first, second = map(int, re.findall(r"(\d+) \+ (\d+)", str(body["messages"][-1]["content"]))[0])
    return f"The answer is {first + second + first % 2}."


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=reply) as opened:
        yield opened


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("OWN_KEY", KEY)
    with Path("sums.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["problem", "result", "answer"])
        table.writerows([f"What is {n} + 7?", f"about {n}", str(n + 7)] for n in range(60))


def arguments(server: MockServer, *more: str) -> list[str]:
    paid = ["--key-env", "OWN_KEY", "--price-in", "1", "--price-out", "2"]
    return ["init", "sums.csv", "--actor", "small", "--base-url", server.base_url, *paid, *more]


def paid(server: MockServer) -> float:
    return (server.prompt_tokens + 2 * server.completion_tokens) / 1e6


def test_three_commands_lead_from_own_rows_to_a_measured_copilot(
    server: MockServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = str(save_tiny(tmp_path / "model"))
    before = Path("sums.csv").read_bytes()
    assert main(arguments(server, "--trainee", model)) == 0
    out, err = capfd.readouterr()
    assert "question   problem (by its name)" in out
    assert "answer     answer (by its name)" in out
    assert "verifier   maths: all 60 answers are numbers" in out
    few = "12 tasks tell an accuracy to about ±33 points, the 6 held out to ±50: take more rows for more"
    assert f" to measure on\n           {few}\n" in out
    assert "sample     8 tasks: solo " in out
    assert "warning" not in out
    assert f"spent {money(paid(server))}" in out
    assert out.splitlines()[-2:] == ["next       pilotfish train sums.yaml", "           pilotfish eval runs/sums"]
    assert max(map(len, (line for line in out.splitlines() if not line.startswith("wrote")))) <= 110
    sampled = server.calls

    quick = ["group_size=2", "tasks_per_step=2", "micro_batch=4", "steps=2", "evaluate_every=2"]
    short = ["team.collaborator.sampling.max_tokens=4", *(f"train.{setting}" for setting in quick)]
    assert main(["train", "sums.yaml", *(part for one in short for part in ("--set", one))]) == 0
    out, err = capfd.readouterr()
    steps = [line for line in err.splitlines() if line.startswith("step ")]
    assert steps[-1].split("  ")[-1].startswith("spent 0.00")
    assert all(" of 0." in line for line in steps), "the cap that init has written"

    assert main(["eval", "runs/sums"]) == 0
    out, err = capfd.readouterr()
    assert "hint, trained" in out
    (*_, last) = (line for line in err.splitlines() if ": 12 tasks" in line)
    assert last.startswith("sums-test: another task's words: 12 tasks  spent ")
    keys = {call.headers.get("Authorization") for call in server.requests}
    assert keys == {f"Bearer {KEY}"}
    written = [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".safetensors"]
    assert not [file for file in written if KEY.encode() in file.read_bytes()]
    assert Path("sums.csv").read_bytes() == before
    questions = [call.body["messages"][-1]["content"] for call in server.requests]
    assert questions.count(questions[0]) == 1, "what the sample was told is not asked again"
    assert sampled == 8


def test_nothing_is_written_over_and_nothing_is_asked_for_that(
    server: MockServer, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("sums-test.jsonl").write_text("mine")
    assert main(arguments(server)) == 2
    assert "sums-test.jsonl is there already; name another recipe with --out, or" in capfd.readouterr().err
    assert (server.calls, Path("sums-test.jsonl").read_text()) == (0, "mine")
    assert main(arguments(server, "--force", "--samples", "0")) == 0
    assert server.calls == 0
    assert len(Path("sums-test.jsonl").read_text().splitlines()) == 12
    Path("own-train.jsonl").write_text("".join(f'{{"question": "{n}?", "answer": "{n}"}}\n' for n in range(30)))
    assert main(["init", "own-train.jsonl", "--actor", "smollm2", "--out", "own.yaml", "--force"]) == 2
    assert "own-train.jsonl: these are your rows, which stay as they are" in capfd.readouterr().err


def test_a_folder_that_is_not_there_is_told_before_anything_is_asked(
    server: MockServer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(server, "--out", "nowhere/own.yaml")) == 2
    assert "there is no folder nowhere; make it first" in capfd.readouterr().err
    assert server.calls == 0


def test_a_wrong_key_is_one_line_and_leaves_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def refused(call: Call) -> str:
        return "401"

    with MockServer(fault=refused) as server:
        assert main(arguments(server)) == 2
    err = capfd.readouterr().err
    assert err.startswith("actor: ")
    assert KEY not in err
    assert err.count("\n") == 1
    assert sorted(file.name for file in Path().glob("sums*")) == ["sums.csv"]


@pytest.mark.parametrize(("shift", "words"), [(0, "right nearly always"), (1, "never right")])
def test_an_actor_that_leaves_nothing_to_learn_is_told(
    shift: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def always(body: dict[str, Any]) -> str:
        first, second = map(int, re.findall(r"(\d+) \+ (\d+)", str(body["messages"][-1]["content"]))[0])
        return str(first + second + shift)

    with MockServer(reply=always) as server:
        assert main(arguments(server)) == 0
    assert f"warning    the actor is {words}" in capfd.readouterr().out


def test_a_column_that_cannot_be_told_is_asked_for_on_a_terminal_only(
    server: MockServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("sums.csv").read_text().replace("problem,result,answer", "problem,guess,sum")
    Path("sums.csv").write_text(text)
    assert main(arguments(server, "--samples", "0")) == 2
    assert "which column is the answer? it could be guess, sum; say --answer COLUMN" in capfd.readouterr().err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("sum\n"))
    assert main(arguments(server, "--samples", "0", "--yes")) == 2
    assert main(arguments(server, "--samples", "0")) == 0
    out, err = capfd.readouterr()
    assert "Which column is the answer? (guess, sum)" in err
    assert "answer     sum (--answer)" in out


def test_what_the_flags_say_stands_in_the_recipe(server: MockServer, tmp_path: Path) -> None:
    Path("parts").mkdir()
    more = ["--topology", "critic", "--full", "--max-tokens", "77", "--out", "parts/own.yaml", "--samples", "0"]
    assert main(arguments(server, *more, "--trainee", "own/model")) == 0
    recipe = load_recipe("parts/own.yaml")
    assert (recipe.name, recipe.topology.name) == ("own", "critic")
    assert recipe.team["collaborator"].train == "full"
    actor = recipe.team["actor"]
    assert (actor.sampling.max_tokens, actor.key_env, actor.price.input, actor.price.output) == (77, "OWN_KEY", 1, 2)
    train = [json.loads(line) for line in Path("parts/own-train.jsonl").read_text().splitlines()]
    assert recipe.max_cost is not None
    assert len(train) == 48
    assert set(train[0]) == {"id", "question", "answer"}


def judged(body: dict[str, Any]) -> str:
    """The actor is right on even questions; the referee holds an answer against the row's, the lenient one does not."""
    asked = str(body["messages"][-1]["content"])
    if mark := re.search(r"^Score (\w{6}): N$", asked, re.MULTILINE):
        reasons = re.findall(rf"^{mark[1]}\| (Because .*)", asked, re.MULTILINE)
        alike = len(reasons) == 2 and len(set(reasons)) == 1
        return f"Read.\nScore {mark[1]}: {4 if alike or body['model'] == 'lenient' else 0}"
    number = int(re.findall(r"Why (\d+)", asked)[0])
    return reason(number) if number % 2 == 0 else "Who knows."


def reason(number: int) -> str:
    return f"Because {number} is so, which follows from all that has been said before it."


@pytest.mark.parametrize(("judge", "warned"), [("referee", False), ("lenient", True)])
def test_long_answers_get_a_judge_that_is_tried_first(
    judge: str, warned: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    data = ({"question": f"Why {n}?", "answer": reason(n)} for n in range(40))
    Path("whys.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    with MockServer(reply=judged) as server:
        arguments = ["init", "whys.jsonl", "--actor", "small", "--base-url", server.base_url, "--judge", judge]
        assert main([*arguments, "--samples", "4"]) == 0
    out = capfd.readouterr().out
    given = "1 1 1 1" if warned else "0 0 0 0"
    assert f"judge      gives the rows' own answers 1 1 1 1, answers to other rows {given}" in out
    assert ("warning    the judge hardly tells right answers from wrong ones" in out) == warned
    recipe = load_recipe("whys.yaml")
    assert recipe.team["judge"].model == judge
    assert "rubric:" in Path("whys.yaml").read_text()


def test_a_key_that_is_not_there_is_told_before_the_rows_are_read(
    server: MockServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OWN_KEY")
    assert main(arguments(server)) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("", "actor: no key in $OWN_KEY; export it, or ask nobody with --samples 0\n")
    assert main(arguments(server, "--samples", "0")) == 0
