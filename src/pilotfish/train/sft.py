"""Supervised fine-tuning of a member on rows of chat, through TRL's SFTTrainer; the loss is on the last answer only.

    from pilotfish.lab import rows
    sft("HuggingFaceTB/SmolLM2-135M-Instruct", rows("actor", 25_600, seed=1), "runs/lab-actor/best", steps=200)

The folder it writes loads like any Hugging Face model. Beside the weights it keeps `data.jsonl` (the rows as given)
and `sft.json` (every setting and the metrics). It appears whole or not at all; until then checkpoints stand in
`best.checkpoints` beside it, and the same call goes on from the newest.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from pilotfish.processes import Processes, launched
from pilotfish.train.attention import without_cudnn
from pilotfish.train.checkpoints import newest_checkpoint
from pilotfish.train.profile import fitting
from pilotfish.train.updates import Finite

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl.trainer.sft_config import SFTConfig

    from pilotfish.lab.row import Row
    from pilotfish.recipe import LoraConfig

IGNORED = -100
"""Label of a token that the loss leaves out."""
CHECKPOINTS = 5
"""Written in a run, evenly spread; the newest two are kept."""


class SftMetrics(TypedDict):
    """What a run of fine-tuning did."""

    rows: int
    """Rows learned from."""
    dropped: int
    """Rows longer than `max_length` tokens, left out whole: an answer that is cut has no end to learn."""
    lost: int
    """Updates that were left out, since their gradient was not finite, in the call that ended it."""
    steps: int
    loss: float
    """Mean cross-entropy of a learned token, in nats, over the run."""
    final_loss: float
    """The same over the last tenth of the steps."""
    seconds: float
    """Wall time of the call that ended it; what a killed one took before is not in it."""
    device: str


def sft(
    model: str,
    rows: Sequence[Row],
    out_dir: str | Path,
    processes: Processes | None = None,
    *,
    steps: int | None = None,
    epochs: float = 1.0,
    lr: float = 5e-4,
    batch: int = 128,
    micro_batch: int | None = None,
    max_length: int = 4096,
    gradient_checkpointing: bool = False,
    lora: LoraConfig | None = None,
    seed: int = 0,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> SftMetrics:
    """Fine-tune a model and save it with its tokenizer, or go on with a run that was killed.

    Args:
        model: a Hugging Face folder or hub name, a `.gguf` file or `smollm2`; its tokenizer has a chat template.
        rows: chats that end with the assistant message to learn.
        out_dir: where the fine-tuned model goes; what an earlier fine-tuning left there is replaced.
        processes: that divide the rows of a step among them; each of them calls this, and the main one writes.
        steps: optimizer steps; overrides `epochs`.
        epochs: passes over the rows.
        lr: highest learning rate: warmed up over 5 % of the steps, then down to 0 along a cosine.
        batch: rows a step.
        micro_batch: rows in one forward and backward pass; divides `batch`, which it is when not given.
        max_length: most tokens of prompt and answer together.
        gradient_checkpointing: compute activations twice to save memory; the weights are the same.
        lora: train adapters, which are merged before saving; None trains all weights, in float32.
        seed: of the order of the rows and of the adapters' start.
        revision: of the model on the hub.
        trust_remote_code: run code that the model's repository ships.

    Raises:
        ValueError: no rows, a row without an answer to learn, no chat template, no row that fits, a `micro_batch`
            or processes that do not divide `batch`, or an `out_dir` with files of something else.
        NotFinite: gradients stay infinite or NaN.
        Refused: there is no such model.
    """
    from transformers import set_seed

    from pilotfish.engine.loading import load
    from pilotfish.train.quiet import quiet
    from pilotfish.train.shards import shard

    started, out, together = time.monotonic(), Path(out_dir).resolve(), processes or Processes()
    if together.main:
        _refuse_strangers(out)
    settings: dict[str, Any] = {"model": model, "steps": steps, "epochs": epochs, "lr": lr, "batch": batch}
    settings |= {"micro_batch": micro_batch, "max_length": max_length, "lora": lora and lora.model_dump(), "seed": seed}
    settings |= {"revision": revision, "trust_remote_code": trust_remote_code}
    with quiet(), without_cudnn():
        weights, tokenizer = load(model, revision=revision, dtype="float32", trust_remote_code=trust_remote_code)
        examples = tokenize(tokenizer, rows, max_length)
        checkpoints = together.of_main(_checkpoints(out, settings, rows) if together.main else out)
        total = steps or max(1, round(epochs * len(examples) / batch))
        config = _config(checkpoints, total, lr, batch, micro_batch or batch, seed, gradient_checkpointing)
        set_seed(seed)
        trainer = _trainer(weights, tokenizer, _laid_out(examples, total * batch, batch, seed), config, lora)
        finite = Finite()
        trainer.add_callback(finite)
        trainer.processes = together
        if together.sharded:
            shard(trainer)
        newest = together.of_main(newest_checkpoint(checkpoints))
        trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        metrics = _metrics(trainer, len(rows), len(examples), finite.lost, time.monotonic() - started)
        learned = _learned(trainer, together)
        if together.main:
            _save(*learned, tokenizer, out, rows, {"settings": settings, "metrics": metrics})
            shutil.rmtree(checkpoints)
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


def _refuse_strangers(out: Path) -> None:
    """The folder is replaced in the end: it is to be new, empty, or an earlier result."""
    found = next(iter(out.iterdir()), None) if out.exists() else None
    if found is not None and not (out / "sft.json").exists():
        raise ValueError(f"sft: {out} holds files of something else ({found.name}, …); name a new folder")


def _checkpoints(out: Path, settings: dict[str, Any], rows: Sequence[Row]) -> Path:
    """The folder of checkpoints; those of other rows or settings are removed."""
    folder = out.with_name(f"{out.name}.checkpoints")
    mark, digest = folder / "digest", hashlib.sha256(json.dumps([settings, rows]).encode()).hexdigest()
    if not mark.exists() or mark.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        mark.write_text(digest)
    return folder


def _laid_out(examples: Sequence[dict[str, list[int]]], size: int, batch: int, seed: int) -> list[dict[str, list[int]]]:
    """The examples in the order in which they are learned, epoch by epoch; rows of a length stand together.

    The trainer's own sampler draws the order of each epoch anew, and after a resume it would repeat the first one's.
    """
    from transformers.trainer_pt_utils import LengthGroupedSampler

    lengths = [len(example["input_ids"]) for example in examples]
    epoch = LengthGroupedSampler(batch, lengths=lengths, generator=torch.Generator().manual_seed(seed))
    return [examples[at] for at in islice(chain.from_iterable(repeat(epoch)), size)]


def _trainer(
    weights: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: list[dict[str, list[int]]],
    config: SFTConfig,
    lora: LoraConfig | None,
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl.trainer.sft_trainer import SFTTrainer

    from pilotfish.train.head import score_learned_only
    from pilotfish.train.lora import peft_config
    from pilotfish.train.shards import WholeCheckpoints

    class Trainer(WholeCheckpoints, SFTTrainer):
        pass

    score_learned_only()
    trainer = Trainer(
        model=weights,
        args=config,
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        peft_config=peft_config(lora, weights) if lora else None,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _config(
    output: Path, steps: int, lr: float, batch: int, micro_batch: int, seed: int, gradient_checkpointing: bool
) -> SFTConfig:
    from trl.trainer.sft_config import SFTConfig

    from pilotfish.engine.loading import fast_dtype

    if batch % micro_batch:
        raise ValueError(f"sft: micro_batch = {micro_batch} does not divide batch = {batch}")
    mine, rest = divmod(batch, launched())
    if rest:
        raise ValueError(f"sft: {launched()} processes do not divide batch = {batch}; make it a multiple of them")
    rows = fitting(micro_batch, mine)
    on_gpu = torch.cuda.is_available()
    return SFTConfig(
        output_dir=str(output),
        max_steps=steps,
        learning_rate=lr,
        warmup_steps=max(1, steps // 20),
        lr_scheduler_type="cosine",
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=mine // rows,
        ddp_find_unused_parameters=False,
        train_sampling_strategy="sequential",
        max_length=None,
        use_cpu=not on_gpu,
        bf16=fast_dtype("cuda" if on_gpu else "cpu") is torch.bfloat16,
        gradient_checkpointing=gradient_checkpointing,
        logging_steps=1,
        save_steps=max(1, steps // CHECKPOINTS),
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        seed=seed,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


def _metrics(trainer: Any, given: int, learned: int, lost: int, seconds: float) -> SftMetrics:
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    tail = losses[-max(1, len(losses) // 10) :]
    return SftMetrics(
        rows=learned,
        dropped=given - learned,
        lost=lost,
        steps=trainer.state.global_step,
        loss=sum(losses) / len(losses),
        final_loss=sum(tail) / len(tail),
        seconds=round(seconds, 1),
        device=str(trainer.args.device),
    )


def _learned(trainer: Any, together: Processes) -> tuple[PreTrainedModel, dict[str, torch.Tensor] | None]:
    """What was learned, with adapters merged; and for the main process all its weights, where each has a part of them.

    All processes call it.
    """
    from pilotfish.engine.weights import gathered
    from pilotfish.train.shards import sharded

    model = trainer.accelerator.unwrap_model(trainer.model)
    divided = sharded(model)
    if hasattr(model, "merge_and_unload") and (divided or together.main):
        model = model.merge_and_unload()
    return model, gathered(model, keep=together.main) if divided else None


def _save(
    model: PreTrainedModel,
    state: dict[str, torch.Tensor] | None,
    tokenizer: PreTrainedTokenizerBase,
    out: Path,
    rows: Sequence[Row],
    record: dict[str, Any],
) -> None:
    """Write weights (`state`, where the model has a part of them), rows and record into a folder beside `out`, then put
    it in its place."""
    partial, old = out.with_name(f"{out.name}.part"), out.with_name(f"{out.name}.old")
    shutil.rmtree(partial, ignore_errors=True)
    model.config.use_cache = True
    model.save_pretrained(partial, state_dict=state)
    tokenizer.save_pretrained(partial)
    (partial / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (partial / "sft.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    partial.rename(out)
    shutil.rmtree(old, ignore_errors=True)
