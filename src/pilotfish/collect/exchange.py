"""Stored answers as a file: JSON lines, packed or not, or Parquet. One row an answer.

    export(Run("runs/plus"), Path("answers.jsonl.gz"))
    collect(recipe, "runs/other", answers="answers.jsonl.gz")      # asks nobody; see `collect.imported`

A row says what was asked and of whom, so that a file tells by itself whether it fits a recipe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pilotfish.collect import files
from pilotfish.collect.manifest import Leader
from pilotfish.collect.sets import Prefix
from pilotfish.collect.store import Store
from pilotfish.curriculum import curriculum
from pilotfish.engine.base import Completion
from pilotfish.episode import Episode, Turn
from pilotfish.recipe import RecipeError
from pilotfish.run import Run
from pilotfish.team import Sampling, Usage


@dataclass(frozen=True, slots=True)
class Row:
    """One answer of an agent, or the words of a leader that shaped the next ones."""

    task: str
    question: str
    """Digest of what the task asks and what is right."""
    set: int
    round: int
    agent: str
    copy: int
    """Which of the agent's calls in this round, from 0."""
    model: str
    revision: str | None
    sampling: Sampling
    messages: list[dict[str, str]]
    """What it was asked."""
    text: str | None
    """None where it was absent."""
    finish_reason: str | None
    tokens: Usage | None
    seconds: float
    reward: float | None
    """None where it was absent, or could not be judged; and of a leader."""
    error: str
    """Why it was absent."""
    leader: str | None
    """Identity of the leader that shaped it; None in round 0."""

    def completion(self) -> Completion | None:
        """What was said; None where it was absent."""
        if self.text is None:
            return None
        return Completion(self.text, self.finish_reason or "stop", self.tokens or Usage(), self.seconds)


ROW = TypeAdapter(Row)
COLUMNS = [field.name for field in fields(Row)]


def export(run: Run, file: Path) -> int:
    """Write all that was collected in a run; the leader of rounds above 0 is the last one.

    Args:
        run: with answers.
        file: `.jsonl`, `.jsonl.gz` or `.parquet`.

    Returns:
        How many rows.

    Raises:
        RecipeError: nothing was collected, or a name that ends otherwise.
    """
    store = Store(run.folder)
    if store.manifest is None or not (store.manifest.rounds or _whole(store)):
        raise RecipeError(f"{run.folder}: no answers are collected there; run `pilotfish collect RECIPE` first")
    return files.write(file, (ROW.dump_python(row, mode="json") for row in rows(run, store)), COLUMNS)


def rows(run: Run, store: Store) -> Iterator[Row]:
    """What was collected in a run, task by task."""
    assert store.manifest is not None
    leader = _whole(store)
    prefix = Prefix(run.recipe.topology.load(), leader.rounds if leader else (0,), leader, run.recipe.seed)
    journal = run.journal(writable=False)
    try:
        for task in curriculum(run.recipe, run.state("curriculum")).train:
            for set in range(store.sets):
                episode = journal.episode(prefix.episode(task.id, set))
                if episode is not None:
                    yield from _of(episode, store, set, leader)
    finally:
        journal.close()


def _whole(store: Store) -> Leader | None:
    """The last leader under whom rounds are whole."""
    led = store.manifest.leaders.values() if store.manifest else ()
    return next((leader for leader in reversed(list(led)) if leader.rounds), None)


def _of(episode: Episode, store: Store, set: int, leader: Leader | None) -> Iterator[Row]:
    copies: dict[tuple[int, str], int] = {}
    agents: dict[int, int] = {}
    for placed in episode.turns:
        turn, round = placed.turn, placed.depth
        copy = copies[round, turn.member] = copies.get((round, turn.member), -1) + 1
        if turn.member == episode.trainee:
            yield _row(episode.task, set, round, copy, turn, store, None, leader)
            continue
        at = agents[round] = agents.get(round, -1) + 1
        line = store.line(episode.task, set, round, leader.scope if leader else None)
        reward = line.rewards[at] if line else None
        yield _row(episode.task, set, round, copy, turn, store, reward, leader if round else None)


def _row(
    task: str, set: int, round: int, copy: int, turn: Turn, store: Store, reward: float | None, leader: Leader | None
) -> Row:
    assert store.manifest is not None
    agent = store.manifest.agents.get(turn.member)
    done = turn.completion
    return Row(
        task=task,
        question=store.manifest.tasks[task],
        set=set,
        round=round,
        agent=turn.member,
        copy=copy,
        model=agent.model if agent else leader.model if leader else "",
        revision=agent.revision if agent else None,
        sampling=turn.sampling,
        messages=[{"role": message["role"], "content": message["content"]} for message in turn.messages],
        text=done.text if done else None,
        finish_reason=done.finish_reason if done else None,
        tokens=done.usage if done else None,
        seconds=turn.seconds,
        reward=reward,
        error=turn.error,
        leader=leader.identity if leader else None,
    )


def read(file: Path) -> Iterator[Row]:
    """The rows of a file.

    Raises:
        RecipeError: a row that is no stored answer, or a file that is none.
        TaskError: a file that cannot be read.
    """
    for number, row in enumerate(files.read(file), 1):
        try:
            yield ROW.validate_python(row)
        except ValidationError as error:
            wrong = error.errors()[0]
            place = ".".join(str(step) for step in wrong["loc"])
            raise RecipeError(
                f"{file}: row {number} is no stored answer ({place}: {wrong['msg']}); export it again"
            ) from error
