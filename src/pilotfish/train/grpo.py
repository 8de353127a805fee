"""GRPO through TRL: the adapter between rollouts and `GRPOTrainer`.

The dataset's `prompt` column is the row's id. `rollout_func` plays the episodes and returns token ids, log-probs
and the reward as a further field, which the one reward function hands back. TRL does the rest: advantages, the loss,
LoRA, accelerate, checkpoints, trackers. docs/training.md maps every field of the recipe to TRL's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from pilotfish.background import Background
from pilotfish.engine.policy import Policy, PolicyEngine
from pilotfish.processes import Processes, launched
from pilotfish.recipe import Recipe
from pilotfish.train.attention import without_cudnn
from pilotfish.train.checkpoints import newest_checkpoint
from pilotfish.train.clock import Clock
from pilotfish.train.head import score_learned_only
from pilotfish.train.lora import autocasts, multiply_in_low_precision, peft_config
from pilotfish.train.order import Shares, check_shares, order
from pilotfish.train.player import OnRows, Player, team
from pilotfish.train.positions import count_words_only
from pilotfish.train.profile import TrainConfig, passes
from pilotfish.train.quiet import quiet
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import RowId
from pilotfish.train.shards import WholeCheckpoints, shard
from pilotfish.train.trackers import tracked
from pilotfish.train.updates import Steps
from pilotfish.train.widths import by_length, learned_tokens, wide_alike

Trainer = GRPOTrainer
"""TRL's trainer, for callbacks that are handed it: TRL is imported here, in `sft.py` and `head.py`, nowhere else."""


def train(
    recipe: Recipe,
    rows: Sequence[RowId],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rollout: Callable[[Policy], Rollout],
    *,
    background: Background,
    output: Path,
    on_step: Callable[[int, GRPOTrainer, Policy], bool],
    on_log: Callable[[int, Mapping[str, float]], None],
    right: Shares | None = None,
    first_version: int = 0,
    on_rows: OnRows = lambda step, rows: None,
    processes: Processes | None = None,
    served: Callable[[nn.Module, PreTrainedTokenizerBase, int], Policy] | None = None,
) -> GRPOTrainer:
    """Train the trainee.

    Args:
        recipe: `train`, `seed`, and the trainee's LoRA.
        rows: one id a group; an epoch goes through each once, but for what fills no step.
        model: the trainee's weights: float32 to train them all, any type under a LoRA.
        tokenizer: its tokenizer.
        rollout: makes the rollout once the policy engine stands.
        background: where episodes are played.
        output: folder of checkpoints; training goes on from the newest one in it.
        on_step: called with the step's number, the trainer and the policy before training (0) and after each step; True
            stops.
        on_log: called with the step's number and TRL's and our metrics.
        right: the share of right answers in each group's stored set, where `set_order` goes by it.
        first_version: of the weights before training.
        on_rows: called with each step, from 0, and its rows before they are learned from.
        processes: that train together: each calls this, has weights of its own, and they stay equal.
        served: makes the policy engine of the weights, their tokenizer and `first_version` where a server speaks for
            them; else they are copied into an engine in process.
    """
    assert isinstance(recipe.train, TrainConfig)
    config, clock, together = recipe.train, Clock(), processes or Processes()
    with quiet(), without_cudnn():
        laid = order(rows, config, recipe.seed, right)
        trainer = _trainer(recipe, config, laid, model, tokenizer, output)
        trainer.processes = together
        check_shares(laid, config, together.count)
        module = trainer.accelerator.unwrap_model(trainer.model)
        policy = (served or partial(_in_process, recipe))(module, tokenizer, first_version)
        if together.sharded:
            shard(trainer)
        trainer.rollout_func = Player(rollout(policy), policy, background, clock, on_rows, together)

        def after_step(step: int) -> bool:
            return together.of_main(on_step(step, trainer, policy))

        steps = Steps(config, after_step, on_log, clock)
        trainer.callback_handler.callbacks.insert(0, steps)  # trackers log what it adds
        with tracked(trainer, output) if together.main else nullcontext():
            checkpoint = together.of_main(newest_checkpoint(output))
            if checkpoint is None and after_step(0):
                return trainer
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            return trainer


def _trainer(
    recipe: Recipe,
    config: TrainConfig,
    rows: Sequence[RowId],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    output: Path,
) -> _Trainer:
    member = recipe.team[recipe.trainee or ""]
    args = arguments(
        config,
        len(rows) // config.tasks_per_step,
        output,
        seed=recipe.seed,
        limit=member.sampling.max_tokens,
        resumable=True,
        bf16=autocasts(model),
    )
    if config.beta and not member.lora:
        # TRL loads the reference of the KL itself: from the trainee's folder or hub name.
        args.trust_remote_code = member.trust_remote_code
        args.model_init_kwargs = {"revision": member.revision} if member.revision else None
    score_learned_only()
    trainer = _Trainer(
        model=model,
        reward_funcs=team,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": [str(row) for row in rows]}),
        processing_class=tokenizer,
        peft_config=peft_config(member.lora, model) if member.lora else None,
    )
    for learned in filter(None, (trainer.model, trainer.ref_model)):
        count_words_only(trainer.accelerator.unwrap_model(learned))
    if args.bf16:
        multiply_in_low_precision(trainer.accelerator.unwrap_model(trainer.model))
    trainer.remove_callback(PrinterCallback)  # it prints every log as a dict; on_log has them
    return trainer


def _in_process(
    recipe: Recipe, module: nn.Module, tokenizer: PreTrainedTokenizerBase, first_version: int
) -> PolicyEngine:
    member = recipe.team[recipe.trainee or ""]
    nucleus = member.sampling.top_p < 1
    dtype = None if member.dtype == "auto" else getattr(torch, member.dtype)
    return PolicyEngine(
        module, tokenizer, dtype=dtype, nucleus=nucleus, memory=member.memory, first_version=first_version
    )


def arguments(
    config: TrainConfig,
    total: int,
    output: Path,
    *,
    seed: int,
    limit: int,
    resumable: bool = False,
    bf16: bool | None = None,
) -> GRPOConfig:
    """TRL's configuration for a recipe's: the mapping that docs/training.md explains.

    Args:
        config: the recipe's `train`.
        total: steps.
        output: folder of checkpoints.
        seed: of data order and initialisation.
        limit: the trainee's token limit; enters the `dr_grpo` loss.
        resumable: write checkpoints.
        bf16: compute in bfloat16 by autocast; on a GPU when None.

    Raises:
        ValueError: the rows of a step do not divide among the processes of this launch.
    """
    rows, count = passes(config, launched())
    cuda = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=count // config.updates_per_step,
        steps_per_generation=count,
        num_generations=config.group_size,
        shuffle_dataset=False,
        max_steps=total * config.updates_per_step,
        max_completion_length=limit,
        temperature=config.temperature,
        loss_type=config.loss,
        epsilon=config.clip_low,
        epsilon_high=config.clip_high,
        delta=config.dual_clip,
        beta=config.beta,
        use_bias_correction_kl=False,
        scale_rewards=config.normalise,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=config.warmup_steps,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        gradient_checkpointing=config.gradient_checkpointing,
        bf16=cuda if bf16 is None else bf16,
        use_cpu=not cuda,
        ddp_find_unused_parameters=False,
        seed=seed,
        data_seed=seed,
        logging_steps=config.updates_per_step,
        save_strategy="steps" if resumable else "no",
        save_steps=config.save_every * config.updates_per_step,
        save_total_limit=2,
        report_to=list(config.report_to) or "none",
        disable_tqdm=True,
        log_completions=False,
        disable_dropout=True,
    )


class _Trainer(WholeCheckpoints, GRPOTrainer):
    """TRL's, whose passes are of completions that are like in length; what it logs as means of the passes' means over
    their tokens is the mean over all tokens."""

    SHARE = "share"
    """Of a pass: its tokens, divided by a step's mean tokens a pass."""
    MEANS = ("entropy", "kl", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean")

    def _prepare_inputs(self, generation_batch: dict[str, Any]) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before:
            return inputs
        first = next(at for at, held in enumerate(self._buffered_inputs) if held is inputs)
        passes = self._buffered_inputs
        # A divergence to the reference, which TRL has computed at the whole width, would not begin at exactly 0.
        if not self.beta and wide_alike(self.model.config.get_text_config()):
            passes = by_length(passes, self.args.gradient_accumulation_steps)
        counts = self.accelerator.reduce(learned_tokens(passes).float(), reduction="sum")
        shares = (counts * len(passes) / counts.sum().clamp(min=1)).tolist()
        self._buffered_inputs = [{**held, self.SHARE: share} for held, share in zip(passes, shares, strict=True)]
        return self._buffered_inputs[first]

    def compute_loss(self, model: Any, inputs: dict[str, Any], *more: Any, **named: Any) -> Any:
        logged = self._metrics["train"]
        before = {name: len(logged.get(name, ())) for name in self.MEANS}
        loss = super().compute_loss(model, inputs, *more, **named)
        for name, count in before.items():
            for at in range(count, len(logged.get(name, ()))):
                logged[name][at] *= inputs[self.SHARE]
        return loss
