"""The holdout: how and with which weights it is played, which checkpoint is kept, when training stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pilotfish import Verdict
from pilotfish.curriculum import curriculum
from pilotfish.run import Run
from pilotfish.train.main import train
from pilotfish.verify import VerifierPool
from training import vowels_recipe


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


def accuracies(run: Run) -> dict[int, float]:
    return {row["step"]: row["holdout/accuracy"] for row in run.logged() if row["kind"] == "holdout"}


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


def test_without_a_holdout_the_last_weights_are_kept(tmp_path: Path) -> None:
    run = train(vowels_recipe(tmp_path, holdout=0, steps=3, evaluate_every=2), tmp_path / "run")
    assert run.best_step == 3
    assert accuracies(run) == {}


def test_a_holdout_that_cannot_be_judged_is_no_accuracy_of_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = VerifierPool.judge

    async def away(self: Any, task: Any, text: str, form: str = "free") -> Verdict:
        return Verdict(None, None, "away") if task.id in held else await judge(self, task, text, form)

    monkeypatch.setattr(VerifierPool, "judge", away)
    made = vowels_recipe(tmp_path, steps=1, evaluate_every=1)
    held = {task.id for task in curriculum(made).holdout}
    news: list[str] = []
    run = train(made, tmp_path / "run", told=lambda kind, step, figures: news.append(kind))
    assert "note: step 1: no answer on the holdout could be judged" in news
    assert json.loads(run.state("early_stop")["history"]) == [[0, None], [1, None]]
    assert run.best_step == 1, "with nothing measured the last weights are kept"
