"""What TRL asks for rows and rewards: it plays this process's groups of a step, and says what is logged of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pilotfish.background import Background
from pilotfish.engine.policy import Policy
from pilotfish.processes import Processes
from pilotfish.train.clock import Clock
from pilotfish.train.diagnostics import diagnose
from pilotfish.train.gap import logprob_gap
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row

if TYPE_CHECKING:
    from pilotfish.train.grpo import Trainer

OnRows = Callable[[int, Sequence[Row]], None]
"""Called with each step's number, from 0, and its rows before they are learned from."""


class Player:
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

    def __call__(self, prompts: list[str], trainer: Trainer) -> dict[str, Any]:
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
