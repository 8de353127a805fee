"""`pilotfish collect` from the command line, what it shows while it runs, and training on what it collected."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from collecting import answer, recipe
from mock_server import MockServer
from pilotfish import Run, collect, train
from pilotfish.cli import main, progress
from pilotfish.cli.progress import Training
from pilotfish.collect.store import Store
from pilotfish.engine.meter import Meter
from pilotfish.recipe import Recipe
from tiny import save_tiny


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=answer) as opened:
        yield opened


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def own(server: MockServer, tmp_path: Path) -> Path:
    """A recipe's file."""
    data = recipe(tmp_path, server.base_url).model_dump(mode="json", exclude={"name"})
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(data))
    return tmp_path / "own.yaml"


def learning(folder: Path, base_url: str, **more: Any) -> Recipe:
    """A recipe whose leader is a tiny model."""
    settings = {"group_size": 2, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 4, "steps": 1}
    data = recipe(folder, base_url, train={**settings, "prefix": "stored", "horizon": "decision"}, **more)
    whole = data.model_dump(mode="json")
    tiny = {"model": str(save_tiny(folder / "model")), "dtype": "float32", "sampling": {"max_tokens": 4}}
    whole["team"]["leader"] = {"train": "full", **tiny}
    # As many tokens as two answers have at most: the tiny model reads 512.
    whole["topology"] = {"name": "leader", "options": {"budget": 16}, "prompts": {"lead": {"user": "{answers}"}}}
    return Recipe.model_validate(whole)


def test_collected_exported_and_read_into_another_run(
    own: Path, server: MockServer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", str(own), "--export", "answers.jsonl.gz"]) == 0
    out, err = capfd.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["round", "accuracy", "right", "exported", "next"]
    assert "round 0    8 sets, 16 answers" in out
    assert "exported   16 rows to answers.jsonl.gz" in out
    assert "next       pilotfish train runs/own" in out
    assert err.startswith("collect 8/8  16 answers  ")
    calls = server.calls
    assert main(["collect", str(own), "--run", "runs/other", "--import", "answers.jsonl.gz"]) == 0
    assert "nobody is asked" in capfd.readouterr().err
    assert main(["collect", "runs/other", "--export", "again.parquet"]) == 0
    assert server.calls == calls
    assert Path("again.parquet").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rounds", "one"], "--rounds one: not numbers; write 0, or 1,2"),
        (["--rounds", "-1"], "rounds is [-1]; name 0 for the agents' own answers"),
        (["--export", "answers.csv"], "answers.csv: stored answers are read and written as"),
        (["--import", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--rounds", "1", "--leader", "nowhere"], "nowhere: no run there"),
        (["--leader", "other"], "leader is 'other', and nobody leads in round 0; add --rounds 1,2"),
        (["--rounds", "1", "--leader", "other", "--import", "x.jsonl"], "and a file names its own leader"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    options: list[str], said: str, own: Path, server: MockServer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", str(own), *options]) == 2
    err = capfd.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert server.calls == 0


def test_a_file_of_answers_is_trained_on_and_the_trained_leader_shapes_the_next(
    server: MockServer, tmp_path: Path
) -> None:
    whole = learning(tmp_path, server.base_url)
    collect(whole, "first")
    from pilotfish.collect.exchange import export

    export(Run("first"), Path("answers.jsonl"))
    calls = server.calls
    named = whole.model_copy(update={"collect": whole.collect.model_copy(update={"answers": Path("answers.jsonl")})})
    run = train(named, "second")
    assert server.calls == calls
    assert run.best.exists()
    assert run.state("filter")["counts"]["kept"] >= 2

    found = collect(whole, "first", rounds=(1,), leader="second")
    assert server.calls == calls + 8 * 2
    assert (found.rounds[0].round, found.answers) == (1, 16)
    store = Store("first")
    assert store.manifest is not None
    assert [leader.model for leader in store.manifest.leaders.values()] == ["second/best"]
    assert collect(whole, "first", rounds=(1,), leader="second").answers == 16
    assert server.calls == calls + 8 * 2


def test_a_run_that_has_begun_keeps_its_tasks(server: MockServer, tmp_path: Path) -> None:
    whole = learning(tmp_path, server.base_url)
    collect(whole, "run")
    with Run("run", whole) as run:
        run.keep("filter", {"kept": ["t1", "t2"]})
    train(whole, "run")
    assert Run("run").state("filter")["kept"] == ["t1", "t2"]


def shown(monkeypatch: pytest.MonkeyPatch, news: list[tuple[float, int, int]], terminal: bool = False) -> str:
    """What is written for news of (time, sets done of 100, answers)."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    written = io.StringIO()
    with Training(
        Console(file=written, force_terminal=terminal, width=80, markup=False), "loading", Meter()
    ) as training:
        for now[0], done, answers in news:
            training.told("collect", done, {"of": 100, "answers": answers, "absent": 2})
            training.bars.refresh()
    return written.getvalue()


def test_a_long_collection_says_a_line_a_minute_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    news = [(0.0, 10, 30), (30.0, 20, 60), (60.0, 30, 90), (90.0, 40, 120), (180.0, 100, 300)]
    assert shown(monkeypatch, news).splitlines() == [
        "collect 30/100  90 answers  1.0/s  4 min left  2 absent",
        "collect 100/100  300 answers  1.5/s  2 absent",
    ]


def test_a_terminal_gets_a_bar_with_answers_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    written = shown(monkeypatch, [(0.0, 0, 0), (10.0, 50, 150)], terminal=True)
    assert "collect 50/100" in written
    assert "150 answers  15/s  10 s left  2 absent" in written
