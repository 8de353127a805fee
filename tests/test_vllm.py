"""vLLM itself, behind the runs that start it: what the stand-in of the other tests cannot show.

It brings versions of its own of many packages, so it lives in an environment of its own; on a CPU, in the one that
`.ci/vllm` makes:

    .ci/vllm .venv-vllm
    PILOTFISH_VLLM=.venv-vllm/bin .venv/bin/pytest -m vllm
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from torch import nn

from pilotfish import evaluate, train
from pilotfish.engine.base import Completion, Engine
from pilotfish.engine.loading import load
from pilotfish.engine.policy import Policy
from pilotfish.episode import Journal
from pilotfish.export import export_model
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.team import Sampling
from pilotfish.train.lora import peft_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]
SERVED = {"engine": "vllm", "model": "smollm2", "dtype": "float32", "device": "cpu"}
SMALL = {"args": ["--max-model-len", "512", "--enforce-eager"]}
LORA = {"rank": 8, "alpha": 16, "layers": 4}
SUMS = [f"What is {number} + 5?" for number in range(6)]


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts vLLM on the PATH, after everything else."""
    folder = Path(os.environ.get("PILOTFISH_VLLM", ""))
    if not (folder / "vllm").exists():
        pytest.skip("PILOTFISH_VLLM names no folder with vllm; .ci/vllm makes one")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{folder.resolve()}")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def recipe(tmp_path: Path, member: dict[str, Any], **more: Any) -> Recipe:
    rows = [{"id": str(n), "question": question, "answer": str(n + 5)} for n, question in enumerate(SUMS)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"source": str(tmp_path / "sums.jsonl"), "verifier": "maths"}
    data = {"team": {"actor": member}, "topology": "solo", "tasks": {"train": source, "holdout": 2, "overlap": "keep"}}
    return parse_recipe(data | {"evaluate": {"benchmarks": [source], "against": []}} | more)


async def answers(engine: Engine, temperature: float) -> list[Completion]:
    sampling = Sampling(max_tokens=24, temperature=temperature)
    return await asyncio.gather(*(engine.complete([{"role": "user", "content": q}], sampling, 1) for q in SUMS))


def distance(said: Completion, model: nn.Module, temperature: float) -> float:
    """The largest difference of an answer's log-probabilities to a forward pass of weights."""
    assert said.prompt_ids
    assert said.completion_ids
    assert said.logprobs
    with torch.no_grad():
        logits = model(torch.tensor([[*said.prompt_ids, *said.completion_ids]])).logits[0].float()
    scores = (logits[len(said.prompt_ids) - 1 : -1] / temperature).log_softmax(-1)
    own = scores.gather(1, torch.tensor(said.completion_ids)[:, None])[:, 0]
    return float((own - torch.tensor(said.logprobs)).abs().max())


def shift(model: nn.Module) -> None:
    """Change what is trained, as a step would, but more.

    Not the embeddings: in float32 on a CPU vLLM keeps a packed copy of a head that is tied to them.
    """
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and "embed" not in name:
                scale = 0.1 if ".lora_" in name else 0.05 * float(weight.std())
                weight.add_(torch.randn(weight.shape, generator=generator) * scale)


@pytest.mark.parametrize("trained", ["full", LORA], ids=["full", "lora"])
def test_the_served_log_probabilities_are_those_of_the_weights_after_each_step(tmp_path: Path, trained: Any) -> None:
    team = recipe(tmp_path, {**SERVED, "train": trained, "vllm": SMALL})
    seats = Seats(team, Journal(tmp_path / "journal"))
    speaker = seats.speaker()
    assert speaker is not None
    model: Any
    model, tokenizer = load("smollm2", dtype="float32", device="cpu")
    model.requires_grad_(True)
    if lora := team.team["actor"].lora:
        model = get_peft_model(model, peft_config(lora, model))
        shift(model)  # an adapter begins as nothing
    policy = speaker(model, tokenizer, 0)

    async def play(policy: Policy) -> None:
        for updates in range(3):
            await policy.sync(updates)
            said = await answers(policy, 0.7)
            assert max(distance(one, model, 0.7) for one in said) < 0.01
            assert {one.finish_reason for one in said} <= {"stop", "length"}
            shift(model)
            assert max(distance(one, model, 0.7) for one in said) > 0.1
        await policy.close()

    asyncio.run(play(policy))


def test_a_frozen_member_and_an_export_say_what_they_say_in_process(tmp_path: Path) -> None:
    exported = str(_exported(tmp_path))
    for model in ("smollm2", exported):
        served, local = (
            _said(recipe(tmp_path, member), tmp_path)
            for member in (
                {**SERVED, "model": model, "device": "auto", "vllm": SMALL},
                {"model": model, "dtype": "float32"},
            )
        )
        assert served == local


def _said(recipe: Recipe, tmp_path: Path) -> list[str]:
    async def play() -> list[str]:
        seats = Seats(recipe, Journal(tmp_path / "journal"))
        said = [one.text for one in await answers(seats.engine("actor"), 0.0)]
        await seats.close()
        return said

    return asyncio.run(play())


def _exported(tmp_path: Path) -> Path:
    """A run whose weights differ from those it began with, as a folder for vLLM."""
    member = {"model": "smollm2", "train": LORA, "dtype": "float32", "device": "cpu"}
    folder = tmp_path / "exported"
    with Run(folder, recipe(tmp_path, member)) as run:
        model: Any = load("smollm2", dtype="float32", device="cpu")[0]
        lora = run.recipe.team["actor"].lora
        assert lora is not None
        model = get_peft_model(model, peft_config(lora, model))
        shift(model)
        model.save_pretrained(run.best)
        run.mark_best(run.best, 1)
    return export_model(folder, tmp_path / "out").folder


def test_a_run_learns_and_is_measured_through_vllm(tmp_path: Path) -> None:
    steps = {"group_size": 4, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 8, "steps": 2}
    member = {**SERVED, "train": LORA, "vllm": SMALL, "sampling": {"temperature": 0, "max_tokens": 8}}
    made = recipe(tmp_path, member, train={**steps, "learning_rate": 1e-3, "evaluate_every": 2, "save_every": 2})
    train(made, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    learned = [row for row in rows if row["kind"] == "step"]
    assert [row["step"] for row in learned] == [1, 2]
    assert max(row["engine/logprob_gap"] for row in learned) < 0.01
    with Run(tmp_path / "run", made) as run:
        [result] = evaluate(made, run)
    assert all(row.accuracy is not None for row in result.rows)
