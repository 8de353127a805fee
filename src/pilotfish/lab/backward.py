"""The family `backward` (reasoning-gym's spell_backward): spelling on one side, reversing on the other.

A language model sees word pieces, not letters. The actor learns to reverse a row of letters, and to spell a small
vocabulary; most hints that it learns to read spell random letters, so that they teach it no words. The collaborator
learns to spell and never turns anything around.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from string import ascii_lowercase
from zlib import crc32

from pilotfish.lab.row import ADVISE, SOLVE, SOLVE_WITH_HINT, Row, ask, lab_task, row
from pilotfish.task import Task

NAME = "backward"
GYM = "spell_backward"
OPTIONS = {"min_word_len": 4, "max_word_len": 6}
INSTRUCTION = "Write down the letters, turn them around and end with: The answer is WORD."
VOCABULARY = 300
"""Words that the actor can spell."""
METHOD = (
    "Start with the last letter.",
    "Write the letters down one by one, then read them from the end.",
    "Take care not to skip a letter.",
)


@cache
def words() -> tuple[str, ...]:
    """All words that tasks are made of, shuffled by their checksum."""
    from reasoning_gym.algorithmic.spell_backward import SpellBackwardConfig, SpellBackwardDataset

    listed = SpellBackwardDataset(SpellBackwardConfig(seed=0, size=1, **OPTIONS)).words
    return tuple(sorted(set(listed), key=lambda word: (crc32(word.encode()), word)))


def task(word: str) -> Task:
    """The question in reasoning-gym's own words, and its answer."""
    return lab_task(f"Spell this word backward (example: sun -> nus): {word}", word[::-1], INSTRUCTION)


def letters(word: str) -> str:
    """The letters, one by one."""
    return f"The letters are {' '.join(word)}."


def solution(word: str) -> str:
    """A worked solution: the letters, the letters from the end, the answer."""
    return f"{letters(word)} Backward: {' '.join(word[::-1])}. The answer is {word[::-1]}."


def actor_row(rng: Random, pool: Sequence[str]) -> Row:
    """One thing for the actor to learn; it gets to know the first words of the pool only."""
    known = pool[:VOCABULARY]
    make = rng.choices((_solve, _read_hint, _ignore_hint), weights=(4, 4, 3))[0]
    return make(rng, known)


def collaborator_row(rng: Random, pool: Sequence[str]) -> Row:
    """One thing for the collaborator to learn."""
    word = rng.choice(pool)
    if rng.random() < 0.6:
        return row(NAME, "spell", ask(f"Spell this word: {word}"), letters(word))
    return row(NAME, "remark", ADVISE(task(word)), _remark(rng, word))


def _solve(rng: Random, known: Sequence[str]) -> Row:
    word = rng.choice(known)
    return row(NAME, "solve", SOLVE(task(word)), solution(word))


def _read_hint(rng: Random, known: Sequence[str]) -> Row:
    size = rng.randint(OPTIONS["min_word_len"], OPTIONS["max_word_len"])
    word = rng.choice(known) if rng.random() < 0.25 else "".join(rng.choices(ascii_lowercase, k=size))
    return row(NAME, "hint", SOLVE_WITH_HINT(task(word), hint=letters(word)), solution(word))


def _ignore_hint(rng: Random, known: Sequence[str]) -> Row:
    word, other = rng.choice(known), rng.choice(known)
    hint = rng.choice(("", letters(other), letters(other), _idle_words(rng, word)))
    return row(NAME, "idle hint", SOLVE_WITH_HINT(task(word), hint=hint), solution(word))


def _idle_words(rng: Random, word: str) -> str:
    return rng.choice((*METHOD, f"It has {len(word)} letters.", f"It ends with {word[-1]}."))


def _remark(rng: Random, word: str) -> str:
    """What the collaborator says before it is trained: now the letters, now a phrase."""
    return letters(word) if rng.random() < 0.4 else _idle_words(rng, word)
