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
from pilotfish.start.columns import Column, Roles, choose, columns, is_option
from pilotfish.start.pairs import KEPT, LeftOut, Pair, final_answers, pairs
from pilotfish.start.proposal import JUDGE, Proposal, as_told, by_judge, propose
from pilotfish.start.split import LEAST, Split, divide
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
    """None where a member judges."""
    split: Split

    @property
    def unused(self) -> list[str]:
        """Columns that nothing is made of."""
        used = {"id", *KEPT, *self.roles.used}
        left = [one for one in self.columns if one.name not in used and not is_option(one, self.roles.choices)]
        return [column.name.strip() for column in left if column.filled]


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
        TaskError: too few rows are left, all have the same answer, or the verifier does not suit them.
    """
    known = columns([row.data for row in rows])
    roles, left_out = choose(known, named), LeftOut()
    paired = pairs(rows, roles, name, left_out)
    found, read_as = final_answers(paired)
    if not read_as and any(column.listed for column in known if column.name == roles.answer.name):
        read_as = "a list, each of whose texts is right"
    left_out.add("without the mark of a final answer", len(paired) - len(found))
    _check_enough(len(found), len(rows), left_out)
    proposal = as_told(found, verifier) if verifier else propose(found) or by_judge(found)
    left_out.add("whose answer is of another kind", len(found) - len(proposal.pairs))
    _check_differ(proposal.pairs, roles)
    drawn = random.Random(0).sample(list(proposal.pairs), min(ENOUGH, len(proposal.pairs)))
    taken, shown = (drawn, []) if proposal.verifier == JUDGE else _tried(drawn, proposal.verifier, left_out)
    _check_enough(len(taken), len(rows), left_out)
    return Look(len(rows), known, roles, read_as, left_out, len(proposal.pairs), proposal, shown, divide(taken))


def _tried(drawn: Sequence[Pair], verifier: str, left_out: LeftOut) -> tuple[Sequence[Pair], Sequence[Example]]:
    """The pairs whose own answer the verifier takes for right, and examples of what it takes."""
    with VerifierPool() as pool:
        taken = usable([_task(pair, verifier) for pair in drawn], pool, left_out)
        if len(taken) < (1 - MISJUDGED) * len(drawn):
            raise TaskError(
                f"{verifier} takes only {len(taken)} of {len(drawn)} of the rows' own answers for right; give another "
                "--verifier, or one of your own (docs/own-tasks.md)"
            )
        shown = examples(taken, pool)
    ids = {task.id for task in taken}
    return [pair for pair in drawn if pair.id in ids], shown


def _task(pair: Pair, verifier: str) -> Task:
    return Task(pair.id, pair.question, pair.answer, verifier, choices=pair.choices, meta=pair.meta)


def _check_enough(left: int, rows: int, left_out: LeftOut) -> None:
    if left < LEAST:
        why = f" ({left_out})" if left_out.counts else ""
        raise TaskError(
            f"{left} of {rows:,} rows can be used{why}; it takes {LEAST} to learn on some and measure on others. Add "
            "rows, or name the columns with --question and --answer"
        )


def _check_differ(known: Sequence[Pair], roles: Roles) -> None:
    if len({pair.answer for pair in known}) == 1:
        raise TaskError(
            f"{roles.answer.name}: every answer is {known[0].answer[:40]!r}, so whoever says that is always right; "
            "name another column with --answer"
        )
