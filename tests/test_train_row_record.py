"""What rows were worth is kept as it was learned from: TRL's own advantages, and a file that a run can be read by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.train.main import train
from pilotfish.train.row_record import FILE, advantages, worths
from pilotfish.view.index import Index
from tiny import save_tiny
from training import PROMPTS, learn, recipe, vowels_recipe


@pytest.mark.parametrize("normalise", ["group", "none"])
def test_advantages_are_trls(tmp_path: Path, normalise: str) -> None:
    settings = {"steps": 1, "normalise": normalise, "reward": {"length": 0.3}, "group_size": 8, "micro_batch": 32}
    learned = learn(recipe(save_tiny(tmp_path / "model"), "hint", **settings), PROMPTS["hint"], tmp_path)
    (rows,) = learned.rows
    groups = [[row.reward for row in rows[start : start + 8]] for start in range(0, len(rows), 8)]
    ours = [advantage for group in groups for advantage in advantages(group, normalise)]  # type: ignore[arg-type]
    assert ours == pytest.approx(list(learned.trainer._logs["advantages"]), abs=1e-3)  # TRL counts in float32
    assert max(ours) > 0


def test_rows_without_a_reward_do_not_count() -> None:
    assert advantages([1.0, None, 0.0], "none") == [0.5, 0.0, -0.5]
    assert advantages([1.0, None], "group") == [0.0, 0.0]
    assert advantages([None, None], "none") == [0.0, 0.0]


def test_a_training_keeps_what_each_row_was_worth(tmp_path: Path) -> None:
    run = train(vowels_recipe(tmp_path, steps=2, evaluate_every=1), tmp_path / "run")
    lines = [json.loads(line) for line in (run.folder / FILE).read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 0, 1, 1]
    index = Index(run)
    assert index.read()
    kept = {id for line in lines for id, _ in worths(line)}
    assert kept == {line.id for line in index.lines if line.place.kind == "train"}
    assert {line.place.step for line in index.lines if line.place.kind == "holdout"} == {0, 1, 2}
    verdicts = {line.id: line.reward for line in index.lines}
    assert all(reward == verdicts[id] for line in lines for id, (reward, _) in worths(line))
    index.close()
