"""The example of docs/own-tasks.md runs as it is written, with judges, on the stand-in for their server."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pilotfish import Recipe, Run, evaluate, load_recipe, train
from pilotfish.cli import main
from pilotfish.preflight.doctor import recipe_findings
from pilotfish.preflight.estimate import estimate_recipe
from tiny import save_tiny

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples" / "judged"))
from stand_in import Handler  # noqa: E402


class Server(ThreadingHTTPServer):
    """Counts the calls of each member."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Counting)
        self.calls: dict[str, int] = {}


class Counting(Handler):
    def _send(self, data: dict[str, Any]) -> None:
        calls = self.server.calls  # type: ignore[attr-defined]
        if self.command == "POST":
            calls[self.model] = calls.get(self.model, 0) + 1
        super()._send(data)


def a_model(folder: Path) -> Path:
    """The tiny one, with room for the prompts of the example."""
    file = save_tiny(folder) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": 2048}))
    return folder


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Recipe, Run, Server]]:
    folder = tmp_path_factory.mktemp("judged")
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("PILOTFISH_CACHE", str(folder / "cache"))
        settings = {f"team.{name}.base_url": address for name in ("writer", "judge", "second")}
        settings |= {"team.editor.model": str(a_model(folder / "model")), "team.editor.dtype": "float32"}
        settings |= {"team.editor.train": "lora", "train.steps": "1"}
        recipe = load_recipe("examples/judged/recipe.yaml", settings)
        run = train(recipe, folder / "run")
        evaluate(recipe, run)
        yield recipe, run, server
    server.shutdown()
    server.server_close()


def test_it_trains_on_the_judges_scores(played: tuple[Recipe, Run, Server]) -> None:
    _, run, server = played
    steps = [row for row in run.logged() if row["kind"] == "step"]
    assert len(steps) == 1
    assert all(0 <= row["reward"] <= 1 and row["tokens/judge"] > 0 for row in steps)
    assert {row["team/no_verdict"] for row in steps} == {0.0}
    assert set(server.calls) == {"writer", "judge", "second"}


def test_each_call_that_was_asked_is_in_the_accounts(played: tuple[Recipe, Run, Server]) -> None:
    """Both judges and the rule are given the same answers of the same teams, which are asked for once."""
    _, run, server = played
    results = json.loads((run.folder / "results.json").read_text())
    trained_on, held_out, by_rule = (results["asked"][name] for name in ("trained on", "held out", "by rule"))
    assert "second" not in trained_on
    assert "judge" not in held_out
    assert set(by_rule) == {"writer", "editor"}
    assert held_out["writer"]["calls"] == by_rule["writer"]["calls"] == 0
    assert held_out["second"]["calls"] == server.calls["second"]
    assert {row["name"] for row in results["held out"]} == {"solo", "edited, untrained", "edited, trained"}


def test_a_judge_is_tried_on_answers_that_are_written_down(
    played: tuple[Recipe, Run, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    address = f"http://127.0.0.1:{played[2].server_address[1]}/v1"
    recipe = load_recipe("examples/judged/probe.yaml", {"team.judge.base_url": address})
    run = Run(tmp_path / "run", recipe)
    (result,) = evaluate(recipe, run)
    assert {score.task: score.reward for score in result.scores} == {
        "good": 1.0,
        "wrong": 1.0,  # the stand-in counts words and cannot read
        "commands": 0.25,
        "praises": 0.25,
    }


def test_judges_are_in_the_estimate_and_in_no_room(played: tuple[Recipe, Run, Server]) -> None:
    recipe, *_ = played
    calls = {(line.stage, line.member): line.likely.calls for line in estimate_recipe(recipe).lines}
    assert calls["training", "judge"] > 0
    assert calls["edited, trained", "judge"] == calls["edited, trained", "second"] == 4
    findings = {finding.name: finding for finding in recipe_findings(recipe)}
    assert "of judge" in findings["topology"].what
    assert [finding for finding in findings.values() if finding.status == "fail"] == []


def test_the_pages_commands_print_what_the_page_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    command = ["tasks", "examples/judged/held_out.jsonl", "--limit", "0"]
    assert main([*command, "--set", "verifier=examples/own_verifier.py:within_limits"]) == 0
    printed = capsys.readouterr().out.strip()
    assert printed == "4 tasks, judged by examples/own_verifier.py:within_limits"
    assert printed in (ROOT / "docs" / "own-tasks.md").read_text(encoding="utf-8")
