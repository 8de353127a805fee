"""`pilotfish tasks`: the benchmarks, and a look into a source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.benchmarks import BENCHMARKS
from pilotfish.cli import main


def write(file: Path, *rows: dict[str, object]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_the_benchmarks_are_listed_with_size_and_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PILOTFISH_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["tasks"]) == 0
    shown = capsys.readouterr().out
    for name, known in BENCHMARKS.items():
        assert f" {name} " in shown
        assert f"{known.size:,}" in shown
        assert f"hf:{known.hub}" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_local_copy_is_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    write(tmp_path / "aime24.jsonl")
    assert main(["tasks"]) == 0
    shown = capsys.readouterr().out
    assert str(tmp_path / "aime24.jsonl") in shown
    assert f"hf:{BENCHMARKS['amc23'].hub}" in shown


def test_a_source_shows_its_first_tasks_and_counts_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"What is {n}?", "answer": str(n), "level": n % 2 + 1, "subject": "Sums"} for n in range(5)]
    assert main(["tasks", write(tmp_path / "mine.jsonl", *rows), "--limit", "2"]) == 0
    shown = capsys.readouterr().out
    assert "mine-1" in shown
    assert "mine-2" not in shown
    assert "5 tasks, judged by maths" in shown
    assert "by level: 1 (3), 2 (2)" in shown
    assert "by subject: Sums (5)" in shown


def test_options_of_the_source_are_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "mine.jsonl", {"q": "What is 2?", "answer": "2"}, {"q": "What is 3?", "answer": "3"})
    assert main(["tasks", file, "--set", "question=q", "--set", "limit=1", "--set", "verifier=exact"]) == 0
    assert "1 tasks, judged by exact" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([{"question": "a", "answer": "1"}, {"question": "", "answer": "1"}], [], "mine.jsonl:2: 'question' is empty"),
        ([{"question": "a", "answer": "1"}], ["--set", "lmit=1"], "lmit: no such option; there are: source"),
        ([{"question": "a", "answer": "1"}], ["--set", "limit=none"], "limit"),
        ([{"question": "a", "answer": "1"}], ["--set", "limit=["], "not a YAML value"),
    ],
)
def test_bad_rows_and_options_are_refused_by_name(
    rows: list[dict[str, object]],
    options: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tasks", write(tmp_path / "mine.jsonl", *rows), *options]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_markup_and_control_characters_of_a_task_do_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "mine.jsonl", {"question": "[bold red]a[/] \x1b[2J\x07 :smile:", "answer": "[/]"})
    assert main(["tasks", file]) == 0
    shown = capsys.readouterr().out
    assert "[bold red]a[/]" in shown
    assert ":smile:" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
