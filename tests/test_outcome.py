"""Weights that no training has changed are called so wherever they are measured, served or exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from exporting import KEY, leave, recipe, trained
from mock_server import MockServer
from pilotfish.cli import main
from pilotfish.cli.train import summary
from pilotfish.evaluate.record import WEIGHTS
from pilotfish.outcome import outcomes
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.serve.main import open_app
from serving import running

torch.set_num_threads(1)
UNTRAINED = "the best weights are those before training (step 0): no later step was better on the holdout"
NO_HELP = (
    "stage second did not help on the holdout: its best weights are those that it began with (step 0), which stage "
    "first left"
)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(KEY, "sk-1")


def untrained(folder: Path, **more: Any) -> Path:
    """A run that no step has helped."""
    run = Run(trained(folder, change=0, **more))
    run.mark_best(run.best, 0)
    return run.folder


def staged(folder: Path, first: int, second: int, **more: Any) -> Run:
    """A run of two stages of full training, with the steps of their best weights."""
    base = recipe(folder, "full", **more)
    stages = dict.fromkeys(("first", "second"), base.train)
    run = Run(folder / "staged", base.model_copy(update={"stages": stages}))
    weights: Path | None = None
    for name, step in (("first", first), ("second", second)):
        stage = run.stage(name, run.recipe.at(name, weights), "")
        model = Path(stage.recipe.team["collaborator"].model)
        leave(stage, 1 / 16 if step else 0, base=model, adapter=False, step=step)
        weights = stage.best
    run.best.symlink_to(Path("stages", "second", "best"), target_is_directory=True)
    return run


def served(mine: Recipe, run: Run) -> tuple[bool, list[str]]:
    """Whether the team is called trained, and the notes at the start."""
    said: list[str] = []
    with running(open_app(mine, run, said.append)) as server:
        models = {model["id"]: model["pilotfish"]["trained"] for model in server.get("/v1/models").json["data"]}
    assert models["team"] == models["collaborator"]
    return models["team"], [line for line in said if line.startswith("note: ")]


def test_weights_of_step_0_are_untrained_but_those_that_an_earlier_stage_left(tmp_path: Path) -> None:
    [one] = outcomes(Run(untrained(tmp_path)))
    assert (one.name, one.trained, one.note) == ("trained", False, UNTRAINED)
    for first, second, expected in (
        (4, 8, [("first", True, ""), ("second", True, "")]),
        (4, 0, [("first", True, ""), ("second", True, NO_HELP)]),
        (
            0,
            0,
            [(name, False, UNTRAINED.replace("are", f"of stage {name} are", 1)) for name in ("first", "second")],
        ),
    ):
        (folder := tmp_path / f"{first}-{second}").mkdir()
        assert [(one.name, one.trained, one.note) for one in outcomes(staged(folder, first, second))] == expected


def test_an_unfinished_run_and_one_whose_weights_are_gone(tmp_path: Path) -> None:
    assert outcomes(Run(tmp_path / "new", recipe(tmp_path))) == []
    run = Run(untrained(tmp_path))
    run.keep("finished", {"best": 0})
    run.best.rename(tmp_path / "elsewhere")
    assert [one.trained for one in outcomes(run)] == [False]


def test_an_evaluation_says_that_what_is_named_trained_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MockServer(reply=lambda body: "\\boxed{4}") as server:
        folder = untrained(tmp_path, address=server.base_url)
        assert main(["eval", str(folder)]) == 0
    told = f"trained: {UNTRAINED}"
    assert f"\nnote: {told}\n" in capsys.readouterr().out
    found = json.loads((folder / "results.json").read_text())
    assert found[WEIGHTS] == {"trained": {"step": 0, "trained": False, "note": told}}
    assert "hint, trained" in [row["name"] for row in found["sums"]]
    for name in ("results.md", "report.md", "report.html"):
        assert told in (folder / name).read_text(), name

    Run(folder).mark_best(folder / "best", 3)  # as after further training
    assert main(["eval", str(folder), "--recorded"]) == 0
    said = capsys.readouterr()
    assert f"\nnote: {told}\n" in said.out, "the record has step 0"
    assert "does not answer" not in said.err, "no server is needed, so none is asked"
    shutil.rmtree(folder / "best")
    assert main(["eval", str(folder), "--recorded"]) == 0
    assert f"\nnote: {told}\n" in capsys.readouterr().out


def test_an_evaluation_of_trained_weights_has_no_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MockServer(reply=lambda body: "\\boxed{4}") as server:
        folder = trained(tmp_path, address=server.base_url)
        assert main(["eval", str(folder)]) == 0
    assert "note:" not in capsys.readouterr().out
    assert WEIGHTS not in json.loads((folder / "results.json").read_text())


def test_weights_of_other_runs_and_stages_are_told_by_their_name(tmp_path: Path) -> None:
    with MockServer(reply=lambda body: "\\boxed{4}") as server:
        run, other = staged(tmp_path, 4, 0, address=server.base_url), untrained(tmp_path, address=server.base_url)
        weights = {"before": other, "last": run.folder / "stages" / "second", "bare": run.best}
        named = json.dumps({name: str(folder) for name, folder in weights.items()})
        assert main(["eval", str(run.folder), "--set", f"evaluate.weights={named}"]) == 0
    found = json.loads((run.folder / "results.json").read_text())[WEIGHTS]
    assert {name: (one["trained"], one["note"]) for name, one in found.items()} == {
        "before": (False, f"before: {UNTRAINED}"),
        "last": (True, f"last: {NO_HELP}"),
        "second": (True, NO_HELP),
    }


def test_a_server_says_which_weights_speak(tmp_path: Path) -> None:
    run = Run(untrained(tmp_path))
    assert served(run.recipe, run) == (False, [f"note: {run.folder}: {UNTRAINED}"])
    run = staged(tmp_path, 4, 0)
    assert served(run.recipe, run) == (True, [f"note: {run.folder}: {NO_HELP}"])


def test_an_export_tells_a_stage_that_did_not_help_from_a_run_that_none_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = staged(tmp_path, 4, 0)
    assert main(["export", str(run.folder), "--model", str(tmp_path / "out")]) == 0
    assert f"warning: {NO_HELP}" in capsys.readouterr().err
    assert f"**S{NO_HELP[1:]}.**" in (tmp_path / "out" / "README.md").read_text()
    assert main(["export", str(untrained(tmp_path)), "--model", str(tmp_path / "none")]) == 2
    assert f"training changed none of the weights of {tmp_path / 'model'}: {UNTRAINED}" in capsys.readouterr().err


def test_a_training_that_helped_nothing_says_so(tmp_path: Path) -> None:
    assert f"note       {UNTRAINED}" in summary(Run(untrained(tmp_path)))
    run = Run(tmp_path / "run")
    run.mark_best(run.best, 3)
    assert UNTRAINED not in "".join(summary(run))
