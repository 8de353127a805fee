"""Who learns what: the families of the lab, its members, and the tasks that are kept out of their training.

reasoning-gym draws entry i of a data set from `seed + i`, so the seeds of the splits lie a million apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from pilotfish.lab import backward, legs
from pilotfish.lab.row import Row

SPLIT_SEEDS = {"train": 1_000_000, "test": 3_000_000}
SPLIT_SIZE = 2048
"""Most tasks of a split; no member is trained on any of these questions."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task whose skills are dealt out to two members."""

    name: str
    gym: str
    """Name of the reasoning-gym data set."""
    options: dict[str, int]
    instruction: str
    writers: dict[str, Callable[[Random], Row]]
    """For each member: draws one row to learn."""
    shares: dict[str, int]
    """For each member: how much of its rows are of this family, against the shares of the others."""


@cache
def entries(family: str) -> tuple[dict[str, Any], ...]:
    """reasoning-gym's entries of both splits of a family, which no member is trained on."""
    import reasoning_gym

    chosen = FAMILIES[family]
    drawn = [
        reasoning_gym.create_dataset(chosen.gym, seed=seed, size=SPLIT_SIZE, **chosen.options)
        for seed in SPLIT_SEEDS.values()
    ]
    return tuple(entry for split in drawn for entry in split)


@cache
def spelling_pool() -> tuple[str, ...]:
    """Words that are in no task of either split."""
    kept_out = {entry["metadata"]["word"] for entry in entries("backward")}
    return tuple(word for word in backward.words() if word not in kept_out)


FAMILIES = {
    "legs": Family(
        name="legs",
        gym=legs.GYM,
        options=legs.OPTIONS,
        instruction=legs.INSTRUCTION,
        writers={"actor": legs.actor_row, "collaborator": legs.collaborator_row},
        shares={"actor": 3, "collaborator": 1},
    ),
    "backward": Family(
        name="backward",
        gym=backward.GYM,
        options=backward.OPTIONS,
        instruction=backward.INSTRUCTION,
        writers={
            "actor": lambda rng: backward.actor_row(rng, spelling_pool()),
            "collaborator": lambda rng: backward.collaborator_row(rng, spelling_pool()),
        },
        # To spell words never seen takes far more rows than the legs of 37 animals.
        shares={"actor": 2, "collaborator": 3},
    ),
}
MEMBERS = ("actor", "collaborator")


def task_source(family: str, split: str, size: int) -> dict[str, Any]:
    """The `tasks` entry of a recipe for one split of a family.

    Raises:
        ValueError: no such family or split, or more tasks than are kept out of the members' training.
    """
    chosen = _family(family)
    if split not in SPLIT_SEEDS:
        raise ValueError(f"lab split {split!r}: there are {', '.join(SPLIT_SEEDS)}")
    if not 0 < size <= SPLIT_SIZE:
        raise ValueError(f"lab split of {size} tasks: 1 to {SPLIT_SIZE} are kept out of the members' training")
    return {
        "source": f"gym:{chosen.gym}",
        "seed": SPLIT_SEEDS[split],
        "size": size,
        "options": dict(chosen.options),
        "instruction": chosen.instruction,
    }


def rows(member: str, size: int, seed: int, families: tuple[str, ...] = tuple(FAMILIES)) -> list[Row]:
    """Rows for supervised fine-tuning, the families mixed, the same for the same arguments.

    Args:
        member: `actor` or `collaborator`.
        size: how many rows.
        seed: of the data; also the order.
        families: which families, by name.

    Raises:
        ValueError: an unknown member or family.
    """
    if member not in MEMBERS:
        raise ValueError(f"lab member {member!r}: there are {', '.join(MEMBERS)}")
    writers = [_family(name).writers[member] for name in families]
    shares = [_family(name).shares[member] for name in families]
    kept_out = {_last_line(entry["question"]) for name in families for entry in entries(name)}
    rng = Random(f"{member} {seed}")
    return [_fresh_row(rng.choices(writers, shares)[0], rng, kept_out) for _ in range(size)]


def _fresh_row(write: Callable[[Random], Row], rng: Random, kept_out: set[str]) -> Row:
    """A row whose prompt holds no question of a split."""
    while True:
        drawn = write(rng)
        if kept_out.isdisjoint(drawn["messages"][-2]["content"].split("\n")):
            return drawn


def _last_line(question: str) -> str:
    """Where the families' questions differ."""
    return question.strip().split("\n")[-1]


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise ValueError(f"lab family {name!r}: there are {', '.join(FAMILIES)}")
    return FAMILIES[name]
