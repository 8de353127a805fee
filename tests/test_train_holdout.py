"""The holdout: how and with which weights it is played, which checkpoint is kept, when training stops."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pilotfish import Task, Verdict
from pilotfish.curriculum import curriculum
from pilotfish.engine.base import CallFailed
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.episode import Episode
from pilotfish.preflight.doctor import recipe_findings
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.run import Gain, Run
from pilotfish.train import diagnostics
from pilotfish.train.diagnostics import holdout_figures
from pilotfish.train.early_stop import check_patience
from pilotfish.train.main import train
from pilotfish.verify import VerifierPool
from training import vowels_recipe


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


def accuracies(run: Run) -> dict[int, float]:
    return {row["step"]: row["holdout/accuracy"] for row in run.logged() if "holdout/accuracy" in row}


def test_it_is_played_greedily_with_the_weights_of_its_step(tmp_path: Path) -> None:
    made = vowels_recipe(tmp_path, updates_per_step=2, steps=3, evaluate_every=2, learning_rate=1e-2)
    run = train(made, tmp_path / "run")
    journal = run.journal(writable=False)
    for step in (0, 2, 3):  # every second step, and the last
        episodes = [episode for episode in journal.episodes("eval/holdout/%") if episode.id.endswith(f"|step {step}")]
        assert {episode.task for episode in episodes} == {task.id for task in curriculum(made).holdout}
        turns = [episode.turns[0].turn for episode in episodes]
        assert {(turn.version, turn.sampling.temperature) for turn in turns} == {(2 * step, 0.0)}
        right = [episode.verdict.reward for episode in episodes]
        assert accuracies(run)[step] == sum(right) / len(right)
    trained = {episode.task for episode in journal.episodes("train/%")}
    assert not trained & {task.id for task in curriculum(made).holdout}
    journal.close()


def harmful(folder: Path, **train: Any) -> Any:
    """A recipe whose training tasks want words that begin with a vowel, and whose holdout wants any others."""
    made = vowels_recipe(folder, group_size=32, micro_batch=64, learning_rate=2e-2, **train)
    held = {task.id for task in curriculum(made).holdout}
    file = folder / "tasks.jsonl"
    tasks = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**t, "answer": "no" if t["id"] in held else "yes"}) + "\n" for t in tasks))
    return made


def test_where_training_only_harms_the_weights_before_it_are_kept(tmp_path: Path) -> None:
    run = train(harmful(tmp_path, steps=12, evaluate_every=6), tmp_path / "run")
    seen = accuracies(run)
    assert seen[0] > seen[12], "training was to harm here"
    assert run.best_step == 0
    kept, before = load_file(run.best / "model.safetensors"), load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(kept[name], weight) for name, weight in before.items())


def test_it_stops_when_patience_runs_out(tmp_path: Path) -> None:
    run = train(harmful(tmp_path, steps=12, evaluate_every=1, patience=2), tmp_path / "run")
    assert list(accuracies(run)) == [0, 1, 2]
    assert [row["step"] for row in run.logged() if row["kind"] == "step"] == [1, 2]
    assert run.state("finished") == {"best": 0}


def test_a_run_killed_after_its_early_stop_takes_no_further_step(tmp_path: Path) -> None:
    made = harmful(tmp_path, steps=4, evaluate_every=1, save_every=1, patience=1)
    run = train(made, tmp_path / "run")
    (run.folder / "finished.json").unlink()
    logged = run.metrics.read_text()
    train(made, run.folder)
    assert run.metrics.read_text() == logged
    assert run.state("finished") == {"best": 0}


@pytest.mark.parametrize("place", ["train", "stages.one"])
def test_a_patience_that_waits_on_no_holdout_is_refused_before_training(place: str, tmp_path: Path) -> None:
    made = vowels_recipe(tmp_path, holdout=0, patience=2).model_dump(mode="json")
    data = made if place == "train" else made | {"train": {}, "stages": {"one": made["train"], "none": None}}
    told = f"{place}.patience is 2, and tasks.holdout 0: patience waits on the holdout"
    with pytest.raises(RecipeError, match=re.escape(f"{told}; raise tasks.holdout, or leave patience out")):
        train(parse_recipe(data), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    [found] = [finding for finding in recipe_findings(parse_recipe(data)) if finding.name == "patience"]
    assert (found.status, found.what) == ("fail", told)
    check_patience(parse_recipe(data | {"tasks": None}))
    check_patience(parse_recipe(data | {"tasks": made["tasks"] | {"holdout": 1}}))


@pytest.mark.parametrize("place", ["", "stages/one"])
def test_a_run_that_has_begun_with_it_is_read_and_goes_on(place: str, tmp_path: Path) -> None:
    made = vowels_recipe(tmp_path, holdout=0, steps=1, patience=2).model_dump(mode="json")
    data = made if not place else made | {"train": {}, "stages": {"one": made["train"]}}
    folder = tmp_path / "run"
    assert Run(folder, parse_recipe(data)).recipe == Run(folder).recipe
    (folder / place).mkdir(parents=True, exist_ok=True)
    (folder / place / "metrics.jsonl").touch()
    assert train(parse_recipe(data), folder).best_step == 1


def test_without_a_holdout_the_last_weights_are_kept(tmp_path: Path) -> None:
    run = train(vowels_recipe(tmp_path, holdout=0, steps=3, evaluate_every=2), tmp_path / "run")
    assert run.best_step == 3
    assert accuracies(run) == {}


def judged_by(monkeypatch: pytest.MonkeyPatch, verdict: Callable[[str], float | None], held: Collection[str]) -> None:
    """Have holdout tasks judged by their id; those of training as they are."""
    judge = VerifierPool.judge

    async def instead(self: Any, task: Any, text: str, form: str = "free") -> Verdict:
        return Verdict(verdict(task.id), None, "away") if task.id in held else await judge(self, task, text, form)

    monkeypatch.setattr(VerifierPool, "judge", instead)


def test_a_holdout_that_cannot_be_judged_is_no_accuracy_of_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = vowels_recipe(tmp_path, steps=1, evaluate_every=1)
    judged_by(monkeypatch, lambda task: None, [task.id for task in curriculum(made).holdout])
    news: list[str] = []
    run = train(made, tmp_path / "run", told=lambda kind, step, figures: news.append(kind))
    assert "note: step 1: 4 of 4 holdout tasks have no verdict (away); this is no measurement" in news
    assert json.loads(run.state("early_stop")["history"]) == [[0, None], [1, None]]
    assert run.best_step == 1, "with nothing measured the last weights are kept"


def test_an_accuracy_of_too_few_tasks_is_neither_best_nor_waited_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before training one task of four is judged, which is right; afterwards all are, and half are right."""
    made = vowels_recipe(tmp_path, steps=2, evaluate_every=1, patience=1)
    held = [task.id for task in curriculum(made).holdout]
    news: list[str] = []

    def verdict(task: str) -> float | None:
        return float(held.index(task) % 2) if news[1:] else (1.0 if task == held[1] else None)

    judged_by(monkeypatch, verdict, held)
    run = train(made, tmp_path / "run", told=lambda kind, step, figures: news.append(kind))
    first, *later = [row for row in run.logged() if row["kind"] == "holdout"]
    assert first["holdout/no_verdict"] == 3
    assert "holdout/accuracy" not in first
    assert [(row["holdout/accuracy"], row["holdout/no_verdict"]) for row in later] == [(0.5, 0), (0.5, 0)]
    assert news[:2] == ["start", "note: step 0: 3 of 4 holdout tasks have no verdict (away); this is no measurement"]
    assert run.best_step == 1
    assert run.gain() is None


def test_an_accuracy_that_lacks_a_few_tasks_counts_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "MOST_LOST", 0.5)
    made = vowels_recipe(tmp_path, steps=1, evaluate_every=1)
    held = [task.id for task in curriculum(made).holdout]
    judged_by(monkeypatch, lambda task: None if task in held[:2] else 1.0, held)
    news: list[str] = []
    run = train(made, tmp_path / "run", told=lambda kind, step, figures: news.append(kind))
    note = "note: step 0: 2 of 4 holdout tasks have no verdict (away); the accuracy is that of the others"
    assert news[news.index(note) + 1] == "holdout"
    assert accuracies(run) == {0: 1.0, 1: 1.0}
    assert run.gain() == Gain(1.0, 1.0, "2")


def test_what_failed_on_the_holdout_is_asked_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = vowels_recipe(tmp_path, steps=1, evaluate_every=1)
    questions = [task.question for task in curriculum(made).holdout]
    complete, asked = TransformersEngine.complete, Counter[str]()

    async def failing(self: Any, messages: Any, *more: Any) -> Any:
        question = messages[-1]["content"]
        asked[question] += 1
        if question in questions[:3] and asked[question] == 1:
            raise CallFailed("away")
        return await complete(self, messages, *more)

    monkeypatch.setattr(TransformersEngine, "complete", failing)
    run = train(made, tmp_path / "run")
    assert [asked[question] for question in questions] == [3, 3, 3, 2], "before and after the step, once more before it"
    assert {row["holdout/no_verdict"] for row in run.logged() if row["kind"] == "holdout"} == {0}
    assert list(accuracies(run)) == [0, 1]


def test_a_task_lacks_a_verdict_where_one_topology_of_a_mix_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def played(*rewards: float | None) -> list[Episode]:
        return [Episode(f"e{n}", f"t{n}", "x", "s", (), "", Verdict(reward, None)) for n, reward in enumerate(rewards)]

    tasks = [Task(f"t{n}", "?", "yes") for n in range(4)]
    mixed = {"one": played(1.0, None, 0.0, 1.0), "two": played(None, None, 1.0, 1.0)}
    few = {"holdout/leak_rate": 0.0, "holdout/no_verdict": 2}
    each = {"holdout/accuracy/one": 2 / 3, "holdout/accuracy/two": 1.0}
    assert holdout_figures(tasks, mixed) == few
    monkeypatch.setattr(diagnostics, "MOST_LOST", 0.5)
    assert holdout_figures(tasks, mixed) == few | each | {"holdout/accuracy": pytest.approx(5 / 6)}
