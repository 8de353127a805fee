"""The trained weights: what `best` holds and how it comes back, one set of weights in two seats, LoRA in bfloat16."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from pilotfish.recipe import parse_recipe
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.team import Sampling
from pilotfish.train.main import train
from tiny import save_tiny
from training import PROMPTS, learn, recipe, vowels_recipe

GREEDY = Sampling(temperature=0, max_tokens=3)
ASKED = [f"What is {n} and 7?" for n in range(12)]


def said(engine: Any, questions: list[str]) -> list[str]:
    async def all_of_them() -> list[str]:
        calls = (engine.complete([{"role": "user", "content": asked}], GREEDY, 0) for asked in questions)
        return [done.text for done in await asyncio.gather(*calls)]

    return asyncio.run(all_of_them())


def on_the_holdout(run: Run, step: int) -> dict[str, str]:
    """What the policy said, greedily, at a step's evaluation, by question."""
    journal = run.journal(writable=False)
    episodes = [episode for episode in journal.episodes("eval/holdout/%") if episode.id.endswith(f"|step {step}")]
    turns = [episode.turns[0].turn for episode in episodes]
    journal.close()
    return {turn.messages[-1]["content"].splitlines()[0]: turn.text for turn in turns}


@pytest.mark.parametrize("how", [{"rank": 8}, None], ids=["lora", "full"])
def test_best_comes_back_with_the_words_that_the_policy_had(how: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    made = vowels_recipe(
        tmp_path, lora=how, holdout=6, steps=12, evaluate_every=12, group_size=32, micro_batch=64, learning_rate=2e-2
    )
    run = train(made, tmp_path / "run")
    assert run.best_step == 12, "training was to help here"
    assert (run.best / "adapter_config.json").exists() == (how is not None)

    asked = on_the_holdout(run, 12)
    seats = Seats(made)
    trained = seats.trained(run.best, version=12)
    journal = run.journal(writable=False)
    turn = next(journal.episodes("eval/holdout/%")).turns[0].turn
    journal.close()
    suffix = turn.messages[-1]["content"].partition("?")[2]
    questions = [f"{question}{suffix}" for question in asked]
    assert said(trained, questions) == list(asked.values())
    assert said(seats.engine("collaborator"), questions) != list(asked.values())
    asyncio.run(seats.close())


def test_a_frozen_member_on_a_lora_trainees_weights_shares_them_and_never_changes(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    data = recipe(tmp_path / "model", "solo", lora={"rank": 8}, steps=3, learning_rate=2e-2).model_dump(mode="json")
    data["team"]["actor"] = {"model": str(tmp_path / "model"), "dtype": "float32"}
    made = parse_recipe(data)
    seats = Seats(made)
    model, _ = seats.trainee()
    actor: Any = seats.engine("actor")
    before = said(actor, ASKED)
    during: list[list[str]] = []
    learned = learn(
        made, PROMPTS["solo"], tmp_path, model=model, at_step=lambda step, _: bool(during.append(said(actor, ASKED)))
    )
    places = {weight.data_ptr() for weight in learned.trainer.model.parameters()}
    assert {weight.data_ptr() for weight in actor.engine._model.parameters()} <= places
    assert during == [before] * 4
    adapters = [w for name, w in learned.trainer.model.named_parameters() if "lora_B" in name]
    assert max(float(weight.detach().abs().max()) for weight in adapters) > 1e-3
    asyncio.run(seats.close())


def gradients(folder: Path, dtype: str) -> tuple[Any, float, torch.Tensor]:
    """A trainer of a LoRA on weights of a type; its loss and the gradient of all adapters on fixed rows."""
    data = recipe(folder / "model", "solo", lora={"rank": 4}, steps=1, beta=0.0).model_dump(mode="json")
    data["team"]["collaborator"]["dtype"] = dtype
    made = learn(parse_recipe(data), PROMPTS["solo"], folder / dtype, at_step=lambda step, learned: True)
    trainer = made.trainer
    drawn = torch.Generator().manual_seed(1)
    adapters = [weight for name, weight in trainer.model.named_parameters() if "lora_" in name]
    for weight in adapters:
        weight.data.copy_(0.1 * torch.randn(weight.shape, generator=drawn))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    rows = {
        "prompt_ids": torch.randint(3, 300, (16, 6), generator=drawn),
        "prompt_mask": torch.ones(16, 6, dtype=torch.long),
        "completion_ids": torch.randint(3, 300, (16, 8), generator=drawn),
        "completion_mask": torch.ones(16, 8, dtype=torch.long),
        "old_per_token_logps": -6 * torch.ones(16, 8),
        "advantages": torch.randn(16, generator=drawn),
        "num_items_in_batch": torch.tensor(128),
    }
    with trainer.accelerator.autocast():
        loss = trainer._compute_loss(trainer.model, rows)
    loss.backward()
    return trainer, loss.item(), torch.cat([weight.grad.flatten() for weight in adapters])


def test_lora_on_bfloat16_weights_learns_what_float32_would_learn(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    _, expected, exact = gradients(tmp_path, "float32")
    trainer, loss, found = gradients(tmp_path, "bfloat16")
    assert trainer.args.bf16
    adapters = {weight.dtype for name, weight in trainer.model.named_parameters() if "lora_" in name}
    assert adapters == {torch.float32}
    assert loss == pytest.approx(expected, rel=0.05)
    assert torch.nn.functional.cosine_similarity(found, exact, dim=0) > 0.99


def test_adapters_are_multiplied_in_bfloat16(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    data = recipe(tmp_path / "model", "solo", lora={"rank": 4}, steps=1, beta=0.0).model_dump(mode="json")
    data["team"]["collaborator"]["dtype"] = "bfloat16"
    made = learn(parse_recipe(data), PROMPTS["solo"], tmp_path, at_step=lambda step, learned: True)
    seen: set[torch.dtype] = set()
    for name, module in made.trainer.model.named_modules():
        if name.endswith("lora_A.default"):
            module.register_forward_hook(lambda module, given, made: seen.update({given[0].dtype, made.dtype}))
    with made.trainer.accelerator.autocast():
        made.trainer.model(input_ids=torch.tensor([[1, 5, 9]]))
    assert seen == {torch.bfloat16}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_words_are_generated_in_the_type_that_the_recipe_names(dtype: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    data = recipe(tmp_path / "model", "solo", steps=1).model_dump(mode="json")
    data["team"]["collaborator"]["dtype"] = dtype
    made = learn(parse_recipe(data), PROMPTS["solo"], tmp_path, at_step=lambda step, learned: True)
    assert made.policy._model.dtype == getattr(torch, dtype)


def test_lora_on_the_last_layers_leaves_the_others_bare(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    made = recipe(tmp_path / "model", "solo", lora={"rank": 4, "layers": 1, "targets": ["q_proj", "up_proj"]}, steps=1)
    learned = learn(made, PROMPTS["solo"], tmp_path, at_step=lambda step, learned: True)
    adapted = {
        name.partition("layers.")[2].rpartition(".lora_A")[0] for name, _ in learned.trainer.model.named_modules()
    }
    assert adapted - {""} == {"1.self_attn.q_proj", "1.mlp.up_proj"}


def test_targets_that_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    made = recipe(tmp_path / "model", "solo", lora={"targets": ["wqkv"]}, steps=1)
    with pytest.raises(ValueError, match=r"lora.targets \('wqkv',\): the model has no such linear modules"):
        learn(made, PROMPTS["solo"], tmp_path)
