"""GRPO through TRL: the adapter between rollouts and `GRPOTrainer`.

The dataset's `prompt` column is the row's id. `rollout_func` plays the episodes and returns token ids, log-probabilities
and the reward as a further field, which the one reward function hands back. TRL does the rest: advantages, the loss,
LoRA, accelerate, checkpoints, trackers. docs/training.md maps every field of the recipe to TRL's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig as PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback

from pilotfish.background import Background
from pilotfish.engine.policy import PolicyEngine
from pilotfish.recipe import LoraConfig, Recipe
from pilotfish.train.profile import TrainConfig
from pilotfish.train.rollout import Rollout, RowId, diagnose

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

OnStep = Callable[[int], bool]
"""Called after each step with its number, from 1; True stops the training."""


def train(
    recipe: Recipe,
    rows: Sequence[RowId],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rollout: Callable[[PolicyEngine], Rollout],
    *,
    background: Background,
    output: Path,
    on_step: Callable[[int, GRPOTrainer, PolicyEngine], bool],
    on_log: Callable[[int, Mapping[str, float]], None],
) -> GRPOTrainer:
    """Train the trainee.

    Args:
        recipe: `train`, `seed`, and the trainee's LoRA.
        rows: one id a group; an epoch goes through each once.
        model: the trainee's weights: float32 to train them all, any type under a LoRA.
        tokenizer: its tokenizer.
        rollout: makes the rollout once the policy engine stands.
        background: where episodes are played.
        output: folder of checkpoints; training goes on from the newest one in it.
        on_step: called with the step's number, the trainer and the policy before training (0) and after each step; True
            stops.
        on_log: called with the step's number and TRL's and our metrics.
    """
    assert isinstance(recipe.train, TrainConfig)
    config = recipe.train
    total = steps(config, len(rows))
    lora = recipe.team[recipe.trainee or ""].lora
    clock = _Clock()
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=_handed_back,
        args=arguments(config, total, output, seed=recipe.seed, limit=_token_limit(recipe), resumable=True),
        train_dataset=Dataset.from_dict({"prompt": [str(row) for row in rows]}),
        processing_class=tokenizer,
        peft_config=_peft(lora, model) if lora else None,
        rollout_func=lambda prompts, trainer: played(prompts, trainer),
        callbacks=[_Steps(config, lambda step: on_step(step, trainer, policy), on_log, clock)],
    )
    trainer.remove_callback(PrinterCallback)  # it prints every log as a dict; on_log has them
    trainer.remove_callback(PrinterCallback)
    _refuse_split_groups(config, trainer)
    policy = PolicyEngine(trainer.accelerator.unwrap_model(trainer.model), tokenizer)
    played = _Player(rollout(policy), policy, background, clock)
    checkpoint = newest_checkpoint(output)
    if checkpoint is None and on_step(0, trainer, policy):
        return trainer
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return trainer


def steps(config: TrainConfig, tasks: int) -> int:
    """Steps of a training: `steps`, or as many as the epochs hold; an incomplete last one is left out.

    Raises:
        ValueError: fewer tasks than one step takes.
    """
    if tasks < config.tasks_per_step:
        raise ValueError(
            f"train.tasks_per_step is {config.tasks_per_step}, and there are {tasks} training tasks; lower it or add some"
        )
    return config.steps or int(config.epochs * (tasks // config.tasks_per_step))


def arguments(
    config: TrainConfig, total: int, output: Path, *, seed: int, limit: int, resumable: bool = False
) -> GRPOConfig:
    """TRL's configuration for a recipe's: the mapping that docs/training.md explains.

    Args:
        config: the recipe's `train`.
        total: steps.
        output: folder of checkpoints.
        seed: of data order and initialisation.
        limit: the trainee's token limit; enters the `dr_grpo` loss.
        resumable: write checkpoints.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    passes = config.rows_per_step // (config.micro_batch * world)
    cuda = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=config.micro_batch,
        gradient_accumulation_steps=passes // config.updates_per_step,
        steps_per_generation=passes,
        num_generations=config.group_size,
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
        bf16=cuda,
        use_cpu=not cuda,
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
    """The last complete checkpoint in a folder."""
    found = [path for path in output.glob("checkpoint-*") if (path / "trainer_state.json").exists()]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


class _Player:
    """TRL's `rollout_func`: syncs the policy, plays a step, and remembers what is logged of it."""

    def __init__(self, rollout: Rollout, policy: PolicyEngine, background: Background, clock: _Clock) -> None:
        self.rollout = rollout
        self.policy = policy
        self.background = background
        self.clock = clock

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        config = self.rollout.config
        step = trainer.state.global_step // config.updates_per_step
        with self.clock.part("sync"):
            self.background.run(self.policy.sync(trainer.state.global_step))
        with self.clock.part("rollout"):
            rows = self.background.run(self.rollout.step(prompts, step))
        with self.clock.part("alone"):
            alone = self.background.run(self.rollout.without_trainee(rows))
        metrics = diagnose(rows, alone, self.rollout.tasks, config.group_size)
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion_ids for row in rows],
            "logprobs": [row.logprobs for row in rows],
            "env_mask": [[int(row.trained)] * len(row.completion_ids) for row in rows],
            "episode_reward": [row.reward for row in rows],
            "diagnostics": [metrics] * len(rows),
        }


def _handed_back(
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


class _Clock:
    """Seconds of a step's parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def part(self, name: str) -> _Part:
        return _Part(self, name)

    def lap(self) -> dict[str, float]:
        """Seconds since the last lap, in all and by part; what is in no part is the loss, backward and update."""
        now = time.monotonic()
        whole = now - self._since
        parts = {f"seconds/{name}": value for name, value in self.seconds.items()}
        learn = whole - sum(self.seconds.values())
        self.seconds, self._since = {}, now
        return {"seconds/step": whole, **parts, "seconds/learn": learn}


class _Part:
    def __init__(self, clock: _Clock, name: str) -> None:
        self.clock, self.name = clock, name

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, *problem: object) -> None:
        spent = time.monotonic() - self.started
        self.clock.seconds[self.name] = self.clock.seconds.get(self.name, 0.0) + spent


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Counts steps where TRL counts optimizer updates."""

    def __init__(
        self,
        config: TrainConfig,
        on_step: OnStep,
        on_log: Callable[[int, Mapping[str, float]], None],
        clock: _Clock,
    ) -> None:
        self.config = config
        self.after_step = on_step
        self.after_log = on_log
        self.clock = clock
        self.laps: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.clock.lap()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step % self.config.updates_per_step:
            return
        self.laps = self.clock.lap()
        if self.after_step(state.global_step // self.config.updates_per_step):
            control.should_training_stop = True
        self.clock.lap()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **more: Any) -> None:
        if logs and "loss" in logs and state.is_world_process_zero:
            self.after_log(state.global_step // self.config.updates_per_step, {**logs, **self.laps})


def _token_limit(recipe: Recipe) -> int:
    return recipe.team[recipe.trainee or ""].sampling.max_tokens


def _peft(lora: LoraConfig, model: PreTrainedModel) -> PeftConfig:
    """LoRA on the linear modules of the last `layers` layers, the output head left out (TRL reads it directly)."""
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    linear = [name for name in linear if not name.endswith("lm_head")]
    count = int(model.config.num_hidden_layers)
    lowest = count - (lora.layers or count)
    targets = [name for name in linear if _layer(name) >= lowest and _wanted(name, lora)]
    if not targets:
        raise ValueError(f"lora.targets {lora.targets}: the model has no such linear modules, e.g. {linear[:3]}")
    return PeftConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"
    )


def _layer(name: str) -> int:
    return next((int(part) for part in name.split(".") if part.isdigit()), 0)


def _wanted(name: str, lora: LoraConfig) -> bool:
    return lora.targets == "all-linear" or name.rpartition(".")[2] in lora.targets


def _refuse_split_groups(config: TrainConfig, trainer: GRPOTrainer) -> None:
    rows = trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
    processes = trainer.accelerator.num_processes
    if rows % config.group_size:
        raise ValueError(
            f"{processes} processes would get {rows} rows a step each, and groups of {config.group_size} would straddle "
            "them; make train.tasks_per_step a multiple of the number of processes"
        )
