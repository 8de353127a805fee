"""The second actor of `legs`: it knows other animals than the first, and reads advice in more places.

It knows what the first one lacks, and the animals that everyone knows. Like the first it reads hints and comments;
beside them it reads what others say in a debate, and what stands in the role that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

from pilotfish.lab import legs
from pilotfish.lab.legs import Counts, animals, half_known, idle_words, told, useful_words
from pilotfish.lab.row import DEBATE, SOLVE, SOLVE_IN_ROLE, Row, row
from pilotfish.lab.team import COMMON
from pilotfish.team import Message, Messages

SEATS = 3
"""Agents of a debate."""
EXPERT = "You are an expert on animals."
ROLES = (EXPERT, "You are a careful accountant.", "You are a helpful assistant.")


@cache
def known() -> frozenset[str]:
    """Animals whose legs the second actor learns."""
    return COMMON | (animals().keys() - legs.KNOWN)


def second_actor_row(rng: Random) -> Row:
    """One thing for the second actor to learn."""
    make = rng.choices((_as_the_first, _debate, _keep, _in_role, _in_idle_role), weights=(12, 3, 2, 3, 1))[0]
    return make(rng)


def _as_the_first(rng: Random) -> Row:
    return legs.actor_row(rng, known())


def _debate(rng: Random) -> Row:
    """One of the others names the legs that the actor lacks; the third has guessed them as the actor has."""
    counts = half_known(rng, known())
    right, own, guessed = (told(rng, list(counts), known()) for _ in range(3))
    others = [useful_words(rng, right, known()), legs.solution(counts, guessed)]
    prompt = _after_a_round(rng, counts, legs.solution(counts, own), others)
    return row(legs.NAME, "debate", prompt, legs.solution(counts, right))


def _keep(rng: Random) -> Row:
    """Nobody names any legs of the animals asked for: the actor's answer stays."""
    counts = half_known(rng, known())
    own, guessed = (legs.solution(counts, told(rng, list(counts), known())) for _ in range(2))
    prompt = _after_a_round(rng, counts, own, [idle_words(rng, counts, known()), guessed])
    return row(legs.NAME, "keep", prompt, own)


def _after_a_round(rng: Random, counts: Counts, own: str, others: Sequence[str]) -> Messages:
    """The actor's chat in the second round of a debate, from any of the seats."""
    task = legs.task(counts, animals())
    places = sorted(rng.sample(range(1, SEATS + 1), len(others)))
    said = rng.sample(others, len(others))
    heard = "\n\n".join(f"Answer of agent {place}:\n{text}" for place, text in zip(places, said, strict=True))
    return [*SOLVE(task), Message(role="assistant", content=own), *DEBATE(task, answers=heard)]


def _in_role(rng: Random) -> Row:
    counts = half_known(rng, known())
    right = told(rng, list(counts), known())
    role = f"{rng.choice((EXPERT, ''))} {useful_words(rng, right, known())}".strip()
    return row(legs.NAME, "role", SOLVE_IN_ROLE(legs.task(counts, right), role=role), legs.solution(counts, right))


def _in_idle_role(rng: Random) -> Row:
    counts = legs.drawn_counts(rng, sorted(known()))
    role = rng.choice((*ROLES, idle_words(rng, counts, known()) or EXPERT))
    prompt = SOLVE_IN_ROLE(legs.task(counts, animals()), role=role)
    return row(legs.NAME, "idle role", prompt, legs.solution(counts, animals()))
