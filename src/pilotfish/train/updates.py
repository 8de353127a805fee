"""Steps, where TRL counts optimizer updates; and updates that are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import TrainerCallback

from pilotfish.engine.weights import whole
from pilotfish.train.clock import Clock
from pilotfish.train.profile import TrainConfig

OnStep = Callable[[int], bool]
"""Called after each step with its number, from 1; True stops the training."""


class NotFinite(ValueError):
    """Gradients stay infinite or NaN; the weights are those before it began."""


LOST_UPDATES = 8
"""So many updates in a row without a finite gradient end the run."""


class Finite(TrainerCallback):
    """Leaves out updates whose gradient is not finite: one NaN would make every weight NaN, for good."""

    def __init__(self) -> None:
        self.lost, self.in_a_row = 0, 0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Called with the gradients of an update; the optimizer passes by weights that have none."""
        gradients = [weight.grad for weight in more["model"].parameters() if weight.grad is not None]
        if bool(whole(torch.nn.utils.get_total_norm(gradients)).isfinite()):
            self.in_a_row = 0
            return
        for weight in more["model"].parameters():
            weight.grad = None
        self.lost, self.in_a_row = self.lost + 1, self.in_a_row + 1
        if self.in_a_row == LOST_UPDATES:
            raise NotFinite(
                f"the gradients of {LOST_UPDATES} updates in a row are not finite; the weights stand as they were. "
                "Begin another run with a lower train.learning_rate, or with float32 as the trainee's dtype"
            )


class Steps(Finite):
    """Counts steps where TRL counts optimizer updates."""

    def __init__(
        self,
        config: TrainConfig,
        on_step: OnStep,
        on_log: Callable[[int, Mapping[str, float]], None],
        clock: Clock,
    ) -> None:
        super().__init__()
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

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.clock.lap()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **more: Any) -> None:
        if logs and "loss" in logs and state.is_world_process_zero:
            lost, self.lost = self.lost, 0
            logs |= {**self.laps, "updates/lost": lost}
            for name in [name for name, value in logs.items() if value is None]:
                del logs[name]
            self.after_log(state.global_step // self.config.updates_per_step, logs)
