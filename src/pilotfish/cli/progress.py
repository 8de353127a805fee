"""Progress of long commands: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from pilotfish.cli.figures import count, duration, money
from pilotfish.engine.meter import Meter

LONGEST = 32
"""Characters of a name in the live line, so that its figures fit beside it into 80 columns."""
QUIET_S = 60.0
"""Seconds between the lines of a long collection where there is no terminal."""


def quieten() -> None:
    """Keep libraries from writing into the progress: call before they are imported."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")  # what transformers counts without asking its own switch
    try:
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        return
    disable_progress_bar()  # type: ignore[no-untyped-call]


def spend(meter: Meter) -> str:
    """What is spent so far, and of how much; tokens where nobody has a price; empty before the first call."""
    if meter.priced:
        return f"spent {money(meter.spent)}" + (f" of {money(meter.most)}" if meter.most is not None else "")
    return f"{count(meter.tokens)} tokens" if meter.tokens else ""


class _Spend(ProgressColumn):
    """What is spent, as the meter has it when the line is drawn."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(Column(no_wrap=True))  # the bar makes room for it
        self.meter = meter

    def render(self, task: Task) -> Text:
        return Text(spend(self.meter))


class _Live:
    """A rich progress on a terminal; elsewhere only `note` writes.

    Args:
        console: where to write.
        meter: counts what is spent.
    """

    def __init__(self, console: Console, meter: Meter) -> None:
        self.console = console
        self.meter = meter
        self.live = console.is_terminal
        self.bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}", markup=False),
            _Spend(meter),
            console=console,
            expand=True,
            disable=not self.live,
            transient=True,
        )

    def note(self, line: str) -> None:
        """A line that stays."""
        self.console.print(line, soft_wrap=True)

    def note_spend(self, line: str) -> None:
        """A line that stays, with what is spent by then."""
        self.note("  ".join(part for part in (line, spend(self.meter)) if part))

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()


class Waiting(_Live):
    """Shows what is spent while something is waited for.

    Args:
        console: where to write.
        doing: what is done.
        meter: counts what is spent.
    """

    def __init__(self, console: Console, doing: str, meter: Meter) -> None:
        super().__init__(console, meter)
        self.bars.add_task(doing, total=None, figures="")


class Training(_Live):
    """Shows the news of `train` and `collect`: steps, reward, holdout accuracy; sets and answers; time left.

    Args:
        console: where to write.
        doing: what comes before the first news.
        meter: counts what is spent.
    """

    def __init__(self, console: Console, doing: str, meter: Meter) -> None:
        super().__init__(console, meter)
        self.total: int | None = None
        self.holdout: float | None = None
        self.bar = self.bars.add_task(doing, total=None, figures="")
        self._first: tuple[int, float] | None = None
        self._collecting: _Collecting | None = None

    def told(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """See `pilotfish.train.main.Told`."""
        if kind.startswith("note: "):
            self.note(kind.removeprefix("note: "))
        elif kind == "start":
            self.total = int(figures["steps"])
            self._began(step)
            self.bars.update(self.bar, total=self.total, completed=step, description=self._at(step))
        elif kind == "holdout":
            self.holdout = figures["holdout/accuracy"]
            self.note_spend(f"{self._at(step)}  holdout accuracy {self.holdout:.3f}")
            self._began(step)
        elif kind == "step":
            self._stepped(step, figures)
        elif kind == "collect":
            self._collected(step, int(figures["of"]), int(figures["answers"]), int(figures["absent"]))

    def _collected(self, done: int, of: int, answers: int, absent: int) -> None:
        now = time.monotonic()
        begun = self._collecting = self._collecting or _Collecting(done, answers, now, now)
        at, line = f"collect {done}/{of}", begun.figures(done, of, answers, now)
        line += f"  {absent} absent" if absent else ""
        self.bars.update(self.bar, total=of, completed=done, description=at, figures=line)
        if done == of or (not self.live and now - begun.said >= QUIET_S):
            self.note_spend(f"{at}  {line}")
            begun.said = now
        if done == of:
            self._collecting = None

    def _stepped(self, step: int, figures: Mapping[str, float]) -> None:
        parts = [f"reward {figures['reward']:.3f}"] if "reward" in figures else []
        parts += [f"holdout {self.holdout:.3f}"] if self.holdout is not None else []
        parts += [self._left(step)]
        line = "  ".join(part for part in parts if part)
        self.bars.update(self.bar, completed=step, description=self._at(step), figures=line)
        if not self.live:
            seconds = f"  {figures['seconds/step']:.1f} s" if "seconds/step" in figures else ""
            self.note_spend(f"{self._at(step)}{seconds}  {line}")

    def _at(self, step: int) -> str:
        return f"step {step}/{self.total}" if self.total else f"step {step}"

    def _began(self, step: int) -> None:
        """The clock starts after the first evaluation, or at once where there is none."""
        if self._first is None or self._first[0] == step:
            self._first = step, time.monotonic()

    def _left(self, step: int) -> str:
        if self._first is None or not self.total or not self._first[0] < step < self.total:
            return ""
        begun, since = self._first
        return f"{duration((time.monotonic() - since) / (step - begun) * (self.total - step))} left"


@dataclass
class _Collecting:
    """Where a collection stood when it began, and when a line was last said of it."""

    done: int
    answers: int
    since: float
    said: float

    def figures(self, done: int, of: int, answers: int, now: float) -> str:
        """Answers so far, how many a second, and the time left."""
        spent, line = now - self.since, f"{answers} answers"
        if spent > 0 and answers > self.answers:
            rate = (answers - self.answers) / spent
            line += f"  {rate:.0f}/s" if rate >= 10 else f"  {rate:.1f}/s"
        if spent > 0 and self.done < done < of:
            line += f"  {duration(spent / (done - self.done) * (of - done))} left"
        return line


class Evaluation(_Live):
    """Shows the news of `evaluate`: one line an arm and benchmark.

    Args:
        console: where to write.
        benchmarks: names, in the order in which they are played; each arm is played once on each.
        meter: counts what is spent.
        samples: episodes a task.
    """

    def __init__(self, console: Console, benchmarks: Sequence[str], meter: Meter, samples: int = 1) -> None:
        super().__init__(console, meter)
        self.benchmarks = list(benchmarks)
        self.samples = samples
        self._played: dict[str, int] = {}
        self._bar: TaskID | None = self.bars.add_task("loading", total=None, figures="")
        self._first: tuple[int, float] | None = None

    def told(self, stage: str, done: int, of: int) -> None:
        """See `pilotfish.evaluate.bench.Progress`."""
        name = f"{self._benchmark(stage)}{stage}"
        shown = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        if self._bar is None:
            self._bar = self.bars.add_task(shown, total=of, figures="")
        self._first = self._first or (done, time.monotonic())
        begun, since = self._first
        spent = time.monotonic() - since
        left = f"  {duration(spent / (done - begun) * (of - done))} left" if begun < done < of else ""
        self.bars.update(self._bar, description=shown, total=of, completed=done, figures=f"{done}/{of}{left}")
        if done == of:
            self._ended(stage, name, of)

    def _ended(self, stage: str, name: str, episodes: int) -> None:
        if self._bar is not None:
            self.bars.remove_task(self._bar)
        times = f" x {self.samples} samples" if self.samples > 1 else ""
        self.note_spend(f"{name}: {episodes // self.samples} tasks{times}")
        self._played[stage] = self._played.get(stage, 0) + 1
        self._bar = self._first = None

    def _benchmark(self, stage: str) -> str:
        turn = self._played.get(stage, 0)
        return f"{self.benchmarks[turn]}: " if turn < len(self.benchmarks) else ""
