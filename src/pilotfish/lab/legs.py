"""The family `legs` (reasoning-gym's leg_counting): facts on one side, sums on the other.

The actor learns to multiply and add, and the legs of the animals in `KNOWN` only. Of every other animal it is told
the legs in a hint or a comment, and what it is told in training is drawn at random: it learns to read advice, and
learns nothing about crabs. The collaborator learns the legs of all animals and no arithmetic. For a leader's team each
product is a line, and the animal is the skill: see `team.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

from pilotfish.lab.row import ADVISE, CRITICISE, REVISE, SOLVE, SOLVE_WITH_HINT, Row, ask, lab_task, row
from pilotfish.lab.worked import INSTRUCTION, Line, Problem
from pilotfish.task import Task

NAME = "legs"
GYM = "leg_counting"
OPTIONS = {"min_animals": 2, "max_animals": 3, "min_instances": 1, "max_instances": 9}
FOUR_LEGGED = {"dog", "cat", "cow", "horse", "lion", "elephant", "giraffe", "tiger", "deer", "sheep"}
SIX_LEGGED = {"insect", "ant", "bee", "butterfly", "beetle", "wasp"}
KNOWN = frozenset(FOUR_LEGGED | SIX_LEGGED | {"chicken", "bird", "duck", "human", "snake", "spider"})
"""Animals whose legs the actor learns."""
METHOD = (
    "Multiply each number by the legs of that animal, then add.",
    "Count carefully and add everything up.",
    "Think about each kind of animal in turn.",
)
GUESSES = (0, 2, 4, 6, 8, 10)
"""Legs that an agent writes for an animal it does not know."""
PHRASES = ("One {animal} has {legs} legs.", "Each {animal} has {legs} legs.", "{animal}: {legs} legs.")

Counts = dict[str, int]
Legs = Mapping[str, int]


@cache
def animals() -> dict[str, int]:
    """Legs of each animal, as reasoning-gym has them."""
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    return dict(ANIMALS)


def task(counts: Counts, legs: Legs) -> Task:
    """The question in reasoning-gym's own words, and its answer."""
    from reasoning_gym.arithmetic.leg_counting import QUESTION_TEMPLATE

    listed = ", ".join(_several(animal, count) for animal, count in counts.items())
    total = sum(count * legs[animal] for animal, count in counts.items())
    return lab_task(QUESTION_TEMPLATE.format(animals=listed), str(total), INSTRUCTION)


def solution(counts: Counts, legs: Legs) -> str:
    """A worked solution: each product, the running sum, the answer."""
    products = [count * legs[animal] for animal, count in counts.items()]
    steps = [
        f"{_several(animal, count)}: {count} x {legs[animal]} = {product}."
        for (animal, count), product in zip(counts.items(), products, strict=True)
    ]
    total = products[0]
    for product in products[1:]:
        steps.append(f"{total} + {product} = {total + product}.")
        total += product
    return " ".join([*steps, f"The answer is {total}."])


def draw(rng: Random) -> Problem:
    """A problem over all animals, for a leader's team."""
    return problem(_counts(rng, list(animals())))


def problem(counts: Counts) -> Problem:
    """The question and its lines, one for each kind of animal."""
    return Problem(task(counts, animals()).question, tuple(_line(animal, count) for animal, count in counts.items()))


def facts(named: Sequence[str], legs: Legs, phrase: str = PHRASES[0]) -> str:
    """The legs of each animal named, one short sentence each."""
    return " ".join(phrase.format(animal=animal, legs=legs[animal]) for animal in named)


def actor_row(rng: Random) -> Row:
    """One thing for the actor to learn."""
    make = rng.choices((_solve, _read_hint, _ignore_hint, _revise, _stand), weights=(6, 8, 5, 6, 3))[0]
    return make(rng)


def collaborator_row(rng: Random) -> Row:
    """One thing for the collaborator to learn."""
    make = rng.choices((_know_one, _know_list, _hint, _criticise), weights=(2, 2, 3, 3))[0]
    return make(rng)


def _several(animal: str, count: int) -> str:
    return f"{count} {animal}{'s' if count > 1 else ''}"


def _line(animal: str, count: int) -> Line:
    return Line(
        skills=frozenset({animal}),
        truth=animals()[animal],
        guesses=GUESSES,
        told=_told_values(),
        template=f"{_several(animal, count)}: {count} x {{value}} = {{amount}}",
        times=count,
    )


def _counts(rng: Random, pool: Sequence[str]) -> Counts:
    """A problem over animals of the pool: how many of each."""
    chosen = rng.sample(pool, rng.randint(OPTIONS["min_animals"], OPTIONS["max_animals"]))
    return {animal: rng.randint(OPTIONS["min_instances"], OPTIONS["max_instances"]) for animal in chosen}


def _half_known(rng: Random) -> Counts:
    """A problem with at least one animal that the actor does not know."""
    while KNOWN.issuperset(counts := _counts(rng, list(animals()))):
        pass
    return counts


def _told(rng: Random, named: Sequence[str]) -> dict[str, int]:
    """Legs as the actor is told them: true for the animals it knows, drawn at random for the others."""
    values = _told_values()
    return {animal: animals()[animal] if animal in KNOWN else rng.choice(values) for animal in named}


def _told_values() -> tuple[int, ...]:
    return tuple(sorted(set(animals().values())))


def _solve(rng: Random) -> Row:
    counts = _counts(rng, sorted(KNOWN))
    return row(NAME, "solve", SOLVE(task(counts, animals())), solution(counts, animals()))


def _read_hint(rng: Random) -> Row:
    counts = _half_known(rng)
    legs = _told(rng, list(counts))
    named = [animal for animal in counts if animal not in KNOWN or rng.random() < 0.3]
    rng.shuffle(named)
    hint = facts(named, legs, rng.choice(PHRASES))
    return row(NAME, "hint", SOLVE_WITH_HINT(task(counts, legs), hint=hint), solution(counts, legs))


def _idle_words(rng: Random, counts: Counts) -> str:
    """Advice that says nothing about the animals asked for."""
    if rng.random() < 0.5:
        return rng.choice(("", *METHOD))
    others = rng.sample([animal for animal in animals() if animal not in counts], rng.randint(1, 3))
    return facts(others, _told(rng, others), rng.choice(PHRASES))


def _ignore_hint(rng: Random) -> Row:
    counts = _counts(rng, sorted(KNOWN))
    prompt = SOLVE_WITH_HINT(task(counts, animals()), hint=_idle_words(rng, counts))
    return row(NAME, "idle hint", prompt, solution(counts, animals()))


def _revise(rng: Random) -> Row:
    """A draft that takes wrong legs for some animals; the comment names the right ones."""
    counts = _half_known(rng)
    legs, wrong = _told(rng, list(counts)), _told(rng, list(counts))
    named = [animal for animal in counts if wrong[animal] != legs[animal] or rng.random() < 0.2]
    comment = facts(named, legs, rng.choice(PHRASES)) or rng.choice(METHOD)
    prompt = REVISE(task(counts, legs), draft=solution(counts, wrong), comment=comment)
    return row(NAME, "revise", prompt, solution(counts, legs))


def _stand(rng: Random) -> Row:
    """A draft that nothing in the comment speaks against: it stays."""
    counts = _counts(rng, list(animals()))
    legs = _told(rng, list(counts))
    draft = solution(counts, legs)
    prompt = REVISE(task(counts, legs), draft=draft, comment=_idle_words(rng, counts))
    return row(NAME, "stand", prompt, draft)


def _know_one(rng: Random) -> Row:
    animal = rng.choice(list(animals()))
    return row(NAME, "fact", ask(f"How many legs does one {animal} have?"), facts([animal], animals()))


def _know_list(rng: Random) -> Row:
    counts = _counts(rng, list(animals()))
    listed = ", ".join(_several(animal, count) for animal, count in counts.items())
    prompt = ask(f"How many legs has one of each of these animals: {listed}?")
    return row(NAME, "facts", prompt, facts(list(counts), animals()))


def _remark(rng: Random, counts: Counts) -> str:
    """What the collaborator says before it is trained: now a fact, now a phrase."""
    if rng.random() < 0.5:
        return rng.choice((*METHOD, f"There are {len(counts)} kinds of animals."))
    named = rng.sample(list(counts), rng.choice((1, 1, 2)))
    return facts(named, animals())


def _hint(rng: Random) -> Row:
    counts = _counts(rng, list(animals()))
    return row(NAME, "remark", ADVISE(task(counts, animals())), _remark(rng, counts))


def _criticise(rng: Random) -> Row:
    counts = _counts(rng, list(animals()))
    draft = solution(counts, _told(rng, list(counts)))
    return row(NAME, "critique", CRITICISE(task(counts, animals()), draft=draft), _remark(rng, counts))
