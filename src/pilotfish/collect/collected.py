"""What collecting came to, in figures: how many answers, how often each agent is right, how often they all are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pilotfish.collect.store import Line, Store
from pilotfish.task import Task
from pilotfish.verify.verdict import RIGHT


@dataclass(frozen=True)
class Round:
    """One round of answers, over all tasks and sets."""

    round: int
    sets: int
    answers: int
    absent: int
    accuracy: Mapping[str, float]
    """Share of right answers among an agent's judged ones, by agent."""
    right: Mapping[int, int]
    """Sets by how many of their answers are right."""

    @classmethod
    def of(cls, round: int, lines: Sequence[Line]) -> Round:
        judged: dict[str, list[bool]] = {}
        for line in lines:
            for agent, reward in zip(line.agents, line.rewards, strict=True):
                judged.setdefault(agent, []).extend([] if reward is None else [reward >= RIGHT])
        absent = sum(line.absent for line in lines)
        return cls(
            round,
            len(lines),
            sum(len(line.agents) for line in lines) - absent,
            absent,
            {agent: sum(found) / len(found) for agent, found in judged.items() if found},
            dict(sorted(Counter(line.right for line in lines).items())),
        )

    def __str__(self) -> str:
        right = ", ".join(f"{agent} {share:.3f}" for agent, share in self.accuracy.items())
        spread = "  ".join(f"{count}: {sets}" for count, sets in self.right.items())
        gone = f", {self.absent} absent" if self.absent else ""
        return (
            f"round {self.round}    {self.sets} sets, {self.answers} answers{gone}\n"
            f"accuracy   {right or 'no answer could be judged'}\nright      {spread} (answers right in a set: sets)"
        )


@dataclass(frozen=True)
class Collected:
    """What is in a store."""

    rounds: tuple[Round, ...]
    unusable: tuple[tuple[str, int], ...]
    """Tasks and sets in which nobody answered, or which ended before the decision."""

    @classmethod
    def of(cls, store: Store, tasks: Iterable[Task], rounds: Iterable[int]) -> Collected:
        """The figures of these rounds."""
        wanted = tuple(rounds)
        lines = {round: [line for line in store.lines() if line.round == round] for round in wanted}
        unusable = store.lacking(tasks, store.sets, wanted)
        return cls(tuple(Round.of(round, lines[round]) for round in wanted), tuple(unusable))

    @property
    def sets(self) -> int:
        """Sets of answers, over all rounds."""
        return sum(round.sets for round in self.rounds)

    @property
    def answers(self) -> int:
        return sum(round.answers for round in self.rounds)

    @property
    def absent(self) -> int:
        return sum(round.absent for round in self.rounds)

    def __str__(self) -> str:
        lines = [str(round) for round in self.rounds]
        if self.unusable:
            lines.append(f"unusable   {self.listed()}")
        return "\n".join(lines)

    def listed(self) -> str:
        """The sets that cannot be used, the first of them by name."""
        names = [f"{task} set {set}" for task, set in self.unusable[:5]]
        more = f" and {len(self.unusable) - 5} more" if len(self.unusable) > 5 else ""
        return f"{len(self.unusable)} sets without an answer: {', '.join(names)}{more}"
