"""The journal: the durable record of every turn and episode of a run.

A folder of SQLite files, one for each process that ever wrote to it (see `files.py`). A turn is committed before the
topology sees its answer: a killed process loses the calls in flight and nothing else. What comes in one round of the
event loop is committed together. Nothing is ever changed in place; a newer record of the same key wins.

    journal = Journal(run / "journal")
    turn, asked = await journal.answer(key, ask)     # from the record, from a call in flight, or by asking
    for episode in journal.episodes(): ...
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.episode import rows
from pilotfish.episode.files import JournalError, OwnFile, Row, create, listed, open_to_read, unreadable
from pilotfish.episode.turn import Bill, Episode, Turn

SHARED = "answers.db"
MARKS = ",".join("?" * len(rows.TURN_COLUMNS.split(",")))
INSERT_TURN = f"INSERT OR REPLACE INTO turns ({rows.TURN_COLUMNS}) VALUES ({MARKS})"
INSERT_EPISODE = "INSERT OR REPLACE INTO episodes VALUES (?,?,?,?,?,?,?,?)"


class Journal:
    """Turns and episodes of one run, or answers kept across runs.

    Args:
        folder: where the files are; made when the first record is written.
        writable: False opens it for reading only (reports, viewers, strict replay).
        shared: one file for all processes, for a folder that many runs write to over the years.

    Raises:
        JournalError: a file was written by a newer version, is damaged, or the folder cannot be written.
    """

    def __init__(self, folder: Path | str, *, writable: bool = True, shared: bool = False) -> None:
        self.folder = Path(folder)
        self.writable = writable
        self.shared = shared
        self._lock = threading.RLock()
        self._own: OwnFile | None = None
        self._flying: dict[str, _Flight] = {}
        self._due: dict[asyncio.AbstractEventLoop, _Due] = {}
        self._readers: dict[Path, sqlite3.Connection] = {}
        self.look()

    # -- turns

    def find(self, key: str) -> Turn | None:
        """The recorded turn of a key, the newest if several processes recorded one."""
        found = self._select(f"SELECT {rows.TURN_COLUMNS} FROM turns WHERE key = ?", (key,))
        return max(map(rows.turn, found), key=lambda turn: (turn.answered, turn.started), default=None)

    def record(self, turn: Turn) -> None:
        """Write a turn down; it is durable against a kill of the process when this returns."""
        self._write([(INSERT_TURN, rows.of_turn(turn))])

    async def answer(
        self, key: str, ask: Callable[[], Awaitable[Turn]], *, again: Callable[[Turn], bool] = lambda turn: False
    ) -> tuple[Turn, bool]:
        """The turn of a key: from the record, from an equal call in flight, or by asking.

        A waiter that is cancelled leaves the call to the others; when the last one leaves, the call is cancelled.

        Args:
            key: the call's key.
            ask: makes the call; its turn is recorded before anyone sees it.
            again: says of a recorded turn that it is to be asked again (a failed call in a resumed evaluation).

        Returns:
            The turn, and whether this call of `answer` is the one that asked.
        """
        flight = self._flying.get(key)
        if flight is not None:
            return await flight.wait(), False
        turn = self.find(key)
        if turn is not None and not again(turn):
            return turn, False
        flight = self._flying[key] = _Flight(self._ask(ask), lambda flight: self._landed(key, flight))
        return await flight.wait(), True

    def _landed(self, key: str, flight: _Flight) -> None:
        if self._flying.get(key) is flight:
            del self._flying[key]

    async def _ask(self, ask: Callable[[], Awaitable[Turn]]) -> Turn:
        turn = await ask()
        await self._written((INSERT_TURN, rows.of_turn(turn)))
        return turn

    def answered(self) -> bool:
        """Whether any call has been answered."""
        return bool(self._select("SELECT 1 FROM turns WHERE outcome = 'answered' LIMIT 1"))

    def asked_by(self, episode: str) -> list[str]:
        """Keys of the turns that an episode was the first to ask."""
        return [key for (key,) in self._select("SELECT key FROM turns WHERE asker = ?", (episode,))]

    def turns(self) -> Iterator[Turn]:
        """Every recorded turn, each once, in order of key; for bills and reports."""
        self.look()
        for key in sorted({key for (key,) in self._select("SELECT key FROM turns")}):
            turn = self.find(key)
            if turn is not None:
                yield turn

    def bills(self) -> Iterator[Bill]:
        """What each turn cost, in every file that has one: where two processes have asked the same, both were paid.
        Messages and answers are left unread, so that a long record is quickly counted."""
        self.look()
        yield from map(rows.bill, self._select(f"SELECT {rows.BILL_COLUMNS} FROM turns"))

    # -- episodes

    async def finish(self, episode: Episode) -> None:
        """Write an episode down. Its turns are already recorded."""
        record = rows.of_episode(episode)
        columns = (episode.id, episode.task, episode.topology, episode.scope, episode.trainee, episode.verdict.reward)
        await self._written((INSERT_EPISODE, (*columns, record, time.time())))

    def episode(self, id: str) -> Episode | None:
        """A finished episode with its turns."""
        self.look()
        found = self._select("SELECT record, finished FROM episodes WHERE id = ?", (id,))
        newest = max(found, key=lambda row: row[1], default=None)
        return rows.episode(newest[0], self.find) if newest else None

    def episodes(self, like: str = "%") -> Iterator[Episode]:
        """Finished episodes whose id matches a SQL LIKE pattern, in order of id."""
        self.look()
        ids = sorted({id for (id,) in self._select("SELECT id FROM episodes WHERE id LIKE ?", (like,))})
        for id in ids:
            episode = self.episode(id)
            if episode is not None:
                yield episode

    # -- files

    def close(self) -> None:
        if self._own:
            self._own.settle()
        with self._lock:
            for connection in self._readers.values():
                connection.close()
            self._readers, self._own = {}, None

    def look(self) -> None:
        """Open the files that other processes have begun since."""
        with self._lock:
            for path in listed(self.folder):
                if path not in self._readers:
                    self._readers[path] = open_to_read(path)

    def _select(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        with self._lock:
            for path, reader in self._readers.items():
                try:
                    found += reader.execute(query, values)
                except sqlite3.Error as error:
                    raise unreadable(path, error) from error
        return found

    async def _written(self, row: Row) -> None:
        """Write a row with all others that are due in this round of the event loop."""
        loop = asyncio.get_running_loop()
        due = self._due.get(loop)
        if due is None:
            due = self._due[loop] = _Due([], loop.create_future())
            loop.call_soon(self._write_due, loop)
        due.rows.append(row)
        await asyncio.shield(due.written)  # who is cancelled leaves the others, and its own row is kept

    def _write_due(self, loop: asyncio.AbstractEventLoop) -> None:
        due = self._due.pop(loop)
        try:
            self._write(due.rows)
        except Exception as error:  # whatever it is, somebody waits to hear of it
            due.written.set_exception(error)
        else:
            due.written.set_result(None)

    def _write(self, due: Sequence[Row]) -> None:
        if not self.writable:
            raise JournalError(f"{self.folder}: the journal was opened for reading only")
        with self._lock:
            try:
                if self._own is None:
                    self._own = self._begin()
                self._own.write(due)
            except (sqlite3.Error, OSError) as error:
                raise JournalError(
                    f"{self.folder}: the journal cannot be written ({error}); what was recorded before is safe. "
                    "Free space or mend the permissions and resume"
                ) from error

    def _begin(self) -> OwnFile:
        """This process's own file, made with its first record."""
        path = create(self.folder, SHARED if self.shared else f"{time.time_ns():020d}-{os.getpid()}.db")
        if path in self._readers:
            self._readers.pop(path).close()
        own = OwnFile(path, self._lock)
        self._readers[path] = own.connection
        return own


@dataclass(frozen=True, slots=True)
class _Due:
    """What one event loop writes next."""

    rows: list[Row]
    written: asyncio.Future[None]


class _Flight:
    """A call in flight and how many wait for it."""

    def __init__(self, call: Coroutine[Any, Any, Turn], landed: Callable[[_Flight], None]) -> None:
        self.task = asyncio.create_task(call)
        self.task.add_done_callback(lambda task: landed(self))
        self.landed = landed
        self.waiters = 0

    async def wait(self) -> Turn:
        self.waiters += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self.waiters -= 1
            if not self.waiters and not self.task.done():
                self.landed(self)  # who asks the same from now on starts anew
                self.task.cancel()
