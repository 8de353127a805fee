"""What `pilotfish eval` says of episodes without a verdict, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from board import board
from mock_server import Call, MockServer
from pilotfish.cli import main


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


def evaluated(data: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    """The exit code, what was said without progress, and the tables."""
    Path("own.yaml").write_text(json.dumps(data))
    code = main(["eval", "own.yaml"])
    out, err = capfd.readouterr()
    return code, [line for line in err.splitlines() if " tasks" not in line], out


def down_for(words: str) -> Callable[[Call], str | None]:
    """An outage for calls that hold some words."""
    return lambda call: "503" if words in str(call.body["messages"]) else None


def test_an_outage_is_told_with_its_commonest_reason_and_ends_with_1(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def down(call: Call) -> str:
        return "500" if "What is 3" in str(call.body["messages"]) else "503"

    with MockServer(fault=down) as server:
        code, said, out = evaluated(board(tmp_path, server.base_url, against=[]), capfd)
    assert code == 1
    for line, name in zip(said, ("first", "second"), strict=False):
        assert line.startswith(f"warning: {name}: solo: 6 of 6 episodes failed: actor: small at 127.0.0.1:")
        assert "the last: 503" in line
        assert line.endswith(" (5 of them)")
    assert said[2:] == ["first, second: no method has a verdict; mend that and give the same command again"]
    assert "in runs/own: results.md" in out
    assert Path("runs/own/report.html").exists()


def test_a_verifier_that_always_raises_is_no_success(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("def score(gold, text):\n    raise KeyError('gold')\n")
    with MockServer(reply="The answer is 1.") as server:
        data = board(tmp_path, server.base_url, against=[])
        data["evaluate"]["benchmarks"] = [{"source": data["evaluate"]["benchmarks"][0], "verifier": "mine.py:score"}]
        code, said, _ = evaluated(data, capfd)
    assert code == 1
    assert said[0].startswith("warning: first: solo: 6 of 6 episodes failed: ")
    assert "KeyError" in said[0]


def test_a_part_that_failed_is_told_and_the_evaluation_counts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with MockServer(reply="The answer is 1.", fault=down_for("What is 3")) as server:
        code, said, _ = evaluated(board(tmp_path, server.base_url), capfd)
        assert code == 0
        assert [line.split(": ")[1:4] for line in said] == [
            [name, arm, "1 of 6 episodes failed"] for name in ("first", "second") for arm in ("vote", "reflect", "solo")
        ]
        server.fault = None
        assert evaluated(board(tmp_path, server.base_url), capfd)[:2] == (0, [])


def test_a_method_without_any_verdict_does_not_cost_the_others_theirs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with MockServer(reply="The answer is 1.", fault=down_for("Your answer")) as server:
        code, said, _ = evaluated(board(tmp_path, server.base_url), capfd)
    assert code == 0
    assert [line.split(": ")[1:4] for line in said] == [
        [name, "reflect", "6 of 6 episodes failed"] for name in ("first", "second")
    ]
