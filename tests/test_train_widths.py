"""Passes of like rows: no row is lost or moved to another update, no padding is left over, the update is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pilotfish import Task
from pilotfish.train import grpo, widths
from pilotfish.train.widths import by_length
from tiny import save_tiny
from training import PROMPTS, Learned, learn, recipe

PROMPT, WORDS = 7, 9
TASKS = {f"t{n}": Task(f"t{n}", "What is it? " * (n + 1), "yes", verifier="exact") for n in range(4)}


def passes(count: int, rows: int) -> list[dict[str, Any]]:
    """As TRL makes them: tokens name their row and their place, padding is -1."""
    drawn = torch.Generator().manual_seed(1)
    made = []
    for at in range(count):
        asked, said = (torch.randint(1, most - 1, (rows, 1), generator=drawn) for most in (PROMPT, WORDS))
        names = torch.arange(at * rows, (at + 1) * rows)
        left, right = torch.arange(PROMPT)[None] >= PROMPT - asked, torch.arange(WORDS)[None] < said
        words = torch.where(right, names[:, None] * 100 + torch.arange(WORDS), -1)
        made.append(
            {
                "prompt_ids": torch.where(left, names[:, None], -1),
                "prompt_mask": left.long(),
                "completion_ids": words,
                "completion_mask": right.long(),
                "old_per_token_logps": words / 2,
                "importance_sampling_ratio": names[:, None],
                "advantages": names,
                "num_items_in_batch": torch.tensor(5),
                "ref_per_token_logps": None,
            }
        )
    return made


def told(made: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """What is known of each row, without its padding."""
    rows = {}
    for held in made:
        for row, name in enumerate(held["advantages"].tolist()):
            left, right = held["prompt_mask"][row].bool(), held["completion_mask"][row].bool()
            words = [held[key][row][right].tolist() for key in ("completion_ids", "old_per_token_logps")]
            rows[name] = [held["prompt_ids"][row][left].tolist(), *words, held["importance_sampling_ratio"][row].item()]
    return rows


def filled(held: dict[str, Any]) -> bool:
    """Whether no column of a pass is padding alone."""
    return all(bool(held[mask].any(0).all()) for mask in ("prompt_mask", "completion_mask"))


def columns(made: list[dict[str, Any]]) -> int:
    return sum(held["prompt_ids"].shape[1] + held["completion_ids"].shape[1] for held in made)


def test_every_row_keeps_what_is_its_own_and_its_update() -> None:
    given = passes(6, 4)
    dealt = by_length(given, 3)
    assert told(dealt) == told(given)
    assert [len(held["advantages"]) for held in dealt] == [4] * 6
    assert {*told(dealt[:3])} == set(range(12)), "of the first update"
    assert all(held["num_items_in_batch"] == 5 and held["ref_per_token_logps"] is None for held in dealt)


def test_passes_are_as_wide_as_their_longest_row_and_the_widest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths, "_WIDTH", 1)
    dealt = by_length(passes(6, 4), 3)
    for held in dealt:
        assert filled(held)
        assert held["completion_ids"].shape == held["completion_mask"].shape == held["old_per_token_logps"].shape
        assert held["prompt_ids"].shape == held["prompt_mask"].shape
    lengths = [int((held["prompt_mask"].sum(1) + held["completion_mask"].sum(1)).max()) for held in dealt]
    assert lengths == sorted(lengths[:3], reverse=True) + sorted(lengths[3:], reverse=True)
    assert len({held["completion_ids"].shape[1] for held in dealt}) > 1


def test_a_width_is_a_multiple_or_the_whole_and_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths, "_WIDTH", 4)
    given = passes(8, 2)
    dealt = by_length(given, 8)
    assert told(dealt) == told(given)
    found = [columns([held]) for held in dealt]
    assert {width % 4 for width in found if width < PROMPT + WORDS} == {0}
    assert len({*found}) > 1
    for held, width in zip(dealt, found, strict=True):
        assert width - 4 < int(held["prompt_mask"].any(0).sum() + held["completion_mask"].any(0).sum()) <= width


def trained(folder: Path) -> tuple[Learned, list[dict[str, Any]]]:
    """One step of four groups of unlike prompts in 16 passes and two updates; what the loss was given."""
    seen: list[dict[str, Any]] = []

    def watch(step: int, learned: Learned) -> bool:
        if step == 0:
            real = learned.trainer.compute_loss

            def compute_loss(model: Any, inputs: dict[str, Any], **more: Any) -> Any:
                seen.append(inputs)
                return real(model, inputs, **more)

            learned.trainer.compute_loss = compute_loss
        return False

    settings = {"steps": 1, "micro_batch": 4, "updates_per_step": 2, "loss": "grpo"}
    made = recipe(save_tiny(folder / "model"), "solo", max_tokens=40, **settings)
    return learn(made, PROMPTS["solo"], folder, tasks=TASKS, at_step=watch), seen


def test_a_training_learns_the_same_from_fewer_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths, "_WIDTH", 1)
    narrow, seen = trained(tmp_path / "narrow")
    monkeypatch.setattr(grpo, "by_length", lambda passes, accumulated: passes)
    wide, whole = trained(tmp_path / "wide")
    assert [row.completion_ids for row in narrow.rows[0]] == [row.completion_ids for row in wide.rows[0]]
    assert len(seen) == len(whole) == 16
    assert all(filled(held) for held in seen)
    assert columns(seen) < 0.9 * columns(whole)
    for figure in ("grad_norm", "loss"):
        assert narrow.logged[0][figure] == pytest.approx(wide.logged[0][figure], rel=1e-3, abs=1e-5)
    assert narrow.logged[0]["grad_norm"] > 0
