"""An evaluation as logs of inspect_ai: read by hand, and by the library where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from mock_server import Call, Fault
from pilotfish.cli import main
from reporting import evaluated

ODD = "half a pair \ud800 and a whole one \U0001f41f"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hint and solo on three tasks, of which the last one failed for both."""
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))

    def said(model: str, text: str) -> str:
        return f"Count on. {ODD}" if model == "collaborator" else "\\boxed{1}"

    def broken(call: Call) -> Fault:
        return "503" if "task 2:" in call.body["messages"][-1]["content"] else None

    return evaluated(tmp_path, said, count=3, fault=broken, choices={"reasoning_content": "one and none"})


def read(file: Path) -> dict[str, Any]:
    with ZipFile(file) as zipped:
        assert zipped.testzip() is None
        return {name: json.loads(zipped.read(name)) for name in zipped.namelist()}


def test_each_method_is_a_log_of_its_samples(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--inspect"]) == 0
    assert "2 logs in" in capsys.readouterr().out
    assert {file.name for file in (run / "inspect").iterdir()} == {"sums_solo.eval", "sums_hint.eval"}
    log = read(run / "inspect" / "sums_hint.eval")
    assert log["header.json"]["eval"]["task"] == "sums"
    assert log["header.json"]["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 0.5
    sample = log["samples/sums-0_epoch_1.json"]
    assert [message["role"] for message in sample["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert sample["scores"]["verdict"] == {"value": 1.0, "answer": "1", "explanation": ""}
    assert [event["role"] for event in sample["events"]] == ["collaborator", "actor"]
    scores = [json.loads(line) for line in (run / "scores.jsonl").open(encoding="utf-8")]
    usage = next(score for score in scores if (score["arm"], score["task"]) == ("hint", "sums-0"))["usage"]
    assert sample["role_usage"]["actor"]["output_tokens"] == usage["actor"]["completion"]
    assert log["header.json"]["stats"]["role_usage"].keys() == {"collaborator", "actor"}


def test_what_failed_is_an_error_and_has_no_score(run: Path) -> None:
    assert main(["export", str(run), "--inspect"]) == 0
    log = read(run / "inspect" / "sums_solo.eval")
    failed = log["samples/sums-2_epoch_1.json"]
    assert failed["scores"] is None
    assert "503" in failed["error"]["message"]
    assert log["header.json"]["results"]["scores"][0]["unscored_samples"] == 1


def test_the_same_evaluation_gives_the_same_logs(run: Path) -> None:
    assert main(["export", str(run), "--inspect", "--out", str(run / "one")]) == 0
    assert main(["export", str(run), "--inspect", "--out", str(run / "two")]) == 0
    for file in (run / "one").iterdir():
        assert read(file) == read(run / "two" / file.name)


def test_inspect_reads_the_logs(run: Path) -> None:
    inspect = pytest.importorskip("inspect_ai.log")
    assert main(["export", str(run), "--inspect"]) == 0
    file = str(run / "inspect" / "sums_hint.eval")
    log = inspect.read_eval_log(file)
    assert log.status == "success"
    assert [(sample.id, sample.epoch) for sample in log.samples] == [("sums-0", 1), ("sums-1", 1), ("sums-2", 1)]
    sample = inspect.read_eval_log_sample(file, id="sums-0", epoch=1)
    assert sample.messages[2].text == f"Count on. {ODD}".replace("\ud800", "?")
    assert sample.scores["verdict"].as_float() == 1.0
    assert sample.role_usage["collaborator"].total_tokens > 0
    assert sample.events[0].output.choices[0].message.content[0].reasoning == "one and none"
    assert [summary.id for summary in inspect.read_eval_log_sample_summaries(file)] == ["sums-0", "sums-1", "sums-2"]


def test_what_cannot_be_written_is_refused_by_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run)]) == 2
    assert "pilotfish export RUN --inspect" in capsys.readouterr().err
    (run / "journal").rename(run / "away")
    assert main(["export", str(run), "--inspect"]) == 2
    assert "the journal lacks episode" in capsys.readouterr().err
    assert not list((run / "inspect").glob("*.eval"))
