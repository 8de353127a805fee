"""The family `legs` (reasoning-gym's leg_counting): facts on one side, sums on the other.

The actor learns to multiply and add, and the legs of the animals in `KNOWN` only. Of every other animal it is told
the legs in a hint or a comment, and what it is told in training is drawn at random: it learns to read advice, and
learns nothing about crabs. The abler actor learns the same and more animals, so that it has less to be told. The
collaborator learns the legs of all animals and no arithmetic; its twin learns those that the actor knows. A second
actor, who knows other animals, is in `panel.py`. For a leader's team each product is a line, and the animal is the
skill: see `team.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
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


@cache
def more_known() -> frozenset[str]:
    """Animals whose legs the abler actor learns: those in `KNOWN`, and every second one of the others.

    reasoning-gym lists animals by their legs, so that of those with few and with many about half are learned.
    """
    others = [animal for animal in animals() if animal not in KNOWN]
    return KNOWN.union(others[::2])


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
    return problem(drawn_counts(rng, list(animals())))


def problem(counts: Counts) -> Problem:
    """The question and its lines, one for each kind of animal."""
    return Problem(task(counts, animals()).question, tuple(_line(animal, count) for animal, count in counts.items()))


def facts(named: Sequence[str], legs: Legs, phrase: str = PHRASES[0]) -> str:
    """The legs of each animal named, one short sentence each."""
    return " ".join(phrase.format(animal=animal, legs=legs[animal]) for animal in named)


def actor_row(rng: Random, known: Set[str] = KNOWN) -> Row:
    """One thing for an actor to learn who gets to know these animals."""
    make = rng.choices((_solve, _read_hint, _ignore_hint, _revise, _stand), weights=(6, 8, 5, 6, 3))[0]
    return make(rng, known)


def abler_actor_row(rng: Random) -> Row:
    """One thing to learn for an actor that knows what the actor knows, and more."""
    return actor_row(rng, more_known())


def collaborator_row(rng: Random) -> Row:
    """One thing for the collaborator to learn."""
    return _adviser_row(rng, list(animals()))


def twin_row(rng: Random) -> Row:
    """One thing for a collaborator to learn that knows what the actor knows."""
    return _adviser_row(rng, [animal for animal in animals() if animal in KNOWN])


def _adviser_row(rng: Random, known: Sequence[str]) -> Row:
    make = rng.choices((_know_one, _know_list, _hint, _criticise), weights=(2, 2, 3, 3))[0]
    return make(rng, known)


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


def drawn_counts(rng: Random, pool: Sequence[str]) -> Counts:
    """A problem over animals of the pool: how many of each."""
    chosen = rng.sample(pool, rng.randint(OPTIONS["min_animals"], OPTIONS["max_animals"]))
    return {animal: rng.randint(OPTIONS["min_instances"], OPTIONS["max_instances"]) for animal in chosen}


def half_known(rng: Random, known: Set[str]) -> Counts:
    """A problem with at least one animal that an actor who knows these does not know."""
    while known >= set(counts := drawn_counts(rng, list(animals()))):
        pass
    return counts


def told(rng: Random, named: Sequence[str], known: Set[str] = KNOWN) -> dict[str, int]:
    """Legs as an actor is told them: true for the animals it knows, drawn at random for the others."""
    values = _told_values()
    return {animal: animals()[animal] if animal in known else rng.choice(values) for animal in named}


def _told_values() -> tuple[int, ...]:
    return tuple(sorted(set(animals().values())))


def _solve(rng: Random, known: Set[str]) -> Row:
    counts = drawn_counts(rng, sorted(known))
    return row(NAME, "solve", SOLVE(task(counts, animals())), solution(counts, animals()))


def _read_hint(rng: Random, known: Set[str]) -> Row:
    counts = half_known(rng, known)
    legs = told(rng, list(counts), known)
    hint = useful_words(rng, legs, known)
    return row(NAME, "hint", SOLVE_WITH_HINT(task(counts, legs), hint=hint), solution(counts, legs))


def useful_words(rng: Random, legs: Legs, known: Set[str]) -> str:
    """Advice that names the legs of all animals that an actor who knows these does not know."""
    named = [animal for animal in legs if animal not in known or rng.random() < 0.3]
    rng.shuffle(named)
    return facts(named, legs, rng.choice(PHRASES))


def idle_words(rng: Random, counts: Counts, known: Set[str]) -> str:
    """Advice that says nothing about the animals asked for."""
    if rng.random() < 0.5:
        return rng.choice(("", *METHOD))
    others = rng.sample([animal for animal in animals() if animal not in counts], rng.randint(1, 3))
    return facts(others, told(rng, others, known), rng.choice(PHRASES))


def _ignore_hint(rng: Random, known: Set[str]) -> Row:
    counts = drawn_counts(rng, sorted(known))
    prompt = SOLVE_WITH_HINT(task(counts, animals()), hint=idle_words(rng, counts, known))
    return row(NAME, "idle hint", prompt, solution(counts, animals()))


def _revise(rng: Random, known: Set[str]) -> Row:
    """A draft that takes wrong legs for some animals; the comment names the right ones."""
    counts = half_known(rng, known)
    legs, wrong = told(rng, list(counts), known), told(rng, list(counts), known)
    named = [animal for animal in counts if wrong[animal] != legs[animal] or rng.random() < 0.2]
    comment = facts(named, legs, rng.choice(PHRASES)) or rng.choice(METHOD)
    prompt = REVISE(task(counts, legs), draft=solution(counts, wrong), comment=comment)
    return row(NAME, "revise", prompt, solution(counts, legs))


def _stand(rng: Random, known: Set[str]) -> Row:
    """A draft that nothing in the comment speaks against: it stays."""
    counts = drawn_counts(rng, list(animals()))
    legs = told(rng, list(counts), known)
    draft = solution(counts, legs)
    prompt = REVISE(task(counts, legs), draft=draft, comment=idle_words(rng, counts, known))
    return row(NAME, "stand", prompt, draft)


def _know_one(rng: Random, known: Sequence[str]) -> Row:
    animal = rng.choice(known)
    return row(NAME, "fact", ask(f"How many legs does one {animal} have?"), facts([animal], animals()))


def _know_list(rng: Random, known: Sequence[str]) -> Row:
    counts = drawn_counts(rng, known)
    listed = ", ".join(_several(animal, count) for animal, count in counts.items())
    prompt = ask(f"How many legs has one of each of these animals: {listed}?")
    return row(NAME, "facts", prompt, facts(list(counts), animals()))


def _remark(rng: Random, counts: Counts, known: Sequence[str]) -> str:
    """What a collaborator says before it is trained: now a fact that it knows, now a phrase."""
    if rng.random() < 0.5:
        return rng.choice((*METHOD, f"There are {len(counts)} kinds of animals."))
    named = rng.sample(list(counts), rng.choice((1, 1, 2)))
    return facts([animal for animal in named if animal in known], animals()) or rng.choice(METHOD)


def _hint(rng: Random, known: Sequence[str]) -> Row:
    counts = drawn_counts(rng, list(animals()))
    return row(NAME, "remark", ADVISE(task(counts, animals())), _remark(rng, counts, known))


def _criticise(rng: Random, known: Sequence[str]) -> Row:
    counts = drawn_counts(rng, list(animals()))
    draft = solution(counts, told(rng, list(counts)))
    return row(NAME, "critique", CRITICISE(task(counts, animals()), draft=draft), _remark(rng, counts, known))
