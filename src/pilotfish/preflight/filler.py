"""Filler: engines that say so many tokens of nothing and count, and the seats of a recipe with such engines in them.

No weights are loaded and no server is asked. `rehearsal` plays the stages of a recipe with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from pilotfish.engine.base import Completion, Engine
from pilotfish.episode import Team
from pilotfish.recipe import Recipe
from pilotfish.seats import Seats
from pilotfish.task import Task
from pilotfish.team import Messages, Sampling, Usage
from pilotfish.verify import Verdict
from pilotfish.verify.judge import example

Count = Callable[[Messages], float]
"""Tokens of a prompt."""


@dataclass
class Tally:
    """Calls of one member, and their tokens."""

    calls: float = 0.0
    prompt: float = 0.0
    completion: float = 0.0

    def add(self, other: Tally, times: float = 1.0) -> None:
        self.calls += times * other.calls
        self.prompt += times * other.prompt
        self.completion += times * other.completion


@dataclass
class Ledger:
    """What each member was asked since the ledger was last read."""

    open: dict[str, Tally] = field(default_factory=dict)
    number: Iterator[int] = field(default_factory=count)
    """Of each call: no two are answered in the same words."""

    def note(self, member: str, prompt: float, completion: float) -> None:
        self.open.setdefault(member, Tally()).add(Tally(1, prompt, completion))

    def read(self) -> dict[str, Tally]:
        """The tallies by member; the ledger starts anew."""
        read, self.open = self.open, {}
        return read


class FillerEngine:
    """Says so many tokens of filler, never the same words twice, and writes each call down.

    Args:
        member: whom it plays.
        ledger: where calls are noted.
        counted: tokens of a prompt.
        tokens: how many it says.
        version: of the weights; a trained policy's differs from the untrained one's.
        model: told apart from the recipe's own where it is another.
    """

    def __init__(
        self, member: str, ledger: Ledger, counted: Count, tokens: int, version: int = 0, model: str = ""
    ) -> None:
        self.member = member
        self.identity = f"rehearsal of {member}{model and f' on {model}'}"
        self.ledger = ledger
        self.counted = counted
        self.tokens = tokens
        self.version = version

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        prompt = self.counted(messages)
        self.ledger.note(self.member, prompt, self.tokens)
        # " the" is four characters, and one token of nearly every vocabulary.
        words = f"{self.member} {next(self.ledger.number)}" + " the" * max(0, self.tokens - 4)
        # A judge is asked once where its score can be read, and not at all about an answer that is not in its form.
        text = f"{words}\n{score}" if (score := example(messages)) else f"<answer>{words}</answer>"
        usage = Usage(round(prompt), self.tokens, estimated=True)
        return Completion(text, "stop", usage, prompt_ids=(0,), completion_ids=(0,), logprobs=(0.0,))

    async def close(self) -> None:
        """Nothing is held."""


class RehearsedSeats(Seats):
    """The seats of a recipe with filler engines in them.

    Args:
        recipe: whose team.
        ledger: where calls are noted.
        counts: tokens of a prompt, by member.
        tokens: how many tokens each member says.
    """

    def __init__(self, recipe: Recipe, ledger: Ledger, counts: Mapping[str, Count], tokens: Mapping[str, int]) -> None:
        super().__init__(recipe)
        self.own = recipe
        self.ledger = ledger
        self.counts = counts
        self.tokens = tokens
        self.models: Mapping[str, str] = {}
        """Of members that sit on another model than the recipe's own."""

    def seat(self, team: Recipe, counts: Mapping[str, Count], tokens: Mapping[str, int]) -> None:
        """Seat one of the recipe's teams, on other models."""
        own = self.own.team
        self.models = {
            name: member.deployment for name, member in team.team.items() if member.deployment != own[name].deployment
        }
        self.counts, self.tokens = counts, tokens
        self.move_to(team)

    def engine(self, name: str) -> Engine:
        return self.filler(name)

    def trained(self, best: Path, version: int) -> Engine:
        return self.filler(self.recipe.trainee or "", version)

    def filler(self, name: str, version: int = 0) -> FillerEngine:
        """A new engine in a member's seat."""
        model = self.models.get(name, "")
        return FillerEngine(name, self.ledger, self.counts[name], self.tokens[name], version, model)

    def team(self, *, training: bool, version: int = 0) -> Team:
        """Everyone, as they are sampled in training or in evaluation; `version` is the trainee's."""
        engines: dict[str, Engine] = {
            name: self.filler(name, version if member.train else 0) for name, member in self.recipe.team.items()
        }
        return Team(self.recipe.members(training=training), engines)


async def no_verdict(task: Task, answer: str, form: str) -> Verdict:
    """Judges filler: it is always wrong."""
    return Verdict(0.0, None, "a rehearsal")


def quarter_of_characters(messages: Messages) -> float:
    """Tokens of a prompt whose tokenizer is not at hand."""
    return sum(len(message["content"]) for message in messages) / 4
