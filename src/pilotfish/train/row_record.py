"""What the rows of a step were worth: `rows.jsonl` in the folder of a run or stage, one line a group.

    {"step": 3, "decision": 0, "episodes": ["train/3/t7/0|hint||0.0", …], "rewards": [1.0, …], "advantages": [0.54, …]}

The journal has the verdict on the team's answer; the reward that was learned from may have further terms
(`train.reward`), and stands here with its advantage. A step that was taken again after a resume stands twice; the later
line counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import nan, sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pilotfish.train.row import Row

FILE = "rows.jsonl"
SMALL = 1e-4
"""What TRL adds to the standard deviation that it divides by."""


Worth = tuple[float | None, float | None]
"""Reward and advantage of a row; the reward is None where there is no verdict, or nobody said anything."""


def worths(line: Mapping[str, Any]) -> Iterator[tuple[str, Worth]]:
    """A line of the file, read: the ids of the rows' episodes, and what each was worth."""
    return zip(line["episodes"], zip(line["rewards"], line["advantages"], strict=True), strict=True)


def lines(rows: Sequence[Row], step: int, size: int, normalise: Literal["group", "none"]) -> Iterator[dict[str, Any]]:
    """The lines of a step.

    Args:
        rows: groups of `size`, one behind the other.
        step: in which they are learned from, from 0.
        size: rows in a group.
        normalise: see `train.normalise`.
    """
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        rewards = [row.reward for row in group]
        yield {
            "step": step,
            "decision": group[0].id.decision,
            "episodes": [row.episodes[0].id for row in group],
            "rewards": rewards,
            "advantages": [round(advantage, 6) for advantage in advantages(rewards, normalise)],
        }


def advantages(rewards: Sequence[float | None], normalise: Literal["group", "none"]) -> list[float]:
    """Advantages of a group as TRL has them: the reward less the mean, over the standard deviation of the sample.

    Rows without a reward do not count, and have 0; so has a single row that counts, where its own spread would divide
    it.
    """
    judged = [reward for reward in rewards if reward is not None]
    mean = fmean(judged) if judged else nan
    scale = _spread(judged, mean) + SMALL if normalise == "group" else 1.0
    return [0.0 if reward is None or scale != scale else (reward - mean) / scale for reward in rewards]


def _spread(judged: Sequence[float], mean: float) -> float:
    """With Bessel's correction; nan of fewer than two."""
    return sqrt(sum((reward - mean) ** 2 for reward in judged) / (len(judged) - 1)) if len(judged) > 1 else nan
