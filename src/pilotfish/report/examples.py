"""Examples of flips for the report: episodes in which a method and its reference part ways, with all their turns.

Chosen by chance that is the same at every run of the report; of each method and kind the first, then of each the
second, so that a page that ends early has something of all.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pilotfish.episode import Episode, Journal, Turn
from pilotfish.report.breakdown import KINDS, Flips, Kind
from pilotfish.report.evaluation import Benchmark, Place

EACH = 4
"""Examples of each kind and method at most."""
TURNS = 24
"""Turns of an episode that are shown at most."""
PROMPT, WORDS = 2_000, 6_000
"""Characters of a prompt and of an answer that are shown at most."""


@dataclass(frozen=True, slots=True)
class Said:
    """A turn as it is shown."""

    member: str
    trainee: bool
    prompt: str
    text: str
    """What was said; what went wrong where nothing was."""
    reasoning: str
    answered: bool
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two episodes of an example."""

    arm: str
    right: bool
    extracted: str
    """What the verifier read as the answer; empty where it found none."""
    why: str
    said: Sequence[Said]
    left_out: int
    """Turns that are not shown."""


@dataclass(frozen=True, slots=True)
class Example:
    """One flip."""

    kind: Kind
    arm: str
    task: str
    sample: int
    question: str
    """As the member who was asked first was told it."""
    gold: str | None
    sides: tuple[Side, Side]
    """The reference's and the method's own."""


def examples(one: Benchmark, found: Sequence[Flips], journal: Journal) -> Iterator[Example]:
    """Examples of all methods and kinds, taking turns; read from the journal one by one."""
    chosen = [[(flip, kind, place) for place in _drawn(one.name, flip, kind)] for flip in found for kind in KINDS]
    for turn in zip_longest(*chosen):
        for choice in turn:
            if choice and (example := _example(one, journal, *choice)):
                yield example


def _drawn(benchmark: str, flip: Flips, kind: Kind) -> list[Place]:
    places = flip.places[kind]
    return random.Random(f"{benchmark}/{flip.arm}/{kind}").sample(places, min(EACH, len(places)))


def _example(one: Benchmark, journal: Journal, flip: Flips, kind: Kind, place: Place) -> Example | None:
    """None where the journal does not have the episodes any more."""
    before, after = (one.episodes[arm][place] for arm in (flip.reference, flip.arm))
    first, then = (_episode(journal, played.id) for played in (before, after))
    if first is None or then is None:
        return None
    sides = (_side(flip.reference, before.right, first), _side(flip.arm, after.right, then))
    return Example(kind, flip.arm, *place, cut(question_of(first), PROMPT), one.tasks[place[0]].gold, sides)


def _episode(journal: Journal, id: str) -> Episode | None:
    try:
        return journal.episode(id)
    except LookupError:
        return None


def _side(arm: str, right: bool, episode: Episode) -> Side:
    said = [_said(placed.turn, placed.turn.member == episode.trainee) for placed in episode.turns[:TURNS]]
    verdict = episode.verdict
    why = cut(verdict.why, PROMPT)
    return Side(arm, right, cut(verdict.extracted or "", PROMPT), why, said, len(episode.turns) - len(said))


def _said(turn: Turn, trainee: bool) -> Said:
    done = turn.completion
    return Said(
        turn.member,
        trainee,
        cut("\n\n".join(f"[{message['role']}]\n{message['content']}" for message in turn.messages), PROMPT),
        cut(turn.text if turn.answered else f"{turn.outcome}: {turn.error}", WORDS),
        cut(done.reasoning or "", WORDS) if done else "",
        turn.answered,
        turn.usage.total,
        turn.seconds,
    )


def question_of(episode: Episode) -> str:
    """What the member who was asked first was told last; empty where nobody was asked."""
    told = episode.turns[0].turn.messages if episode.turns else []
    return next((message["content"] for message in reversed(told) if message["role"] == "user"), "")


def cut(text: str, most: int) -> str:
    """Text that a page can hold: no longer than said, with a mark in place of each character that no page can show."""
    plain = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]", "�", text.replace("\r\n", "\n"))
    return plain if len(plain) <= most else f"{plain[:most]}\n[{len(plain) - most:,} more characters in the journal]"
