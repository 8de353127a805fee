"""What is said while a command runs: plain lines where there is no terminal, the time left, a summary at the end."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pilotfish.cli import progress
from pilotfish.cli.figures import duration, span
from pilotfish.cli.progress import Evaluation, Training
from pilotfish.cli.train import summary
from pilotfish.engine.meter import Meter
from pilotfish.recipe import parse_recipe
from pilotfish.run import Run

RECIPE = {
    "tasks": {"train": {"source": "gym:chain_sum"}, "holdout": 8},
    "team": {"collaborator": {"model": "smollm2", "train": "lora"}, "actor": {"model": "smollm2"}},
    "topology": "hint",
    "evaluate": {"benchmarks": ["amc23"]},
}


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock: its only entry is the time."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def console(terminal: bool = False) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=terminal, width=80, markup=False), written


def test_training_says_step_reward_holdout_and_time_left(seconds: list[float]) -> None:
    out, written = console()
    with Training(out, "loading", Meter()) as shown:
        shown.told("start", 0, {"steps": 4})
        seconds[0] = 100.0  # the evaluation before training has its own length: it is not counted as a step's
        shown.told("holdout", 0, {"holdout/accuracy": 0.25})
        seconds[0] = 110.0
        shown.told("step", 1, {"reward": 0.5, "seconds/step": 10.0})
        shown.told("note: something", 1, {})
        seconds[0] = 140.0
        shown.told("step", 4, {"reward": 0.75, "seconds/step": 10.0})
    assert written.getvalue().splitlines() == [
        "step 0/4  holdout accuracy 0.250",
        "step 1/4  10.0 s  reward 0.500  holdout 0.250  30 s left",
        "something",
        "step 4/4  10.0 s  reward 0.750  holdout 0.250",
    ]


def test_a_resumed_training_counts_from_where_it_goes_on(seconds: list[float]) -> None:
    out, written = console()
    with Training(out, "loading", Meter()) as shown:
        shown.told("start", 50, {"steps": 100})
        seconds[0] = 10.0
        shown.told("step", 51, {"reward": 0.0})
    assert "8 min left" in written.getvalue()


def test_a_terminal_gets_a_bar_with_the_same_figures(seconds: list[float]) -> None:
    out, written = console(terminal=True)
    with Training(out, "loading the [team]", Meter()) as shown:
        shown.bars.refresh()
        shown.told("start", 0, {"steps": 4})
        shown.told("step", 2, {"reward": 0.5})
        shown.bars.refresh()
    assert "loading the [team]" in written.getvalue()
    assert "step 2/4" in written.getvalue()
    assert "reward 0.500" in written.getvalue()


def test_evaluation_names_the_benchmark_of_each_arm(seconds: list[float]) -> None:
    out, written = console()
    with Evaluation(out, ["amc23", "math500"], Meter()) as shown:
        for of in (2, 3):
            for arm in ("solo", "hint"):
                for done in range(1, of + 1):
                    shown.told(arm, done, of)
    assert written.getvalue().splitlines() == [
        "amc23: solo: 2 tasks",
        "amc23: hint: 2 tasks",
        "math500: solo: 3 tasks",
        "math500: hint: 3 tasks",
    ]


def test_evaluation_tells_the_time_left_of_an_arm(seconds: list[float]) -> None:
    out, written = console(terminal=True)
    with Evaluation(out, ["amc23"], Meter()) as shown:
        shown.told("solo", 1, 5)
        seconds[0] = 20.0
        shown.told("solo", 3, 5)
        shown.bars.refresh()
    assert "3/5  20 s left" in written.getvalue()


@pytest.mark.parametrize(
    ("seconds_", "words"), [(0.31, "0.3 s"), (48.0, "48 s"), (720.0, "12 min"), (12_600.0, "3.5 h")]
)
def test_a_duration_reads_as_it_is_said(seconds_: float, words: str) -> None:
    assert duration(seconds_) == words


def test_the_summary_says_before_after_and_what_is_next(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", parse_recipe(RECIPE))
    for step, accuracy in ((0, 0.25), (10, 0.5), (20, 0.375)):
        run.log({"kind": "holdout", "step": step, "holdout/accuracy": accuracy})
    run.best.mkdir()
    run.mark_best(run.best, 10)
    assert summary(run) == [
        "holdout    0.250 before, 0.500 at step 10, the best (8 tasks)",
        f"weights    {run.best} (step 10)",
        f"next       pilotfish eval {run.folder}",
    ]


def test_the_summary_says_how_many_tasks_were_judged(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", parse_recipe(RECIPE))
    run.best.mkdir()
    run.mark_best(run.best, 2)
    lost = {"kind": "holdout", "holdout/no_verdict": 3}
    run.log(lost | {"step": 0, "holdout/accuracy": 0.25})
    run.log(lost | {"step": 2, "holdout/accuracy": 0.5})
    assert summary(run)[0] == "holdout    0.250 before, 0.500 at step 2, the best (5 tasks)"
    run.log({"kind": "holdout", "step": 2, "holdout/accuracy": 0.5, "holdout/no_verdict": 0})
    assert summary(run)[0].endswith("at step 2, the best (5 and 8 tasks)")
    run.log(lost | {"step": 0, "holdout/no_verdict": 8})
    assert summary(run)[0].startswith("weights"), "before training it was not measured"


def test_the_summary_of_a_run_without_a_holdout_or_benchmarks_says_where_the_weights_are(tmp_path: Path) -> None:
    bare = {**RECIPE, "evaluate": {}}
    run = Run(tmp_path / "run", parse_recipe(bare))
    run.best.mkdir()
    assert summary(run) == [f"weights    {run.best}"]


def test_bars_of_libraries_stay_out_of_the_progress() -> None:
    code = "from pilotfish.cli.progress import quieten; quieten(); from tqdm.auto import tqdm; list(tqdm(range(9)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_span_that_reads_alike_is_one_figure() -> None:
    assert span(1.0, 1.04) == "1.0 s"
    assert span(2.0, 90.0) == "2.0 s to 90 s"
