"""Scores: one line an episode of an evaluation, in `scores.jsonl` of a run's folder; what reports are made from.

    for line in Path("runs/hint/scores.jsonl").open(encoding="utf-8"):
        score = json.loads(line)            # {"benchmark": "math500", "arm": "solo", "task": "7", "reward": 1.0, …}

The words behind a line are in the run's journal: `journal.episode(score["episode"])`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pilotfish.episode import Episode
from pilotfish.evaluate.accounts import Account, accounts
from pilotfish.task import Task
from pilotfish.team import Price, Usage

if TYPE_CHECKING:
    from pilotfish.evaluate.arms import Arm, Played

FILE = "scores.jsonl"
_LONGEST = 300
"""Characters of a reason that are shown."""


@dataclass(frozen=True, slots=True)
class Score:
    """One episode of an evaluation."""

    benchmark: str
    arm: str
    role: str
    """`baseline`, `untrained`, `trained` or `control`."""
    model: str
    """The name in `evaluate.models`; empty for the recipe's own team."""
    task: str
    sample: int
    """From 0, of the samples of a task."""
    reward: float | None
    """None where there is no verdict: the episode has failed, and is never counted as wrong."""
    extracted: str | None
    """What the verifier read from the answer."""
    why: str
    """The verifier's reason, or what made the episode fail."""
    answer: str | None
    """The team's answer, whole; None where a required call failed."""
    episode: str
    """Its id in the journal."""
    calls: int
    """Answered ones, as `accounts` counts them."""
    seconds: float
    """Of the calls one after the other, as recorded when they were made."""
    cost: float | None
    """In the recipe's currency; None where no member has a price."""
    usage: dict[str, Usage]
    """By member; a call that methods share is charged to each."""
    gold: str | None = None
    """What would have been right."""
    level: Any = None
    """As the benchmark tells it."""
    subject: Any = None


def scored(benchmark: str, played: Played, tasks: Sequence[Task]) -> list[Score]:
    """The scores of an arm: all tasks of the first sample, then of the next."""
    return [
        _score(benchmark, played.arm, task, number, episode)
        for number, episodes in enumerate(played.samples)
        for task, episode in zip(tasks, episodes, strict=True)
    ]


def _score(benchmark: str, arm: Arm, task: Task, sample: int, episode: Episode) -> Score:
    verdict, usage = episode.verdict, episode.usage()
    prices = {name: member.price for name, member in arm.team.members.items() if not member.judges}
    whole = sum(accounts([episode], prices).values(), Account())
    return Score(
        benchmark,
        arm.name,
        arm.role,
        arm.model,
        task.id,
        sample,
        verdict.reward,
        verdict.extracted,
        verdict.why,
        episode.answer,
        episode.id,
        calls=whole.calls,
        seconds=whole.seconds,
        cost=cost(usage, prices),
        usage=usage,
        gold=task.answer,
        level=task.meta.get("level"),
        subject=task.meta.get("subject"),
    )


def cost(usage: dict[str, Usage], prices: dict[str, Price]) -> float | None:
    """Money for what members used; None where none of them has a price."""
    if not any(price.input or price.output for price in prices.values()):
        return None
    return sum(used.cost(prices[member]) for member, used in usage.items())


def failures(scores: Iterable[Score]) -> list[str]:
    """Of each arm with episodes that have no verdict, how many, and the commonest reason."""
    by_arm: dict[tuple[str, str], list[Score]] = {}
    for score in scores:
        by_arm.setdefault((score.benchmark, score.arm), []).append(score)
    told = []
    for (benchmark, arm), of in by_arm.items():
        if whys := Counter(" ".join(score.why.split()) for score in of if score.reward is None):
            why, count = whys.most_common(1)[0]
            most = f" ({count} of them)" if len(whys) > 1 else ""
            told.append(f"{benchmark}: {arm}: {whys.total()} of {len(of)} episodes failed: {why[:_LONGEST]}{most}")
    return told


def lines(scores: Iterable[Score]) -> Iterator[str]:
    """JSON, one line a score."""
    for score in scores:
        yield json.dumps(asdict(score), ensure_ascii=False, default=str)
