"""Steps of a training, timed alike whoever trains, and calls in flight: what the benches of a step share.

    steps = Steps(count=8)
    trainer = GRPOTrainer(..., max_steps=steps.needed)
    steps.watch(trainer)
    trainer.train()
    steps.seconds, steps.of("forward_s")      # of the steps that count

`WARM_UP` steps come first and do not count. On a GPU one more step is taken at the end under torch's profiler, for the
time in which any kernel ran. Forward, backward and optimizer are measured on a GPU between events in its main stream,
so that nothing waits for its measurement; all else is by the clock.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
import trl
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from transformers import TrainerCallback

from pilotfish.engine.base import Completion, Engine, Wrapped

WARM_UP = 2
LEAST = 3
"""Steps that count, however slow they are."""
PARTS = ("sync_s", "rollout_s", "gap_s", "generate_s", "reward_s", "forward_s", "backward_s", "optimizer_s")
"""Figures that follow one another in a step; the others lie within these."""
Span = tuple[float, float]


class Steps(TrainerCallback):
    """Times the steps of a TRL trainer, each from the end of the one before, and what happens in them.

    Args:
        count: steps that count.
        limit: seconds after which no further step begins, once `LEAST` have counted.
    """

    def __init__(self, count: int, limit: float = float("inf")) -> None:
        self.count = count
        self.limit = limit
        self.busy: float | None = None
        """Seconds of one step in which a kernel ran on the GPU."""
        self._seconds: list[float] = []
        self._figures: list[dict[str, float]] = []
        self._now: dict[str, float] = {}
        self._marks: list[tuple[str, Any, Any]] = []
        self._profile: Any = None
        self._began = self._since = 0.0
        self._optimizer: Any = None
        self._allocated: dict[str, float] = {}

    @property
    def needed(self) -> int:
        """Steps to take in all."""
        return WARM_UP + self.count + torch.cuda.is_available()

    @property
    def seconds(self) -> list[float]:
        return self._seconds[WARM_UP : WARM_UP + self.count]

    @property
    def names(self) -> list[str]:
        """Of the figures that some step has."""
        return list(dict.fromkeys(name for figures in self._figures for name in figures))

    def of(self, name: str) -> list[float]:
        """A figure of each step that counts."""
        return [figures.get(name, 0.0) for figures in self._figures[WARM_UP : WARM_UP + self.count]]

    def add(self, name: str, value: float) -> None:
        """Count so much more under a name, in the step that is being taken."""
        self._now[name] = self._now.get(name, 0.0) + value

    def note(self, name: str, value: float) -> None:
        """What is known of a step once it has ended."""
        self._figures[-1][name] = value

    def watch(self, trainer: Any) -> None:
        """Time a trainer that has not begun."""
        trainer.compute_loss = self._marked("forward_s", trainer.compute_loss)
        trainer.accelerator.backward = self._marked("backward_s", trainer.accelerator.backward)
        trainer.add_callback(self)

    def _marked(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def marked(*values: Any, **named: Any) -> Any:
            began = _moment()
            try:
                return function(*values, **named)
            finally:
                self._marks.append((name, began, _moment()))

        return marked

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        _settle()
        self._began = self._since = time.perf_counter()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._optimizer = _moment()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._marks.append(("optimizer_s", self._optimizer, _moment()))

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        _settle()
        now = time.perf_counter()
        self._seconds.append(now - self._since)
        for name, began, ended in self._marks:
            self.add(name, _between(began, ended))
        for name, count in _allocations().items():
            self.add(name, count - self._allocated.get(name, 0.0))
            self._allocated[name] = count
        self._figures.append(self._now)
        self._now, self._marks = {}, []
        control.should_training_stop = self._over(now)
        self._since = time.perf_counter()

    def _over(self, now: float) -> bool:
        """Whether that was the last step; begins and ends the profile."""
        if self._profile is not None:
            self._profile.__exit__(None, None, None)
            self.busy = union(_kernels(self._profile))
            return True
        done = len(self._seconds) - WARM_UP
        if done < self.count and (done < LEAST or now - self._began < self.limit):
            return False
        self.count = done
        if torch.cuda.is_available():
            self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self._profile.__enter__()
        return not torch.cuda.is_available()

    @contextmanager
    def told(self, name: str) -> Iterator[None]:
        """Print the steps and their medians under a name when the block ends, also by an error."""
        try:
            yield
        finally:
            print(f"steps {name}", *(f"{value:.2f}" for value in self.seconds))
            if torch.cuda.is_available():
                print(f"flushes {name}", *(f"{value:.0f}" for value in self.of("flushes")))
            if len(self.seconds) > 1:
                self._tell(name, *statistics.quantiles(self.seconds, n=4, method="inclusive"))

    def _tell(self, name: str, first: float, median: float, third: float) -> None:
        print(f"value {name}_step_s {median:.3f}")
        print(f"value {name}_step_s_quartiles {first:.3f} {third:.3f}")
        for figure in self.names:
            print(f"value {name}_{figure} {statistics.median(self.of(figure)):.4g}")
        known = map(sum, zip(*(self.of(part) for part in PARTS), strict=True))
        print(f"value {name}_rest_s {statistics.median(map(float.__sub__, self.seconds, known)):.4g}")
        if self.busy is not None:
            print(f"value {name}_gpu_busy_s {self.busy:.3f}")
            print(f"value {name}_gpu_idle_share {1 - self.busy / median:.2f}", flush=True)


class Flown(Wrapped):
    """Notes when calls of an engine were in flight, and what they drew."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.spans: list[Span] = []
        self.tokens = 0

    async def around(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        began = time.perf_counter()
        done = await ask()
        self.spans.append((began, time.perf_counter()))
        self.tokens += done.usage.completion
        return done

    def taken(self) -> tuple[list[Span], int]:
        """The spans and tokens since this was last asked."""
        found = self.spans, self.tokens
        self.spans, self.tokens = [], 0
        return found


def union(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of the spans was open."""
    total, reached = 0.0, float("-inf")
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return total


def where(rows: int) -> str:
    """Where and of what figures are."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}"
    return f"{card}, {versions}, {rows} rows"


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _allocations() -> dict[str, float]:
    """How often torch has asked a GPU for memory, and has given back all that it held to get some."""
    if not torch.cuda.is_available():
        return {}
    counted = torch.cuda.memory_stats()
    return {"mallocs": counted["num_device_alloc"], "flushes": counted["num_alloc_retries"]}


def _moment() -> Any:
    """Now; on a GPU, in its main stream."""
    if not torch.cuda.is_available():
        return time.perf_counter()
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _between(began: Any, ended: Any) -> float:
    return float(ended - began if isinstance(began, float) else began.elapsed_time(ended) / 1e3)


def _kernels(profile: Any) -> Sequence[Span]:
    """When kernels and copies ran, in seconds."""
    on_gpu = (event for event in profile.events() if event.device_type == DeviceType.CUDA)
    return [(event.time_range.start / 1e6, event.time_range.end / 1e6) for event in on_gpu]
