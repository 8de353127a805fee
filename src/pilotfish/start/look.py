"""A look at a user's rows: what is asked, what the answer is, what can judge it, how the rows divide.

found = look(TaskSource(source="mine.csv"), {}, verifier=None)
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pilotfish.rows import Row, TaskError
from pilotfish.source import TaskSource, read_source
from pilotfish.start.accepted import Example, examples, usable
from pilotfish.start.columns import Column, Roles, choose, columns
from pilotfish.start.pairs import LeftOut, Pair, final_answers, pairs
from pilotfish.start.proposal import Proposal, as_told, described, propose
from pilotfish.start.split import Split, divide
from pilotfish.task import Task
from pilotfish.verify import VerifierPool

MOST_ROWS = 50_000
"""Rows that are looked at."""
ENOUGH = 1_000
"""Of the rows that remain, so many are drawn: more are neither learned nor measured on."""
MISJUDGED = 0.2
"""From this share on of answers that the verifier does not take for right, it is the wrong one."""


@dataclass(frozen=True)
class Look:
    """What was found."""

    rows: int
    columns: Sequence[Column]
    roles: Roles
    read_as: str
    """What of the answers' text is the answer; empty for all of it."""
    left_out: LeftOut
    usable: int
    """Rows that are left, before some of many are drawn."""
    proposal: Proposal
    examples: Sequence[Example]
    split: Split


def read_rows(source: TaskSource) -> list[Row]:
    """The rows of a source, not too many of them.

    Raises:
        TaskError: it cannot be read, or holds none.
    """
    found = list(islice(read_source(source), MOST_ROWS))
    if not found:
        raise TaskError(f"{source.source}: no rows")
    return found


def look(rows: Sequence[Row], name: str, named: Mapping[str, str], verifier: str | None = None) -> Look:
    """Work out what a recipe on these rows has to say.

    Args:
        rows: as they were read.
        name: of the recipe; begins the ids of rows that have none.
        named: the columns that the user has named, by role (`question`, `answer`).
        verifier: the one that the user wants.

    Raises:
        Undecided: which column is what cannot be told.
        TaskError: too few rows are left, or no verifier suits.
    """
    known = columns([row.data for row in rows])
    roles, left_out = choose(known, named), LeftOut()
    paired = pairs(rows, roles, name, left_out)
    found, read_as = final_answers(paired)
    left_out.add("without the mark of a final answer", len(paired) - len(found))
    proposal = as_told(found, verifier) if verifier else propose(found)
    if not found or proposal is None:
        raise TaskError(_no_rule(found, left_out))
    left_out.add("whose answer is of another kind", len(found) - len(proposal.pairs))
    drawn = random.Random(0).sample(list(proposal.pairs), min(ENOUGH, len(proposal.pairs)))
    with VerifierPool() as pool:
        taken = usable([_task(pair, proposal.verifier) for pair in drawn], pool, left_out)
        if len(taken) < (1 - MISJUDGED) * len(drawn):
            raise TaskError(
                f"{proposal.verifier} takes only {len(taken)} of {len(drawn)} of the rows' own answers for right; give "
                "another --verifier, or one of your own (docs/own-tasks.md)"
            )
        shown = examples(taken, pool)
    ids = {task.id for task in taken}
    split = divide([pair for pair in drawn if pair.id in ids])
    return Look(len(rows), known, roles, read_as, left_out, len(proposal.pairs), proposal, shown, split)


def _task(pair: Pair, verifier: str) -> Task:
    return Task(pair.id, pair.question, pair.answer, verifier, choices=pair.choices, meta=pair.meta)


def _no_rule(found: Sequence[Pair], left_out: LeftOut) -> str:
    if not found:
        return f"no row has both a question and an answer ({left_out}); say --question and --answer"
    return (
        f"no rule tells a right answer from a wrong one here: {described(found)}. Let a member judge, or write a "
        "verifier of your own and name it with --verifier file.py:function (docs/own-tasks.md); --verifier exact wants "
        "the very words"
    )
