"""Trackers get what metrics.jsonl gets, the holdout included, and a run that is resumed stays one run in them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback
from transformers.integrations import integration_utils
from trl.extras.profiling import ProfilingContext

from pilotfish.cli import main
from pilotfish.preflight.doctor import recipe_findings
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.train.main import train
from training import vowels_recipe

torch.set_num_threads(1)
trackers = import_module("pilotfish.train.trackers")  # `pilotfish.train` is a function too
FIGURES = {"holdout/accuracy", "reward", "team/accuracy", "trainee/tokens", "seconds/step", "updates/lost", "entropy"}
TOTALS = {"total_flos", "train_loss", "train_runtime", "train_samples_per_second", "train_steps_per_second"}
"""What transformers tells at the end of a training."""


class Killed(Exception):
    """A run that ends in the middle."""


class Recorder(TrainerCallback):
    """Stands where tensorboard's callback does."""

    runs: list[Recorder] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.tb_writer, self.logging_dir = None, None
        self.name = ""
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.runs.append(self)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        self.name = args.run_name
        self.logged.append((state.global_step, dict(logs)))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """What `tensorboard` is told, of each start of a run."""
    monkeypatch.setattr(Recorder, "runs", [])
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "tensorboard", Recorder)
    monkeypatch.setattr(trackers, "find_spec", lambda name: name)
    return Recorder.runs


def reporting(folder: Path, *to: str) -> Recipe:
    settings = {"steps": 4, "updates_per_step": 2, "micro_batch": 8, "evaluate_every": 2, "save_every": 1}
    return vowels_recipe(folder, report_to=to, **settings)


def killed_and_resumed(recipe: Recipe, folder: Path) -> None:
    """Killed after the third of four steps."""

    def told(kind: str, step: int, figures: Any) -> None:
        if kind == "step" and step == 3:
            raise Killed

    with pytest.raises(Killed):
        train(recipe, folder, told=told)
    train(recipe, folder)


def test_a_tracker_gets_the_figures_of_every_step_and_of_the_holdout(tmp_path: Path, recorded: list[Recorder]) -> None:
    run = train(reporting(tmp_path, "tensorboard"), tmp_path / "run")
    [one] = recorded
    told = {(update, name): value for update, figures in one.logged for name, value in figures.items()}
    rows = list(run.logged())
    assert {row["step"] for row in rows if row["kind"] == "holdout"} == {0, 2, 4}
    for row in rows:
        figures = {name: value for name, value in row.items() if name not in ("kind", "step")}
        assert figures.items() <= {name: told.get((2 * row["step"], name)) for name in figures}.items()
    assert {name for _, name in told} >= FIGURES
    assert None not in told.values()
    named = {name for row in rows for name in row}
    assert {name for _, name in told} - named == TOTALS


def test_trls_own_times_stay_out(tmp_path: Path, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    to: list[list[str]] = []
    monkeypatch.setattr(ProfilingContext, "_log_metrics", lambda self, duration: to.append(self.report_to))
    train(reporting(tmp_path, "tensorboard"), tmp_path / "run")
    assert recorded[0].logged
    assert not any(to), "each is logged where TRL reports to"
    assert to


def test_a_resumed_run_is_one_run_and_another_run_is_another(tmp_path: Path, recorded: list[Recorder]) -> None:
    recipe = reporting(tmp_path, "tensorboard")
    killed_and_resumed(recipe, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    train(recipe, tmp_path / "elsewhere" / "run")
    first, resumed, other = recorded
    assert first.name == resumed.name != other.name
    assert first.name.startswith("run-")
    assert first.logging_dir == resumed.logging_dir == str(tmp_path / "run" / "tensorboard")
    assert [update for update, figures in resumed.logged if "loss" in figures] == [6, 8]


def test_a_tracker_that_is_missing_or_unknown_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    recipe = reporting(tmp_path, "wandb")
    (tmp_path / "own.yaml").write_text(recipe.dump())
    assert main(["train", str(tmp_path / "own.yaml"), "--run", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "report_to: wandb is not installed; pip install wandb, or leave it out"
    )
    assert not (tmp_path / "run").exists()
    with pytest.raises(RecipeError, match="'tensorbord' is no tracker; choose from trackio, tensorboard, wandb"):
        train(reporting(tmp_path, "tensorbord"), tmp_path / "run")
    [found] = [finding for finding in recipe_findings(recipe) if finding.name == "report_to"]
    assert (found.status, found.what, found.way_out) == (
        "fail",
        "wandb is not installed",
        "pip install wandb, or leave it out",
    )


def test_tensorboards_event_files_hold_the_run(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard here")
    killed_and_resumed(reporting(tmp_path, "tensorboard"), tmp_path / "run")
    found = events.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {f"train/{name}" for name in FIGURES} <= set(found.Tags()["scalars"])
    assert [event.step for event in found.Scalars("train/holdout/accuracy")] == [0, 4, 8]
    assert [event.step for event in found.Scalars("train/seconds/step")][-2:] == [6, 8]


TRACKED = """
import json, sqlite3, sys
from pathlib import Path
from test_train_trackers import killed_and_resumed, reporting
folder = Path(sys.argv[1])
killed_and_resumed(reporting(folder, "trackio"), folder / "run")
[file] = Path(sys.argv[2]).glob("*.db")
rows = sqlite3.connect(file).execute("select run_name, metrics from metrics").fetchall()
print(json.dumps([[name, json.loads(metrics)] for name, metrics in rows]))
"""


def test_trackios_database_holds_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio", reason="no trackio here")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported: in a process of its own
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    command = [sys.executable, "-c", TRACKED, str(tmp_path), str(tmp_path / "trackio")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = json.loads(printed.splitlines()[-1])
    assert len({name for name, _ in rows}) == 1
    told = [figures for _, figures in rows]
    names = {name for figures in told for name in figures}
    assert {f"train/{name}" for name in FIGURES} <= names
    assert not [name for name in names if name.startswith("profiling/")]
    assert [one["train/global_step"] for one in told if "train/holdout/accuracy" in one] == [0, 4, 8]
