"""A recipe with stages: each starts from the weights of the one before, is resumed, and is not run twice.

The run that is killed is a child of its own:

    python tests/test_train_stages.py RECIPE.yaml FOLDER CALL
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from counting import count_calls
from pilotfish import Journal, evaluate
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.recipe_file import load_recipe
from pilotfish.run import Run, RunError
from pilotfish.seats import Seats
from pilotfish.train.main import train
from tiny import save_tiny

TRAINING = {"horizon": "decision", "group_size": 2, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 4}
TRAINING |= {"steps": 2, "learning_rate": 1e-3, "warmup_steps": 0, "evaluate_every": 2, "save_every": 1}


def data(folder: Path) -> dict[str, Any]:
    """A leader and two agents on one tiny model, all stages."""
    model = str(save_tiny(folder / "model"))
    config = json.loads((folder / "model" / "config.json").read_text())
    (folder / "model" / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    tasks = [{"id": f"t{n}", "question": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(5)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    (folder / "test.jsonl").write_text(json.dumps({"id": "x", "question": "And 70?", "answer": "71"}) + "\n")
    agent = {"model": model, "dtype": "float32", "sampling": {"temperature": 0.8, "max_tokens": 3}}
    leader = {"model": model, "dtype": "float32", "train": "full", "sampling": {"temperature": 0, "max_tokens": 4}}
    chats = [{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>a</think>"}]}]
    (folder / "form.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats * 4))
    return {
        "tasks": {"train": str(folder / "tasks.jsonl"), "holdout": 1},
        "team": {"leader": leader, "ann": agent, "bob": agent},
        "topology": {"name": "leader", "options": {"rounds": 2}},
        "collect": {"sets": 2, "drop_right": None},
        "stages": {
            "form": {"method": "sft", "data": str(folder / "form.jsonl"), "steps": 2, "batch": 4},
            "answers": {"method": "collect"},
            "backtracking": {"method": "backtrack", "samples": 2},
            "mlpo": {"prefix": "stored", **TRAINING},
            "shaped": {"method": "collect", "rounds": [1, 2]},
            "mlpo+": {"prefix": "shaped", "decision": [1, 2], **TRAINING},
        },
        "evaluate": {"benchmarks": [str(folder / "test.jsonl")], "alone": True},
    }


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return parse_recipe(data(tmp_path_factory.mktemp("stages")))


@pytest.fixture(scope="module")
def whole(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[str], int]:
    """An unbroken run, what it told, and how many calls it made."""
    notes: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformersEngine, "complete", TransformersEngine.complete)
        calls = count_calls()
        folder = tmp_path_factory.mktemp("whole") / "run"
        run = train(recipe, folder, told=lambda kind, step, figures: notes.append(kind))
    return run, notes, len(calls)


def said(folder: Path) -> set[str]:
    journal = Journal(folder / "journal", writable=False)
    found = {turn.key for turn in journal.turns()}
    journal.close()
    return found


def test_the_stages_follow_one_another_and_each_starts_from_the_weights_before(whole: Any) -> None:
    run, notes, _ = whole
    assert [note for note in notes if note.startswith("note: stage")] == [
        f"note: stage {name}" for name in ("form", "answers", "backtracking", "mlpo", "shaped", "mlpo+")
    ]
    models = {stage.folder.name: stage.recipe.team["leader"].model for stage in run.stages()}
    assert models["mlpo"] == str(run.folder / "stages" / "form" / "best"), "backtracking found no chain"
    assert models["mlpo+"] == str(run.folder / "stages" / "mlpo" / "best")
    assert run.best.resolve() == (run.folder / "stages" / "mlpo+" / "best").resolve()


def test_training_on_stored_answers_asks_no_agent(whole: Any) -> None:
    run, _, _ = whole
    journal = Journal(run.folder / "journal", writable=False)
    trained = list(journal.episodes("mlpo%/train/%"))
    asked = [p.turn for e in trained for p in e.turns if p.turn.member != "leader" and p.turn.asker.startswith("mlpo")]
    journal.close()
    assert len(trained) == 2 * 2 * 4
    assert asked == []


def test_a_finished_run_makes_no_call_when_it_is_trained_again(
    recipe: Recipe, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _, _ = whole
    monkeypatch.setattr(TransformersEngine, "complete", TransformersEngine.complete)
    calls, notes = count_calls(), []
    train(recipe, run.folder, told=lambda kind, step, figures: notes.append(kind))
    assert calls == []
    assert notes.count("note: this stage is finished; nothing is done again") == 4


@pytest.mark.parametrize("share", [0.15, 0.5, 0.8])
def test_a_killed_run_goes_on_and_asks_at_most_what_was_in_flight_again(
    share: float, recipe: Recipe, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _, total = whole
    (tmp_path / "recipe.yaml").write_text(recipe.dump())
    at = int(share * total)
    script = [sys.executable, __file__, str(tmp_path / "recipe.yaml"), str(tmp_path / "run"), str(at)]
    assert subprocess.run(script, check=False, capture_output=True).returncode == -signal.SIGKILL
    cut = Run(tmp_path / "run")
    done = [stage.best.resolve() for stage in cut.stages() if stage.finished]
    assert [cut.best.resolve()] * cut.best.exists() == done[-1:], "what is served until it goes on"
    before = said(tmp_path / "run")
    monkeypatch.setattr(TransformersEngine, "complete", TransformersEngine.complete)
    calls = count_calls()
    train(recipe, tmp_path / "run")
    assert said(tmp_path / "run") >= before
    in_flight = 16
    assert at - 1 + len(calls) <= total + in_flight
    assert [stage.best_step for stage in Run(tmp_path / "run").stages()] == [stage.best_step for stage in run.stages()]


def test_the_trainees_seat_is_vacated_before_it_learns_unless_a_frozen_member_sits_there(
    recipe: Recipe, tmp_path: Path
) -> None:
    apart = shutil.copytree(recipe.team["leader"].model, tmp_path / "apart")
    for model, left in ((str(apart), 1), (recipe.team["leader"].model, 1)):
        leader = recipe.team["leader"].model_copy(update={"model": model})
        seats = Seats(recipe.model_copy(update={"team": {**recipe.team, "leader": leader}}))
        leads, reads = seats.engine("leader"), seats.engine("ann")
        asyncio.run(seats.vacate())
        assert len(seats._engines) == left
        assert seats.engine("ann") is reads
        assert (seats.engine("leader") is leads) == (model != str(apart))
        asyncio.run(seats.close())


def test_a_stage_that_is_null_is_left_out(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(recipe.dump())
    settings = {f"stages.{name}": "null" for name in ("backtracking", "shaped", "mlpo+")}
    short = load_recipe(tmp_path / "recipe.yaml", settings)
    run = train(short, tmp_path / "run")
    assert [stage.folder.name for stage in run.stages()] == ["form", "mlpo"]


def test_a_stage_that_is_trained_again_is_asked_again_and_what_followed_the_old_one_is_refused(
    recipe: Recipe, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(whole[0].folder, tmp_path / "run", symlinks=True)
    shutil.rmtree(folder / "stages" / "mlpo")
    monkeypatch.setattr(TransformersEngine, "complete", TransformersEngine.complete)
    calls = count_calls()
    with pytest.raises(RunError, match=r"mlpo\+: began from mlpo#3, and now follows mlpo#5; remove this folder"):
        train(recipe, folder)
    assert len(calls) > 2 * 4, "the stage's rows, and the answers that its weights shape"


def test_a_run_that_was_moved_goes_on(recipe: Recipe, whole: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(whole[0].folder, tmp_path / "moved", symlinks=True)
    shutil.rmtree(folder / "stages" / "mlpo+")
    run = train(recipe, folder)
    assert run.stages()[-1].recipe.team["leader"].model == str(folder / "stages" / "mlpo" / "best")


def test_a_stage_that_is_added_is_part_of_the_run(recipe: Recipe, whole: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(whole[0].folder, tmp_path / "run", symlinks=True)
    more = recipe.model_copy(update={"stages": {**recipe.stages, "more": recipe.stages["mlpo"]}})
    train(more, folder)
    train(load_recipe(folder), folder)
    assert Run(folder).stages()[-1].folder.name == "more"
    assert (folder / "best").resolve().parent.name == "more"


def test_settings_that_changed_are_refused_before_any_stage_goes_on(recipe: Recipe, whole: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(whole[0].folder, tmp_path / "run", symlinks=True)
    (tmp_path / "recipe.yaml").write_text(recipe.dump())
    changed = load_recipe(tmp_path / "recipe.yaml", {"stages.mlpo+.learning_rate": "0.5"})
    first = {"first": recipe.stages["form"], **changed.stages}
    with pytest.raises(RunError, match=r"mlpo\+: holds a run of another recipe \(train.learning_rate differ\)"):
        train(changed.model_copy(update={"stages": first}), folder)
    assert not (folder / "stages" / "first").exists()


def test_every_stage_is_an_arm_of_the_evaluation(recipe: Recipe, whole: Any) -> None:
    run, _, _ = whole
    with Run(run.folder, recipe) as opened:
        (result,) = evaluate(recipe, opened)
    names = ["untrained", "form", "mlpo", "mlpo+"]
    assert [row.name for row in result.rows if "," in row.name] == [
        f"{kind}, {n}" for n in names for kind in ("alone", "leader")
    ]


def test_the_weights_of_another_run_sit_beside_the_runs_own(recipe: Recipe, whole: Any, tmp_path: Path) -> None:
    run, _, _ = whole
    other = {"zero-shot": run.folder / "stages" / "form"}
    made = recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"weights": other})})
    folder = shutil.copytree(run.folder, tmp_path / "run", symlinks=True)
    with Run(folder, made) as opened:
        (result,) = evaluate(made, opened)
    names = [row.name for row in result.rows]
    assert names.index("leader, zero-shot") < names.index("leader, form") < names.index("leader, mlpo+")
    last = next(row for row in result.rows if row.name == "leader, mlpo+")
    assert "leader, zero-shot" in last.difference_to
    for name, place, why in (
        ("form", other["zero-shot"], "'form' is what"),
        ("x", tmp_path, "holds no trained weights"),
    ):
        wrong = made.model_copy(update={"evaluate": made.evaluate.model_copy(update={"weights": {name: place}})})
        with Run(folder, wrong) as opened, pytest.raises(RecipeError, match=why):
            evaluate(wrong, opened)


def test_what_cannot_be_staged_is_refused_by_name(tmp_path: Path) -> None:
    wrong = data(tmp_path)
    with pytest.raises(RecipeError, match="train and stages are both given"):
        parse_recipe({**wrong, "train": {"steps": 3}})
    with pytest.raises(RecipeError, match=r"method 'dpo' is not one of grpo, sft, backtrack, collect"):
        parse_recipe({**wrong, "stages": {"a": {"method": "dpo"}}})
    with pytest.raises(RecipeError, match=r"a stage is called 'a b'"):
        parse_recipe({**wrong, "stages": {"a b": {"method": "collect"}}})
    with pytest.raises(RecipeError, match=r"sets is 3, and collect\.sets 2"):
        parse_recipe({**wrong, "stages": {"mlpo": {"prefix": "stored", "sets": 3, **TRAINING}}})


if __name__ == "__main__":
    wanted, place, number = sys.argv[1:]
    count_calls(int(number))
    train(load_recipe(wanted), place)
