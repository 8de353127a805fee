"""The filter: which tasks are worth training on, by how often the agents' own answers are right.

A task that nearly everybody solves teaches the leader nothing: MLPO drops those whose stored answers are right in 75 %
or more; those that nobody solves may be dropped too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pilotfish.collect.store import Store
from pilotfish.recipe import CollectConfig, RecipeError
from pilotfish.task import Task

Why = Literal["right", "wrong", "begun"]
REASONS: dict[Why, str] = {
    "right": "too often right",
    "wrong": "never right",
    "begun": "left out when the run began",
}


@dataclass(frozen=True, slots=True)
class Dropped:
    """A task that is left out."""

    task: str
    right: int
    of: int
    """Answers that were judged."""
    why: Why


@dataclass(frozen=True)
class Sifted:
    """Tasks with what the filter said of them."""

    kept: list[Task]
    dropped: list[Dropped]
    config: CollectConfig

    def report(self) -> dict[str, Any]:
        """What a run keeps of it: the rule, how many tasks it dropped and why, and which are trained on."""
        return {
            "rule": {"drop_right": self.config.drop_right, "drop_wrong": self.config.drop_wrong},
            "counts": {"kept": len(self.kept), **self._counts()},
            "kept": [task.id for task in self.kept],
            "dropped": [asdict(dropped) for dropped in self.dropped],
        }

    def __str__(self) -> str:
        of = len(self.kept) + len(self.dropped)
        why = [f"{count} {reason}" for reason, count in self._counts().items() if count]
        return f"filter: {len(self.kept)} of {of} tasks kept" + (f"; dropped: {', '.join(why)}" if why else "")

    def _counts(self) -> dict[str, int]:
        found = Counter(dropped.why for dropped in self.dropped)
        return {name: found[why] for why, name in REASONS.items()}


def sift(tasks: Sequence[Task], store: Store, config: CollectConfig, recorded: Sequence[str] | None = None) -> Sifted:
    """Leave out tasks that teach nothing; one without a judged answer stays.

    Args:
        tasks: to choose from.
        store: the agents' answers of round 0 are counted, over `config.sets` sets.
        config: the rule.
        recorded: ids that a run has begun with: they stand, whatever the rule says now.

    Raises:
        RecipeError: no task is left.
    """
    begun = None if recorded is None else set(recorded)
    kept: list[Task] = []
    dropped: list[Dropped] = []
    for task in tasks:
        right, of = _counted(task, store, config.sets)
        why = _why(right, of, config)
        if begun is not None:
            why = None if task.id in begun else why or "begun"
        if why is None:
            kept.append(task)
        else:
            dropped.append(Dropped(task.id, right, of, why))
    found = Sifted(kept, dropped, config)
    if not kept:
        raise RecipeError(f"{found}; nothing is left to train on. {_way_out(dropped, config)}")
    return found


def _counted(task: Task, store: Store, sets: int) -> tuple[int, int]:
    """Right answers and judged ones, over the sets."""
    lines = [line for set in range(sets) if (line := store.line(task.id, set, 0))]
    return sum(line.right for line in lines), sum(len(line.judged) for line in lines)


def _why(right: int, of: int, config: CollectConfig) -> Why | None:
    if of and config.drop_right is not None and right >= config.drop_right * of:
        return "right"
    return "wrong" if of and config.drop_wrong and not right else None


def _way_out(dropped: Sequence[Dropped], config: CollectConfig) -> str:
    if any(one.why == "right" for one in dropped):
        right, of = sum(one.right for one in dropped), sum(one.of for one in dropped)
        return (
            f"{right} of the agents' {of} answers are right: take harder tasks or weaker agents, or keep them with "
            f"--set collect.drop_right=null (it is {config.drop_right})"
        )
    return "Take easier tasks or stronger agents, or keep them with --set collect.drop_wrong=false"
