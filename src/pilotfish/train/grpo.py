"""GRPO through TRL: the adapter between rollouts and `GRPOTrainer`.

The dataset's `prompt` column is the row's id. `rollout_func` plays the episodes and returns token ids, log-probs
and the reward as a further field, which the one reward function hands back. TRL does the rest: advantages, the loss,
LoRA, accelerate, checkpoints, trackers. docs/training.md maps every field of the recipe to TRL's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from pilotfish.background import Background
from pilotfish.engine.policy import Policy, PolicyEngine
from pilotfish.processes import Processes, launched
from pilotfish.recipe import Recipe
from pilotfish.train.clock import Clock
from pilotfish.train.diagnostics import diagnose
from pilotfish.train.gap import logprob_gap
from pilotfish.train.head import score_learned_only
from pilotfish.train.lora import autocasts, multiply_in_low_precision, peft_config
from pilotfish.train.order import Shares, check_shares, order
from pilotfish.train.profile import TrainConfig, passes
from pilotfish.train.quiet import quiet
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row, RowId
from pilotfish.train.trackers import tracked
from pilotfish.train.widths import by_length, weights, wide_alike

Trainer = GRPOTrainer
"""TRL's trainer, for callbacks that are handed it: TRL is imported here, in `sft.py` and `head.py`, nowhere else."""
OnStep = Callable[[int], bool]
"""Called after each step with its number, from 1; True stops the training."""
OnRows = Callable[[int, Sequence[Row]], None]
"""Called with each step's number, from 0, and its rows before they are learned from."""


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
    with quiet():
        laid = order(rows, config, recipe.seed, right)
        trainer = _trainer(recipe, config, laid, model, tokenizer, output)
        check_shares(laid, config, together.count)
        module = trainer.accelerator.unwrap_model(trainer.model)
        policy = (served or partial(_in_process, recipe))(module, tokenizer, first_version)
        trainer.rollout_func = _Player(rollout(policy), policy, background, clock, on_rows, together)

        def after_step(step: int) -> bool:
            return together.of_main(on_step(step, trainer, policy))

        steps = _Steps(config, after_step, on_log, clock)
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
) -> GRPOTrainer:
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
    if args.bf16:
        multiply_in_low_precision(trainer.accelerator.unwrap_model(trainer.model))
    trainer.remove_callback(PrinterCallback)  # it prints every log as a dict; on_log has them
    return trainer


def _in_process(
    recipe: Recipe, module: nn.Module, tokenizer: PreTrainedTokenizerBase, first_version: int
) -> PolicyEngine:
    member = recipe.team[recipe.trainee or ""]
    nucleus = member.sampling.top_p < 1
    return PolicyEngine(
        module, tokenizer, dtype=_dtype(recipe), nucleus=nucleus, memory=member.memory, first_version=first_version
    )


def _dtype(recipe: Recipe) -> torch.dtype | None:
    """In which the trainee's words are generated, where the recipe says so."""
    dtype = recipe.team[recipe.trainee or ""].dtype
    return None if dtype == "auto" else getattr(torch, dtype)


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


def newest_checkpoint(output: Path) -> Path | None:
    """The last complete checkpoint in a folder; one that was being written when the run was killed does not count."""
    found = [path for path in output.glob("checkpoint-*") if _complete(path / "trainer_state.json")]
    return max(found, key=updates_of, default=None)


def updates_of(checkpoint: Path) -> int:
    """Optimizer updates that a checkpoint holds."""
    return int(checkpoint.name.rpartition("-")[2])


def _complete(state: Path) -> bool:
    """The trainer's state is the last file of a checkpoint to be written."""
    try:
        json.loads(state.read_text())
    except (OSError, ValueError):
        return False
    return True


class _Trainer(GRPOTrainer):
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
        counts = self.accelerator.reduce(weights(passes).float(), reduction="sum")
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


class _Player:
    """TRL's `rollout_func`: syncs the policy, plays this process's groups of a step, and says what is logged of all."""

    def __init__(
        self,
        rollout: Rollout,
        policy: Policy,
        background: Background,
        clock: Clock,
        on_rows: OnRows,
        processes: Processes,
    ) -> None:
        self.rollout = rollout
        self.policy = policy
        self.background = background
        self.clock = clock
        self.on_rows = on_rows
        self.processes = processes

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        config = self.rollout.config
        step = trainer.state.global_step // config.updates_per_step
        with self.clock.part("sync"):
            self.background.run(self.policy.sync(trainer.state.global_step))
        with self.clock.part("rollout"):
            mine, rows, alone = self._played(prompts, step)
        self.rollout.check(rows, step)
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # engines work on streams of their own; none may still write when the loss begins
        self.on_rows(step, rows)
        metrics = diagnose(rows, alone, self.rollout.tasks, config.group_size, self.rollout.mixed)
        with self.clock.part("gap"):
            gap = logprob_gap(trainer, mine, config.temperature, step)
        metrics |= {"engine/logprob_gap": gap} if gap is not None else {}
        silence = [trainer.eos_token_ids[0]]  # what nobody said was not cut off
        return {
            "prompt_ids": [row.prompt_ids for row in mine],
            "completion_ids": [row.completion_ids if row.trained else silence for row in mine],
            "logprobs": [row.logprobs for row in mine],
            "env_mask": [[int(row.learnable)] * len(row.completion_ids) for row in mine],
            "episode_reward": [row.reward for row in mine],
            "diagnostics": [metrics] * len(mine),
        }

    def _played(self, prompts: list[str], step: int) -> tuple[list[Row], list[Row], dict[str, float | None]]:
        """The rows of this process, and those of all; rewards without the trainee, by task."""
        self.rollout.journal.look()  # what others have asked since: answers that are stored, the actor alone
        everyone = [prompt for share in self.processes.gathered(prompts) for prompt in share]
        groups = len(prompts) // self.rollout.config.group_size
        part = slice(groups * self.processes.rank, groups * (self.processes.rank + 1))
        mine, alone = self.background.run(self.rollout.compared(everyone, step, part, self.processes.part))
        shares = self.processes.gathered((mine, alone))
        rewards = {task: reward for _, alone in shares for task, reward in alone.items()}
        return mine, [row for rows, _ in shares for row in rows], rewards


def team(
    completions: list[Any],
    episode_reward: list[float | None],
    diagnostics: list[Mapping[str, float]],
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """The one reward function: rewards are already known, the step's diagnostics go into TRL's log."""
    if log_metric is not None:
        for name, value in diagnostics[0].items():
            log_metric(name, value)
    return episode_reward


class NotFinite(Exception):
    """Gradients stay infinite or NaN; the weights are those before it began."""


LOST_UPDATES = 8
"""So many updates in a row without a finite gradient end the run."""


class _Steps(TrainerCallback):
    """Counts steps where TRL counts optimizer updates."""

    def __init__(
        self,
        config: TrainConfig,
        on_step: OnStep,
        on_log: Callable[[int, Mapping[str, float]], None],
        clock: Clock,
    ) -> None:
        self.config = config
        self.after_step = on_step
        self.after_log = on_log
        self.clock = clock
        self.laps: dict[str, float] = {}
        self.lost, self.in_a_row = 0, 0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Leave out an update whose gradient is not finite: one NaN would make every weight NaN, for good."""
        gradients = [weight.grad for weight in more["model"].parameters() if weight.grad is not None]
        if bool(torch.nn.utils.get_total_norm(gradients).isfinite()):
            self.in_a_row = 0
            return
        for weight in more["model"].parameters():
            weight.grad = None
        self.lost, self.in_a_row = self.lost + 1, self.in_a_row + 1
        if self.in_a_row == LOST_UPDATES:
            raise NotFinite(
                f"the gradients of {LOST_UPDATES} updates in a row are not finite; the weights stand as they were. "
                "Lower train.learning_rate, or set the trainee's dtype to float32, and resume"
            )

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.clock.lap()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step % self.config.updates_per_step:
            return
        self.laps = self.clock.lap()
        if self.after_step(state.global_step // self.config.updates_per_step):
            control.should_training_stop = True
        self.clock.lap()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **more: Any) -> None:
        if logs and "loss" in logs and state.is_world_process_zero:
            lost, self.lost = self.lost, 0
            logs |= {**self.laps, "updates/lost": lost}
            for name in [name for name, value in logs.items() if value is None]:
                del logs[name]
            self.after_log(state.global_step // self.config.updates_per_step, logs)
