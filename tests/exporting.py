"""A run that was trained, for the tests of exports: weights are put where a training leaves them.

run = trained(tmp_path)                             # a LoRA
run = trained(tmp_path, "full", change=0)           # whole weights, those of the base
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model

from pilotfish.engine.loading import load
from pilotfish.recipe import LoraConfig, Recipe, parse_recipe
from pilotfish.run import Run
from pilotfish.train.lora import peft_config
from tiny import save_tiny, tiny_tokenizer

IDS = torch.arange(3, 40)[None]
LORA = {"rank": 4, "alpha": 8}
KEY = "SECRET_OF_THE_ACTOR"


def recipe(folder: Path, train: Any = LORA, *, address: str = "http://127.0.0.1:1/v1", **more: Any) -> Recipe:
    """A collaborator on a tiny model, and an actor behind an address with a key."""
    for name in ("train", "sums"):
        row = {"id": "a", "question": f"{name}: 2 + 2?", "answer": "4"}
        (folder / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    model = folder / "model"
    if not model.exists():
        save_tiny(model)
    sampling = {"temperature": 0, "max_tokens": 4}
    actor = {"engine": "openai", "model": "acme/large", "base_url": address, "key_env": KEY, "retries": 0}
    trainee = {"model": str(model), "train": train, "dtype": "float32", "device": "cpu", "sampling": sampling}
    data = {
        "tasks": {"train": {"source": str(folder / "train.jsonl"), "verifier": "maths"}, "holdout": 1},
        "team": {"collaborator": trainee, "actor": actor},
        "topology": "hint",
        "evaluate": {"benchmarks": [{"source": str(folder / "sums.jsonl"), "verifier": "maths"}]},
    }
    return parse_recipe(data | more)


def leave(run: Run, change: float, *, base: Path, adapter: bool, step: int = 3) -> None:
    """Put weights into a run's `best` as a training leaves them."""
    model: Any = load(str(base), dtype="float32", device="cpu")[0]
    if adapter:
        model = get_peft_model(model, peft_config(LoraConfig(**LORA), model))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_" in name or not adapter:
                weight.add_(torch.randn(weight.shape, generator=generator) * change)
    shutil.rmtree(run.best, ignore_errors=True)
    model.save_pretrained(run.best)
    tiny_tokenizer().save_pretrained(run.best)
    run.mark_best(run.best, step)
    run.keep("finished", {"best": step})


def trained(folder: Path, train: Any = LORA, change: float = 1 / 16, **more: Any) -> Path:
    """The folder of a run that was trained."""
    run = Run(folder / "run", recipe(folder, train, **more))
    for step, accuracy in ((0, 0.25), (3, 0.5)):
        run.log({"kind": "holdout", "step": step, "holdout/accuracy": accuracy})
    leave(run, change, base=folder / "model", adapter=train != "full")
    return run.folder


def name_base(adapter: Path, base: str) -> None:
    """Write into an exported adapter where its base is."""
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "base_model_name_or_path": base}))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.float()(IDS).logits
