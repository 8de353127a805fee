"""Passes of like rows: no row is lost or moved to another update, little padding is left over, the update is the same,
and so is what is logged of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from pilotfish import Task
from pilotfish.engine import transformers
from pilotfish.train import grpo, widths
from pilotfish.train.widths import by_length, learned_tokens, wide_alike
from tiny import save_tiny
from training import PROMPTS, Learned, learn, recipe

PROMPT, WORDS = 7, 9
OTHERS = ("prompt_ids", "prompt_mask", "importance_sampling_ratio", "of_another_width")
TASKS = {f"t{n}": Task(f"t{n}", "What is it? " * (n + 1), "yes", verifier="exact") for n in range(4)}


def passes(count: int, rows: int, words: int = WORDS) -> list[dict[str, Any]]:
    """As TRL makes them: tokens name their row and their place, padding is -1."""
    drawn = torch.Generator().manual_seed(1)
    made = []
    for at in range(count):
        asked, said = (torch.randint(1, most - 1, (rows, 1), generator=drawn) for most in (PROMPT, words))
        names = torch.arange(at * rows, (at + 1) * rows)
        left, right = torch.arange(PROMPT)[None] >= PROMPT - asked, torch.arange(words)[None] < said
        tokens = torch.where(right, names[:, None] * 100 + torch.arange(words), -1)
        made.append(
            {
                "prompt_ids": torch.where(left, names[:, None], -1),
                "prompt_mask": left.long(),
                "completion_ids": tokens,
                "completion_mask": right.long(),
                "old_per_token_logps": tokens / 2,
                "importance_sampling_ratio": names[:, None],
                "of_another_width": names[:, None].expand(-1, 20),
                "advantages": names,
                "num_items_in_batch": torch.tensor(5),
                "ref_per_token_logps": None,
            }
        )
    return made


def told(made: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """What is known of each row: its prompt with its padding, its completion without."""
    rows = {}
    for held in made:
        for row, name in enumerate(held["advantages"].tolist()):
            said = held["completion_ids"][row][held["completion_mask"][row].bool()].tolist()
            asked = [held[key][row].tolist() for key in OTHERS]
            rows[name] = [said, *asked]
    return rows


def widths_of(made: list[dict[str, Any]]) -> list[int]:
    return [held["completion_ids"].shape[1] for held in made]


@pytest.mark.parametrize("words", [WORDS, PROMPT])
def test_every_row_keeps_what_is_its_own_and_its_update(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths, "_WIDTH", 1)
    given = passes(6, 4, words)
    dealt = by_length(given, 3)
    assert told(dealt) == told(given)
    assert [len(held["advantages"]) for held in dealt] == [4] * 6
    assert {*told(dealt[:3])} == set(range(12)), "of the first update"
    assert all(held["num_items_in_batch"] == 5 and held["ref_per_token_logps"] is None for held in dealt)


def test_the_first_update_takes_its_own_log_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths, "_WIDTH", 1)
    given = passes(6, 4)
    for held in by_length(given, 2)[2:]:
        assert torch.equal(held["old_per_token_logps"] * 2, held["completion_ids"].float())
    assert [held["old_per_token_logps"] for held in by_length(given, 2)[:2]] == [None, None]
    assert all(held["old_per_token_logps"] is not None for held in by_length(given, 6)), "TRL had none of one update"


def test_passes_are_as_wide_as_their_longest_completion_and_the_longest_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(widths, "_WIDTH", 1)
    dealt = by_length(passes(6, 4), 3)
    for held in dealt:
        assert held["completion_mask"].any(0).all()
        assert held["completion_ids"].shape == held["completion_mask"].shape
        assert held["prompt_ids"].shape == held["prompt_mask"].shape == (4, PROMPT)
    found = widths_of(dealt)
    assert found == sorted(found[:3], reverse=True) + sorted(found[3:], reverse=True)
    assert len({*found}) > 1


def test_a_width_is_a_multiple_or_the_whole_and_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths, "_WIDTH", 4)
    given = passes(8, 2)
    dealt = by_length(given, 8)
    assert told(dealt) == told(given)
    assert {(width + PROMPT) % 4 for width in widths_of(dealt) if width < WORDS} == {0}
    assert len({*widths_of(dealt)}) > 1
    for held, width in zip(dealt, widths_of(dealt), strict=True):
        assert width - 4 < int(held["completion_mask"].any(0).sum()) <= width


def test_shapes_come_again() -> None:
    assert widths._WIDTH % 8 == 0
    wide = by_length(passes(6, 4, words=90), 6)
    assert all((width + PROMPT) % widths._WIDTH == 0 for width in widths_of(wide) if width < 90)
    assert len({*widths_of(wide)}) > 2


def test_only_what_is_learned_from_counts() -> None:
    held = {"completion_mask": torch.tensor([[1, 1, 0], [1, 1, 1]])}
    assert learned_tokens([held, {**held, "tool_mask": torch.tensor([[1, 1, 1], [0, 0, 0]])}]).tolist() == [5, 2]


def test_where_a_model_reads_by_the_width_passes_stay_as_they_are() -> None:
    assert wide_alike(LlamaConfig())
    assert wide_alike(LlamaConfig(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}))
    assert not wide_alike(LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}))


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of many lengths: one token in fifteen ends them. Passes are as wide as they must be."""
    monkeypatch.setattr(transformers, "stop_ids", lambda model, tokenizer: frozenset(range(10, 30)))
    monkeypatch.setattr(widths, "_WIDTH", 1)


def trained(folder: Path, **settings: Any) -> tuple[Learned, list[dict[str, Any]]]:
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

    settings = {"steps": 1, "micro_batch": 4, "updates_per_step": 2, "loss": "grpo", **settings}
    made = recipe(save_tiny(folder / "model"), "solo", max_tokens=40, **settings)
    return learn(made, PROMPTS["solo"], folder, tasks=TASKS, at_step=watch), seen


@pytest.mark.usefixtures("endings")
@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_a_training_learns_the_same_from_fewer_columns(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow, seen = trained(tmp_path / "narrow", loss=loss)
    monkeypatch.setattr(grpo, "by_length", lambda passes, accumulated: passes)
    wide, whole = trained(tmp_path / "wide", loss=loss)
    assert [row.completion_ids for row in narrow.rows[0]] == [row.completion_ids for row in wide.rows[0]]
    assert len(seen) == len(whole) == 16
    assert all(held["completion_mask"].any(0).all() for held in seen)
    assert sum(widths_of(seen)) < 0.7 * sum(widths_of(whole))
    for figure in ("grad_norm", "loss"):
        assert narrow.logged[0][figure] == pytest.approx(wide.logged[0][figure], rel=1e-3, abs=1e-5)
    assert narrow.logged[0]["grad_norm"] > 0


@pytest.mark.usefixtures("endings")
def test_with_a_reference_passes_keep_their_width(tmp_path: Path) -> None:
    _, seen = trained(tmp_path, beta=0.1, updates_per_step=1)
    assert len({*widths_of(seen)}) == 1


@pytest.mark.usefixtures("endings")
def test_where_the_width_matters_passes_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo, "wide_alike", lambda config: False)
    _, seen = trained(tmp_path)
    assert len({*widths_of(seen)}) == 1


@pytest.mark.usefixtures("endings")
def test_what_is_logged_is_the_mean_over_tokens(tmp_path: Path) -> None:
    """The entropy of a step whose rows are in one pass, and of the same in 16, whose tokens differ in number."""
    whole, _ = trained(tmp_path / "one", micro_batch=64, updates_per_step=1)
    parts, seen = trained(tmp_path / "many", micro_batch=4, updates_per_step=1)
    assert len({int(count) for count in learned_tokens(seen)}) > 1
    assert parts.logged[0]["entropy"] == pytest.approx(whole.logged[0]["entropy"], rel=1e-4)
