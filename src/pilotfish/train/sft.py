"""Supervised fine-tuning of a member on rows of chat, through TRL's SFTTrainer; the loss is on the last answer only.

    from pilotfish.lab import rows
    sft("SmolLM2-135M-Instruct", rows("actor", 40_000, seed=1), "runs/lab/actor", batch=128, lr=5e-4)

The folder it writes loads like any Hugging Face model. Beside the weights it keeps `data.jsonl` (the rows, in the
order they were given) and `sft.json` (every setting and the metrics).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from pilotfish.lab.row import Row

IGNORED = -100
"""Label of a token that the loss leaves out."""


class Lora(BaseModel):
    """Low-rank adapters instead of full weights; merged before the folder is saved."""

    model_config = ConfigDict(extra="forbid")

    r: int = Field(16, ge=1)
    """Rank."""
    alpha: float = Field(32.0, gt=0)
    """Scale; the update is multiplied by alpha / r."""


class SftMetrics(BaseModel):
    """What a run of fine-tuning did."""

    rows: int
    dropped: int
    """Rows longer than `max_length` tokens, left out whole: a cut answer has no end to learn."""
    steps: int
    loss: float
    """Mean cross-entropy per learned token, in nats, over the run."""
    final_loss: float
    """The same over the last tenth of the steps."""
    seconds: float
    device: str


def sft(
    model: str,
    rows: Sequence[Row],
    out_dir: str | Path,
    *,
    steps: int | None = None,
    epochs: float = 1.0,
    lr: float = 5e-4,
    batch: int = 128,
    max_length: int = 512,
    lora: Lora | None = None,
    seed: int = 0,
) -> SftMetrics:
    """Fine-tune a model and save it with its tokenizer.

    Args:
        model: a Hugging Face folder or hub name whose tokenizer has a chat template.
        rows: chats that end with the assistant message to learn.
        out_dir: where the fine-tuned model goes.
        steps: optimizer steps; wins over `epochs`.
        epochs: passes over the rows.
        lr: peak learning rate; 5 % warm-up, then down to 0 along a cosine.
        batch: rows a step.
        max_length: most tokens of prompt and answer together.
        lora: train adapters of this shape; None trains all weights in float32.
        seed: of the order of the rows and of the adapters' start.

    Raises:
        ValueError: no rows, a row that does not end with an assistant message, no chat template, or no row that fits.
    """
    from transformers import AutoTokenizer

    started = time.monotonic()
    tokenizer = AutoTokenizer.from_pretrained(model)
    examples = tokenize(tokenizer, rows, max_length)
    trainer = _trainer(model, tokenizer, examples, Path(out_dir), steps, epochs, lr, batch, lora, seed)
    trainer.train()
    _save(trainer, tokenizer, Path(out_dir))
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    tail = losses[-max(1, len(losses) // 10) :]
    metrics = SftMetrics(
        rows=len(examples),
        dropped=len(rows) - len(examples),
        steps=trainer.state.global_step,
        loss=sum(losses) / len(losses),
        final_loss=sum(tail) / len(tail),
        seconds=time.monotonic() - started,
        device=str(trainer.model.device),
    )
    settings = {"model": model, "steps": steps, "epochs": epochs, "lr": lr, "batch": batch, "max_length": max_length}
    settings |= {"lora": lora.model_dump() if lora else None, "seed": seed}
    _write_record(Path(out_dir), rows, settings, metrics)
    return metrics


def tokenize(tokenizer: Any, rows: Sequence[Row], max_length: int) -> list[dict[str, list[int]]]:
    """Token ids and labels of each row that fits; labels are `IGNORED` on the prompt.

    Raises:
        ValueError: as `sft`.
    """
    if not rows:
        raise ValueError("sft: no rows to learn from")
    if not tokenizer.chat_template:
        raise ValueError(f"sft: {tokenizer.name_or_path} has no chat template; set one on its tokenizer and save it")
    prompts, answers = zip(*(_split(tokenizer, number, row) for number, row in enumerate(rows)), strict=True)
    # tokenized apart, as at inference, where the model continues a prompt that ends on a token of its own
    prompt_ids = tokenizer(list(prompts), add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(list(answers), add_special_tokens=False)["input_ids"]
    examples = [
        {"input_ids": asked + said, "labels": [IGNORED] * len(asked) + said}
        for asked, said in zip(prompt_ids, answer_ids, strict=True)
        if len(asked) + len(said) <= max_length
    ]
    if not examples:
        raise ValueError(f"sft: none of {len(rows)} rows fits max_length={max_length} tokens")
    return examples


def _split(tokenizer: Any, number: int, row: Row) -> tuple[str, str]:
    """The text of the prompt, up to where the model speaks, and of the answer with its end-of-turn token."""
    messages = list(row["messages"])
    if not messages or messages[-1]["role"] != "assistant":
        raise ValueError(f"sft: row {number} does not end with an assistant message")
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    if not whole.startswith(prompt):
        raise ValueError(f"sft: row {number}: the chat template rewrites the prompt once it is answered")
    return prompt, whole[len(prompt) :].rstrip("\n")


def _trainer(
    model: str,
    tokenizer: Any,
    examples: list[dict[str, list[int]]],
    out_dir: Path,
    steps: int | None,
    epochs: float,
    lr: float,
    batch: int,
    lora: Lora | None,
    seed: int,
) -> Any:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    on_gpu = torch.cuda.is_available()
    total = steps or max(1, round(epochs * len(examples) / batch))
    config = SFTConfig(
        output_dir=str(out_dir),
        max_steps=total,
        learning_rate=lr,
        warmup_steps=max(1, total // 20),
        lr_scheduler_type="cosine",
        per_device_train_batch_size=batch,
        max_length=None,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        gradient_checkpointing=False,
        train_sampling_strategy="group_by_length",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=seed,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    return SFTTrainer(
        model=weights,
        args=config,
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        peft_config=_peft(lora) if lora else None,
    )


def _peft(lora: Lora) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=lora.r, lora_alpha=lora.alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def _save(trainer: Any, tokenizer: Any, out_dir: Path) -> None:
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    model.config.use_cache = True
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)


def _write_record(out_dir: Path, rows: Sequence[Row], settings: dict[str, Any], metrics: SftMetrics) -> None:
    (out_dir / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    record = {"settings": settings, "metrics": metrics.model_dump()}
    (out_dir / "sft.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
