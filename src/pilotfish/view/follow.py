"""What is new in a run since one last looked: episodes in its journal, and what training made of its rows.

The journal's files and `rows.jsonl` only ever grow, so a reader remembers how far it came and goes on from there,
also while the run is at work. Nothing is locked and nothing is written.
"""

from __future__ import annotations

import json
import sqlite3
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pilotfish.episode.files import listed, open_to_read, unreadable

COLUMNS = "rowid, id, task, topology, scope, reward, finished"


class Found(NamedTuple):
    """An episode as the journal lists it."""

    rowid: int
    id: str
    task: str
    topology: str
    scope: str
    reward: float | None
    finished: float


class Episodes:
    """The episodes of a journal, in the order in which each file came by them.

    Args:
        folder: of the journal.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, sqlite3.Connection] = {}
        self._known: dict[Path, int] = {}

    def new(self, most: int) -> list[Found]:
        """Up to so many more, and again those that were recorded again. Fewer than `most`: that is all there is.

        Raises:
            JournalError: a file is damaged, or was written by a newer version.
        """
        found: list[Found] = []
        for path in listed(self.folder):
            if len(found) < most:
                found += self._of(path, most - len(found))
        return found

    def _of(self, path: Path, most: int) -> list[Found]:
        if path not in self._files:
            self._files[path] = open_to_read(path)
        # What is recorded again gets a row number above all that its file had.
        query = f"SELECT {COLUMNS} FROM episodes WHERE rowid > ? ORDER BY rowid LIMIT ?"
        try:
            rows = self._files[path].execute(query, (self._known.get(path, 0), most)).fetchall()
        except sqlite3.Error as error:
            raise unreadable(path, error) from error
        if rows:
            self._known[path] = rows[-1][0]
        return list(map(Found._make, rows))

    def close(self) -> None:
        for connection in self._files.values():
            connection.close()
        self._files, self._known = {}, {}


class Lines:
    """The lines of a file of JSON objects that other processes add to.

    Args:
        file: it need not be there yet.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read = 0

    def new(self, most: int) -> list[dict[str, Any]]:
        """Up to so many more lines; one that a killed process left unfinished is left out."""
        if not self.file.exists():
            return []
        with self.file.open("rb") as file:
            file.seek(self._read)
            lines = [line for line in islice(file, most) if line.endswith(b"\n")]
        self._read += sum(map(len, lines))
        return [row for line in lines if (row := _object(line)) is not None]


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
