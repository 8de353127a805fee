"""The rows of a recipe divided: to learn on, to choose the weights by, to measure on.

parts = divide(pairs)
parts.write(folder, "mine")            # mine-train.jsonl, mine-test.jsonl
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.evaluate.stats import mean_interval
from pilotfish.start.pairs import Pair

LEAST = 20
"""Rows that it takes to learn on some and measure on others."""
TEST, HOLDOUT = (0.2, 200), (0.1, 64)
"""Share of the rows, and how many at most."""
TRAIN = 500
"""AgentPO trains on 500 tasks; 700 and 1,000 overfit there."""


@dataclass(frozen=True)
class Split:
    """Each question stands in one part."""

    train: Sequence[Pair]
    """With those that are held out: a recipe takes these from its training source."""
    holdout: int
    test: Sequence[Pair]

    @property
    def learned(self) -> int:
        """Tasks that are learned on."""
        return min(TRAIN, len(self.train) - self.holdout)

    @property
    def told_to(self) -> float:
        """How far the accuracy of a team that is right on half of the test tasks may be from what is measured on
        them."""
        return _half_width(len(self.test))

    @property
    def chosen_by(self) -> float:
        """The same of the held-out tasks."""
        return _half_width(self.holdout)

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write both parts as JSON lines; returns the files."""
        files = file_names(folder, name)
        for file, part in zip(files, (self.train, self.test), strict=True):
            file.write_text("".join(f"{_line(pair)}\n" for pair in part), encoding="utf-8")
        return files


def file_names(folder: Path, name: str) -> tuple[Path, Path]:
    """Where the parts are written."""
    return folder / f"{name}-train.jsonl", folder / f"{name}-test.jsonl"


def divide(pairs: Sequence[Pair], seed: int = 0) -> Split:
    """Draw the parts of at least `LEAST` pairs."""
    drawn = random.Random(seed).sample(pairs, len(pairs))
    test, holdout = (min(most, int(share * len(pairs))) for share, most in (TEST, HOLDOUT))
    return Split(drawn[test : test + holdout + TRAIN], holdout, drawn[:test])


def _half_width(tasks: int) -> float:
    right = tasks // 2
    found = mean_interval([1.0] * right + [0.0] * (tasks - right))
    return (found.high - found.low) / 2


def _line(pair: Pair) -> str:
    row = {"id": pair.id, "question": pair.question, "answer": pair.answer}
    choices = {"choices": list(pair.choices)} if pair.choices else {}
    return json.dumps({**row, **choices, **pair.meta}, ensure_ascii=False)
