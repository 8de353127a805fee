"""The output head under the loss on a CPU: which positions it scores, in which pieces, and that the figures stay."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
utils: Any = pytest.importorskip("trl.trainer.utils")

from pilotfish.train import head  # noqa: E402
from tiny import VOCABULARY, save_tiny, tiny_model  # noqa: E402
from training import PROMPTS, learn, recipe  # noqa: E402

IGNORED = -100
NAMES = ("_use_triton", "_CHUNKED_LOGPROB_CHUNK_SIZE")


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """TRL as it is on a CPU; how many positions are scored, and in pieces of how many tokens."""
    seen: list[tuple[int, int]] = []
    real = utils._ChunkedLogProbFunction

    def apply(hidden: Any, weight: Any, bias: Any, targets: Any, temperature: float, piece: int, *rest: Any) -> Any:
        seen.append((hidden.shape[0], piece))
        return real.apply(hidden, weight, bias, targets, temperature, piece, *rest)

    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", SimpleNamespace(apply=apply))
    monkeypatch.setattr(utils, "_use_triton", lambda device: False)
    monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", 32768)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return seen


def batch() -> tuple[Any, Any, Any]:
    """Four rows: ids, attention mask and labels; a prompt of 9 with padding on the left, then 5 that are learned."""
    ids = torch.randint(3, VOCABULARY, (4, 14), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    labels = ids.clone()
    labels[:, :9] = IGNORED
    labels[2, 12:] = IGNORED
    return ids, mask, labels


def plain(model: Any, ids: Any, mask: Any, labels: Any, temperature: float) -> tuple[Any, Any]:
    """Log-probabilities and entropies from all logits, 0 where there is no label."""
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1] / temperature
    logs, wanted = logits.log_softmax(-1), labels[:, 1:]
    learned = wanted != IGNORED
    found = logs.gather(-1, wanted.clamp(min=0)[..., None])[..., 0]
    entropies = -(logs.exp() * logs).sum(-1)
    return found.masked_fill(~learned, 0), entropies.masked_fill(~learned, 0)


def gradients(model: Any) -> dict[str, Any]:
    return {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_only_learned_positions_are_scored_and_the_figures_are_those_of_all_logits(
    temperature: float, scored: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "PIECE", 48)  # several pieces, the last one smaller
    head.score_learned_only()
    expected, model = tiny_model(0), tiny_model(0)
    utils.add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    ids, mask, labels = batch()
    weights = torch.randn(4, 13, generator=torch.Generator().manual_seed(4))
    logs, entropies = plain(expected, ids, mask, labels, temperature)
    (logs * weights).sum().backward()
    found = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    (found.log_probs * weights).sum().backward()
    assert scored == [(4 * 5 - 2, 48)]
    torch.testing.assert_close(found.log_probs, logs)
    torch.testing.assert_close(found.entropy, entropies)
    for name, gradient in gradients(expected).items():
        torch.testing.assert_close(gradients(model)[name], gradient, rtol=1e-4, atol=1e-5)


def test_of_itself_the_head_scores_every_position(scored: list[tuple[int, int]]) -> None:
    model = tiny_model(0)
    utils.add_fused_lm_head(model)
    ids, mask, labels = batch()
    for _ in range(2):
        model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        head.score_learned_only()
    assert scored == [(4 * 13, 32768), (4 * 5 - 2, head.PIECE)], "TRL has changed: is train/head.py still needed?"


def test_rows_without_anything_to_learn_give_a_gradient_of_zero(scored: list[tuple[int, int]]) -> None:
    head.score_learned_only()
    model = tiny_model(0)
    utils.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids, mask, labels = batch()
    found = model(input_ids=ids, attention_mask=mask, labels=torch.full_like(labels, IGNORED), fused_lm_head=True)
    found.log_probs.sum().backward()
    assert scored == [(0, head.PIECE)]
    assert all(gradient is None or not gradient.any() for gradient in gradients(model).values())


def test_a_training_scores_what_its_rows_said_and_no_more(tmp_path: Path, scored: list[tuple[int, int]]) -> None:
    learned = learn(recipe(save_tiny(tmp_path / "model"), "solo", steps=1), PROMPTS["solo"], tmp_path)
    assert sum(positions for positions, _ in scored) == sum(len(row.completion_ids) for row in learned.rows[0])


def test_nothing_is_changed_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {name: object() for name in NAMES}
    for name, mark in marks.items():
        monkeypatch.setattr(utils, name, mark)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    head.score_learned_only()
    assert {name: getattr(utils, name) for name in NAMES} == marks
