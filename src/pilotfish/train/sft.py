"""Supervised fine-tuning of a member on rows of chat, through TRL's SFTTrainer; the loss is on the last answer only.

    from pilotfish.lab import rows
    sft("HuggingFaceTB/SmolLM2-135M-Instruct", rows("actor", 25_600, seed=1), "runs/lab-actor/best", steps=200)

The folder it writes loads like any Hugging Face model. Beside the weights it keeps `data.jsonl` (the rows as given)
and `sft.json` (every setting and the metrics).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
    from trl.trainer.sft_config import SFTConfig

    from pilotfish.lab.row import Row
    from pilotfish.recipe import LoraConfig

IGNORED = -100
"""Label of a token that the loss leaves out."""


class SftMetrics(TypedDict):
    """What a run of fine-tuning did."""

    rows: int
    """Rows learned from."""
    dropped: int
    """Rows longer than `max_length` tokens, left out whole: an answer that is cut has no end to learn."""
    steps: int
    loss: float
    """Mean cross-entropy of a learned token, in nats, over the run."""
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
    micro_batch: int | None = None,
    max_length: int = 512,
    lora: LoraConfig | None = None,
    seed: int = 0,
) -> SftMetrics:
    """Fine-tune a model and save it with its tokenizer.

    Args:
        model: a Hugging Face folder or hub name; its tokenizer has a chat template.
        rows: chats that end with the assistant message to learn.
        out_dir: where the fine-tuned model goes.
        steps: optimizer steps; overrides `epochs`.
        epochs: passes over the rows.
        lr: highest learning rate: warmed up over 5 % of the steps, then down to 0 along a cosine.
        batch: rows a step.
        micro_batch: rows in one forward and backward pass; divides `batch`, which it is when not given.
        max_length: most tokens of prompt and answer together.
        lora: train adapters, which are merged before saving; None trains all weights, in float32.
        seed: of the order of the rows and of the adapters' start.

    Raises:
        ValueError: no rows, a row without an answer to learn, no chat template, no row that fits, or a `micro_batch`
            that does not divide `batch`.
    """
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, set_seed
    from trl.trainer.sft_trainer import SFTTrainer

    started = time.monotonic()
    settings: dict[str, Any] = {"model": model, "steps": steps, "epochs": epochs, "lr": lr, "batch": batch}
    settings |= {"micro_batch": micro_batch, "max_length": max_length, "lora": lora and lora.model_dump(), "seed": seed}
    tokenizer = AutoTokenizer.from_pretrained(model)
    examples = tokenize(tokenizer, rows, max_length)
    total = steps or max(1, round(epochs * len(examples) / batch))
    config = _config(Path(out_dir), total, lr, batch, micro_batch or batch, seed)
    set_seed(seed)
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    trainer = SFTTrainer(
        model=weights,
        args=config,
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        peft_config=_peft(lora, weights.config.num_hidden_layers) if lora else None,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    _save(trainer, tokenizer, Path(out_dir))
    metrics = _metrics(trainer, len(rows), len(examples), time.monotonic() - started)
    _write_record(Path(out_dir), rows, settings, metrics)
    return metrics


def tokenize(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], max_length: int) -> list[dict[str, list[int]]]:
    """Token ids and labels of each row that fits; labels are `IGNORED` on the prompt.

    Raises:
        ValueError: as `sft`.
    """
    if not rows:
        raise ValueError("sft: no rows to learn from")
    if not tokenizer.chat_template:
        raise ValueError(f"sft: {tokenizer.name_or_path} has no chat template; set one on its tokenizer and save it")
    prompts, answers = zip(*(_split(tokenizer, number, row) for number, row in enumerate(rows)), strict=True)
    # Apart, as when the model speaks: its first token never merges with the prompt's last one.
    asked = tokenizer(list(prompts), add_special_tokens=False)["input_ids"]
    said = tokenizer(list(answers), add_special_tokens=False)["input_ids"]
    examples = [
        {"input_ids": prompt + answer, "labels": [IGNORED] * len(prompt) + answer}
        for prompt, answer in zip(asked, said, strict=True)
        if len(prompt) + len(answer) <= max_length
    ]
    if not examples:
        raise ValueError(f"sft: none of {len(rows)} rows fits into max_length = {max_length} tokens")
    return examples


def _split(tokenizer: PreTrainedTokenizerBase, number: int, row: Row) -> tuple[str, str]:
    """The text up to where the model speaks, and what it says, the end of its turn included."""
    messages: list[Any] = list(row["messages"])
    if not messages or messages[-1]["role"] != "assistant":
        raise ValueError(f"sft: row {number} does not end with an assistant message to learn")
    prompt = str(tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True))
    whole = str(tokenizer.apply_chat_template(messages, tokenize=False))
    if not whole.startswith(prompt):
        raise ValueError(f"sft: row {number}: the chat template writes the prompt anew once it is answered")
    return prompt, whole.removeprefix(prompt).rstrip("\n")


def _config(out_dir: Path, steps: int, lr: float, batch: int, micro_batch: int, seed: int) -> SFTConfig:
    from trl.trainer.sft_config import SFTConfig

    if batch % micro_batch:
        raise ValueError(f"sft: micro_batch = {micro_batch} does not divide batch = {batch}")
    on_gpu = torch.cuda.is_available()
    return SFTConfig(
        output_dir=str(out_dir),
        max_steps=steps,
        learning_rate=lr,
        warmup_steps=max(1, steps // 20),
        lr_scheduler_type="cosine",
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=batch // micro_batch,
        train_sampling_strategy="group_by_length",
        max_length=None,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=seed,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


def _peft(lora: LoraConfig, layers: int) -> Any:
    from peft import LoraConfig as PeftConfig

    adapted = list(range(layers - lora.layers, layers)) if lora.layers else None
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    return PeftConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=targets,
        layers_to_transform=adapted,
        task_type="CAUSAL_LM",
    )


def _save(trainer: Any, tokenizer: PreTrainedTokenizerBase, out_dir: Path) -> None:
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    model.config.use_cache = True
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)


def _metrics(trainer: Any, given: int, learned: int, seconds: float) -> SftMetrics:
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    tail = losses[-max(1, len(losses) // 10) :]
    return SftMetrics(
        rows=learned,
        dropped=given - learned,
        steps=trainer.state.global_step,
        loss=sum(losses) / len(losses),
        final_loss=sum(tail) / len(tail),
        seconds=round(seconds, 1),
        device=str(trainer.args.device),
    )


def _write_record(out_dir: Path, rows: Sequence[Row], settings: dict[str, Any], metrics: SftMetrics) -> None:
    (out_dir / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    record = {"settings": settings, "metrics": metrics}
    (out_dir / "sft.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
