"""Whether the engine speaks for the weights in training: measured at each step, and one that does not stops the run."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pilotfish import train
from pilotfish.engine.policy import PolicyEngine
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.train import gap
from pilotfish.train.gap import Astray
from pilotfish.train.row import Row, RowId
from tiny import save_tiny, tiny_model

torch.set_num_threads(1)


def recipe(tmp_path: Path, **more: Any) -> Recipe:
    save_tiny(tmp_path / "model")
    rows = [{"id": str(n), "question": f"{n} + 2?", "answer": str(n % 5)} for n in range(12)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.py").write_text("def score(gold, text):\n    return sum(map(ord, text)) % 2\n")
    member = {"model": str(tmp_path / "model"), "dtype": "float32", "device": "cpu"}
    training = {"group_size": 2, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 4, "steps": 3}
    return parse_recipe(
        {
            "tasks": {
                "train": {"source": str(tmp_path / "sums.jsonl"), "verifier": f"{tmp_path}/mine.py:score"},
                "holdout": 0,
            },
            "team": {"actor": member | {"train": "full", "sampling": {"max_tokens": 8}}},
            "topology": "solo",
            "train": training | {"learning_rate": 0.01, "temperature": 0.8} | more,
        }
    )


def steps(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("at_once", [gap.AT_ONCE, 1], ids=["rows together", "row by row"])
@pytest.mark.parametrize("trained", ["full", {"rank": 4, "alpha": 8}], ids=["full", "lora"])
def test_an_engine_in_float32_reports_the_weights_own_log_probabilities(
    tmp_path: Path, trained: Any, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap, "AT_ONCE", at_once)
    made = recipe(tmp_path)
    member = made.team["actor"].changed({"train": trained})
    train(made.model_copy(update={"team": {"actor": member}}), tmp_path / "run")
    gaps = [row["engine/logprob_gap"] for row in steps(tmp_path / "run") if row["kind"] == "step"]
    assert len(gaps) == 3
    assert max(gaps) < 1e-3


@pytest.mark.parametrize("said", [0, 1, 6])
def test_processes_that_divide_weights_make_as_many_passes_whoever_has_words_to_look_at(
    said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass gathers weights from all of them: one that makes fewer would leave the others waiting."""
    model, passes = tiny_model(0), []
    model.register_forward_pre_hook(lambda module, args: passes.append(module))
    spoken = [Row(RowId(f"t{n}"), [5, 6], [7 + n, 8], [-5.0, -6.0], 1.0) for n in range(said)]
    silent = [Row(RowId("silent"), [0], [0], [0.0], None, trained=False)] * (6 - said)
    accelerator = SimpleNamespace(device="cpu", unwrap_model=lambda model: model, autocast=nullcontext)
    trainer: Any = SimpleNamespace(model=model, accelerator=accelerator)
    monkeypatch.setattr(gap, "LIMIT", 100.0)
    together = gap.logprob_gap(trainer, silent + spoken, 1.0, 0)
    passes.clear()
    monkeypatch.setattr(gap, "sharded", lambda model: True)
    assert gap.logprob_gap(trainer, silent + spoken, 1.0, 0) == (pytest.approx(together, rel=1e-5) if said else None)
    assert len(passes) == gap.ROWS


def test_an_engine_that_keeps_its_first_weights_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sync(engine: PolicyEngine, updates: int) -> None:
        engine._version = updates

    monkeypatch.setattr(PolicyEngine, "sync", sync)
    with pytest.raises(Astray, match=r"step \d: the trainee's engine reports .* nats from those of the weights"):
        train(recipe(tmp_path, learning_rate=0.5, steps=8), tmp_path / "run")
    assert steps(tmp_path / "run")[0]["engine/logprob_gap"] < 1e-3
