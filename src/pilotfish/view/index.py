"""The index: every episode of a run in one line of small figures, kept in memory and brought up to date on demand.

    index = Index(run)
    while not index.read(): ...          # True once all that is recorded was read
    index.columns(index.chunk(0))        # what a browser lists, filters and sorts

Lines stand in chunks of a fixed size, in the order in which they were read. A chunk has a version, which rises when
anything in it changes: who follows a run that is at work fetches again only those.
"""

from __future__ import annotations

import gc
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.run import Run
from pilotfish.train.row_record import FILE, Worth, worths
from pilotfish.view.follow import Episodes, Found, Lines
from pilotfish.view.place import Place, place

CHUNK = 10_000
"""Lines of a chunk."""
BATCH = 10_000
"""Episodes, or groups that were worth something, that are read at once; who waits sees those before the next."""

CODED = ("kind", "part", "task", "method", "answer")
"""Columns whose texts come again and again: a browser is given their numbers."""
NAMED = ("kind", "part", "method", "answer")
NUMBERED = ("step", "sample", "decision", "row")
"""Of a line's place."""
NOTHING: Worth = (None, None)

Beside = tuple[str, ...]
"""What an episode and the actor alone have in common."""


@dataclass(slots=True)
class Line:
    """An episode in the index."""

    number: int
    id: str
    mark: int
    """Names it in addresses: 48 bits of a hash of its id."""
    task: str
    place: Place
    group: int
    """Episodes of one group are shown side by side: rows that train the same decision, methods on the same sample, the
    steps of training on one holdout task."""
    reward: float | None
    """Of its verdict."""
    finished: float


class Index:
    """The lines of a run's episodes.

    Args:
        run: whose; it may be at work.
    """

    def __init__(self, run: Run) -> None:
        self.lines: list[Line] = []
        self.versions: list[int] = []
        """Of each chunk."""
        self._episodes = Episodes(run.root.folder / "journal")
        self._folder = run.root.folder
        self._rows: dict[Path, Lines] = {}
        self._numbers: dict[str, int] = {}
        self._marks: dict[int, int] = {}
        self._groups: dict[str, int] = {}
        self._worth: dict[str, Worth] = {}
        """Of each row, by its episode."""
        self._more: dict[str, dict[int, Worth]] = {}
        """Of an episode's other decisions, where one advantage is not for all: whole episodes are trained."""
        self._alone: dict[Beside, float | None] = {}
        self._compared: dict[Beside, set[int]] = {}
        self._lock = threading.Lock()

    def read(self, most: int = BATCH) -> bool:
        """Read what is new, up to so many episodes.

        Returns:
            Whether that was all.

        Raises:
            JournalError: see `Episodes.new`.
        """
        with self._lock, _uncollected():
            found = self._episodes.new(most)
            for one in found:
                self._add(one)
            groups = [group for rows in self._row_files() for group in rows.new(most)]
            for group in groups:
                self._value(group)
            return max(len(found), len(groups)) < most

    def _row_files(self) -> Iterator[Lines]:
        """Of the run and of the stages that have begun by now."""
        for file in (self._folder / FILE, *self._folder.glob(f"stages/*/{FILE}")):
            yield self._rows.setdefault(file, Lines(file))

    def close(self) -> None:
        """Let the journal's files go."""
        with self._lock:
            self._episodes.close()

    def chunk(self, number: int) -> Sequence[Line]:
        """The lines of a chunk; none beyond the last."""
        return self.lines[number * CHUNK : (number + 1) * CHUNK]

    def marked(self, mark: int) -> Line | None:
        """The line that a mark names."""
        number = self._marks.get(mark)
        return None if number is None else self.lines[number]

    def columns(self, lines: Sequence[Line]) -> dict[str, Any]:
        """Lines as columns of small numbers, with the names that their codes stand for.

        `reward` is the verdict's; `alone` the actor's verdict without the trainee; `worth` and `advantage` are what a
        row of training was learned from with, and `each` decision, reward and advantage where there are several.
        """
        places = [line.place for line in lines]
        named = {
            "task": [line.task for line in lines],
            **{name: [getattr(at, name) for at in places] for name in NAMED},
        }
        codes = {name: {text: code for code, text in enumerate(dict.fromkeys(named[name]))} for name in CODED}
        each = [self._each(line) for line in lines]
        worth = [
            self._worth.get(line.id) or next(iter(self._more.get(line.id, {}).values()), NOTHING) for line in lines
        ]
        return {
            "names": {name: list(known) for name, known in codes.items()},
            "columns": {
                **{name: [known[text] for text in named[name]] for name, known in codes.items()},
                "mark": [line.mark for line in lines],
                "group": [line.group for line in lines],
                **{name: [getattr(at, name) for at in places] for name in NUMBERED},
                "reward": [line.reward for line in lines],
                "alone": [self._alone.get(beside(line)) for line in lines],
                "worth": [reward for reward, _ in worth],
                "advantage": [advantage for _, advantage in worth],
                "each": each,
            },
        }

    def _add(self, found: Found) -> None:
        number = self._numbers.setdefault(found.id, len(self.lines))
        line = self._line(found, number)
        if number == len(self.lines):
            self._marks[line.mark] = number
            self.lines.append(line)
        elif self.lines[number].finished < found.finished:
            self.lines[number] = line
        else:
            return
        self._changed(number // CHUNK)
        self._compare(line)

    def _line(self, found: Found, number: int) -> Line:
        at = place(found.id, found.task, found.topology, found.scope)
        name = found.scope if at.decision is None else f"{found.id.rpartition('||')[0]}|{at.decision}"
        group = self._groups.setdefault(name, len(self._groups))
        return Line(number, found.id, mark(found.id), found.task, at, group, found.reward, found.finished)

    def _compare(self, line: Line) -> None:
        """Keep what the actor was worth alone, for the others; they may have been read before."""
        with_whom = beside(line)
        if not with_whom:
            return
        if not line.place.is_alone:
            self._compared.setdefault(with_whom, set()).add(line.number // CHUNK)
        elif self._alone.get(with_whom, "unknown") != line.reward:
            self._alone[with_whom] = line.reward
            for chunk in self._compared.get(with_whom, ()):
                self._changed(chunk)

    def _each(self, line: Line) -> list[tuple[int | None, float | None, float | None]] | None:
        if not (more := self._more.get(line.id)):
            return None
        own = [(line.place.decision, *self._worth[line.id])] if line.id in self._worth else []
        return [*own, *((decision, *worth) for decision, worth in sorted(more.items()))]

    def _value(self, group: Mapping[str, Any]) -> None:
        """A row's episode is named by its decision and number, but for later decisions of whole episodes."""
        for row, (id, worth) in enumerate(worths(group)):
            if id.endswith(f"{group['decision']}.{row}"):
                self._worth[id] = worth
            else:
                self._more.setdefault(id, {})[group["decision"]] = worth
        numbers = (self._numbers.get(id) for id in group["episodes"])
        for chunk in {number // CHUNK for number in numbers if number is not None}:
            self._changed(chunk)

    def _changed(self, chunk: int) -> None:
        if chunk == len(self.versions):
            self.versions.append(0)
        self.versions[chunk] += 1


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector out: all that is read stays, and to walk through it takes as long as the reading."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def beside(line: Line) -> Beside:
    """Where the actor alone answers what this episode does: the same sample, or the same task of the training."""
    at = line.place
    if at.kind == "eval":
        return (at.where, line.task, str(at.sample), at.model)
    return (line.task,) if at.kind in ("train", "alone") else ()


def mark(id: str) -> int:
    """A number that JavaScript can hold, and that names an episode for good."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=6).digest())
