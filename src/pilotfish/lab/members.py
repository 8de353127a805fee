"""Who learns what: the families of the lab, its members, and the tasks that are kept out of their training.

reasoning-gym draws entry i of a data set from `seed + i`, so the seeds of the splits lie a million apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Any

from pilotfish.lab import backward, legs
from pilotfish.lab.columns import DECIMALS, SUMS
from pilotfish.lab.lead import leader_row
from pilotfish.lab.panel import second_actor_row
from pilotfish.lab.row import Row
from pilotfish.lab.team import AGENTS, agent_row
from pilotfish.lab.worked import INSTRUCTION, Problem

SPLIT_SEEDS = {"train": 1_000_000, "test": 3_000_000}
SPLIT_SIZE = 2048
"""Most tasks of a split; no member is trained on any of these questions."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task whose skills are dealt out to several members."""

    name: str
    gym: str
    """Name of the reasoning-gym data set."""
    options: dict[str, Any]
    instruction: str
    writers: dict[str, Callable[[Random], Row]]
    """For each member that learns it: draws one row."""
    shares: dict[str, int]
    """For each member: how much of its rows are of this family, against the shares of the others."""


@cache
def entries(family: str) -> tuple[dict[str, Any], ...]:
    """reasoning-gym's entries of both splits of a family, which no member is trained on."""
    return tuple(entry for split in SPLIT_SEEDS for entry in _entries_of(family, split, SPLIT_SIZE))


def _entries_of(family: str, split: str, size: int) -> list[dict[str, Any]]:
    import reasoning_gym

    source = task_source(family, split, size)
    gym = FAMILIES[family].gym
    return list(reasoning_gym.create_dataset(gym, seed=source["seed"], size=size, **source["options"]))


@cache
def spelling_pool() -> tuple[str, ...]:
    """Words that are in no task of either split."""
    kept_out = {entry["metadata"]["word"] for entry in entries("backward")}
    return tuple(word for word in backward.words() if word not in kept_out)


def _agents(family: str, draw: Callable[[Random], Problem]) -> dict[str, Callable[[Random], Row]]:
    """The writers of a leader's agents."""
    return {agent: partial(_agent_row, agent, family, draw) for agent in AGENTS}


def _agent_row(agent: str, family: str, draw: Callable[[Random], Problem], rng: Random) -> Row:
    return agent_row(rng, agent, family, draw(rng))


FAMILIES = {
    "legs": Family(
        name="legs",
        gym=legs.GYM,
        options=legs.OPTIONS,
        instruction=INSTRUCTION,
        writers={
            "actor": legs.actor_row,
            "collaborator": legs.collaborator_row,
            "second-actor": second_actor_row,
            "abler-actor": legs.abler_actor_row,
            "twin": legs.twin_row,
            **_agents("legs", legs.draw),
            "leader": lambda rng: leader_row(rng, "legs", legs.draw(rng)),
        },
        shares={
            "actor": 3,
            "collaborator": 1,
            "second-actor": 1,
            "abler-actor": 3,
            "twin": 1,
            **dict.fromkeys(AGENTS, 5),
            "leader": 3,
        },
    ),
    "backward": Family(
        name="backward",
        gym=backward.GYM,
        options=backward.OPTIONS,
        instruction=backward.INSTRUCTION,
        writers={
            "actor": lambda rng: backward.actor_row(rng, spelling_pool()),
            "collaborator": lambda rng: backward.collaborator_row(rng, spelling_pool()),
            "abler-actor": lambda rng: backward.actor_row(rng, spelling_pool()),
            "twin": lambda rng: backward.collaborator_row(rng, spelling_pool()),
        },
        # To spell words never seen takes far more rows than the legs of 37 animals.
        shares={"actor": 2, "collaborator": 3, "abler-actor": 2, "twin": 3},
    ),
    "sums": Family(
        name="sums",
        gym=SUMS.gym,
        options=SUMS.options,
        instruction=INSTRUCTION,
        writers={
            **_agents("sums", SUMS.draw),
            "leader": lambda rng: leader_row(rng, "sums", SUMS.draw(rng)),
        },
        shares={**dict.fromkeys(AGENTS, 3), "leader": 2},
    ),
    # No leader learns this one: it shows whether what a leader has learned about its team carries over.
    "decimals": Family(
        name="decimals",
        gym=DECIMALS.gym,
        options=DECIMALS.options,
        instruction=INSTRUCTION,
        writers=_agents("decimals", DECIMALS.draw),
        shares=dict.fromkeys(AGENTS, 2),
    ),
}
MEMBERS = ("actor", "collaborator", "second-actor", "abler-actor", "twin", *AGENTS, "leader")


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


def tasks(families: Sequence[str], split: str, size: int) -> list[dict[str, str]]:
    """Tasks of several families by turns, as lines of a JSONL source: `id`, `question`, `answer`, `subject` (family).

    Raises:
        ValueError: families that need different instructions, for a source has one; or as `task_source`.
    """
    if len(instructions := {_family(name).instruction for name in families}) > 1:
        raise ValueError(f"lab tasks of {', '.join(families)}: a source has one instruction, not {len(instructions)}")
    splits = [_entries_of(family, split, -(-size // len(families))) for family in families]
    mixed = [
        {
            "id": f"{family}-{split}-{number}",
            "question": entry["question"],
            "answer": entry["answer"],
            "subject": family,
        }
        for number, drawn in enumerate(zip(*splits, strict=True))
        for family, entry in zip(families, drawn, strict=True)
    ]
    return mixed[:size]


def learned_by(member: str) -> tuple[str, ...]:
    """The families that a member learns.

    Raises:
        ValueError: an unknown member.
    """
    if member not in MEMBERS:
        raise ValueError(f"lab member {member!r}: there are {', '.join(MEMBERS)}")
    return tuple(name for name, family in FAMILIES.items() if member in family.writers)


def rows(member: str, size: int, seed: int, families: Sequence[str] | None = None) -> list[Row]:
    """Rows for supervised fine-tuning, the families mixed, the same for the same arguments.

    Args:
        member: one of `MEMBERS`.
        size: how many rows.
        seed: of the data; also the order.
        families: which families, by name; all that the member learns when not given.

    Raises:
        ValueError: an unknown member or family, or a family that the member does not learn.
    """
    learned = learned_by(member)
    chosen = [_family(name) for name in families or learned]
    if strange := next((family.name for family in chosen if family.name not in learned), None):
        raise ValueError(f"lab family {strange!r}: {member} learns {', '.join(learned)}")
    writers = [family.writers[member] for family in chosen]
    shares = [family.shares[member] for family in chosen]
    kept_out = {_last_line(entry["question"]) for family in chosen for entry in entries(family.name)}
    rng = Random(f"{member} {seed}")
    return [_fresh_row(rng.choices(writers, shares)[0], rng, kept_out) for _ in range(size)]


def _fresh_row(write: Callable[[Random], Row], rng: Random, kept_out: set[str]) -> Row:
    """A row whose prompt holds no question of a split."""
    while True:
        drawn = write(rng)
        asked = [line for message in drawn["messages"][:-1] for line in message["content"].split("\n")]
        if kept_out.isdisjoint(line.removeprefix("Problem: ") for line in asked):
            return drawn


def _last_line(question: str) -> str:
    """Where the families' questions differ."""
    return question.strip().split("\n")[-1]


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise ValueError(f"lab family {name!r}: there are {', '.join(FAMILIES)}")
    return FAMILIES[name]
