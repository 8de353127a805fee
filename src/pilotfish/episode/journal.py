"""The journal: the durable record of every turn and episode of a run.

A folder of SQLite files, one for each process that ever wrote to it (WAL, so that anyone may read while it is
written). A turn is committed before the topology sees its answer: a killed process loses the calls in flight and
nothing else. Nothing is ever changed in place; a newer record of the same key wins.

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
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pilotfish.episode import rows
from pilotfish.episode.turn import Episode, Turn

SHARED = "answers.db"
FORMAT = 1
"""Version of the files' layout."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS turns (
  key TEXT PRIMARY KEY, scope TEXT, member TEXT, version INTEGER, outcome TEXT, asker TEXT, started REAL,
  messages TEXT, sampling TEXT, error TEXT, attempts TEXT, completion TEXT,
  prompt_ids BLOB, completion_ids BLOB, logprobs BLOB);
CREATE INDEX IF NOT EXISTS turns_asker ON turns (asker);
CREATE TABLE IF NOT EXISTS episodes (
  id TEXT PRIMARY KEY, task TEXT, topology TEXT, scope TEXT, trainee TEXT, reward REAL, record TEXT, finished REAL);
"""

MARKS = ",".join("?" * len(rows.TURN_COLUMNS.split(",")))
INSERT_TURN = f"INSERT OR REPLACE INTO turns ({rows.TURN_COLUMNS}) VALUES ({MARKS})"


class JournalError(Exception):
    """The journal cannot be read or written: the message names the file and the way out."""


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
        self._writer: sqlite3.Connection | None = None
        self._flying: dict[str, _Flight] = {}
        self._readers: dict[Path, sqlite3.Connection] = {}
        self._look()

    # -- turns

    def find(self, key: str) -> Turn | None:
        """The recorded turn of a key, the newest if several processes recorded one."""
        found = self._select(f"SELECT {rows.TURN_COLUMNS} FROM turns WHERE key = ?", (key,))
        return max(map(rows.turn, found), key=lambda turn: (turn.answered, turn.started), default=None)

    def record(self, turn: Turn) -> None:
        """Write a turn down; it is durable against a kill of the process when this returns."""
        self._write(INSERT_TURN, rows.of_turn(turn))

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
        self.record(turn)
        return turn

    def asked_by(self, episode: str) -> list[str]:
        """Keys of the turns that an episode was the first to ask."""
        return [key for (key,) in self._select("SELECT key FROM turns WHERE asker = ?", (episode,))]

    def turns(self) -> Iterator[Turn]:
        """Every recorded turn, each once, in order of key; for bills and reports."""
        self._look()
        for key in sorted({key for (key,) in self._select("SELECT key FROM turns")}):
            turn = self.find(key)
            if turn is not None:
                yield turn

    # -- episodes

    def finish(self, episode: Episode) -> None:
        """Write an episode down. Its turns are already recorded."""
        record = rows.of_episode(episode)
        columns = (episode.id, episode.task, episode.topology, episode.scope, episode.trainee, episode.verdict.reward)
        self._write("INSERT OR REPLACE INTO episodes VALUES (?,?,?,?,?,?,?,?)", (*columns, record, time.time()))

    def episode(self, id: str) -> Episode | None:
        """A finished episode with its turns."""
        self._look()
        found = self._select("SELECT record, finished FROM episodes WHERE id = ?", (id,))
        newest = max(found, key=lambda row: row[1], default=None)
        return rows.episode(newest[0], self.find) if newest else None

    def episodes(self, like: str = "%") -> Iterator[Episode]:
        """Finished episodes whose id matches a SQL LIKE pattern, in order of id."""
        self._look()
        ids = sorted({id for (id,) in self._select("SELECT id FROM episodes WHERE id LIKE ?", (like,))})
        for id in ids:
            episode = self.episode(id)
            if episode is not None:
                yield episode

    # -- files

    def close(self) -> None:
        with self._lock:
            for connection in self._readers.values():
                connection.close()
            self._readers, self._writer = {}, None

    def _look(self) -> None:
        """Open the files that other processes have begun since."""
        with self._lock:
            for path in _files(self.folder):
                if path not in self._readers:
                    self._readers[path] = _open(path)

    def _select(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        with self._lock:
            for path, reader in self._readers.items():
                try:
                    found += reader.execute(query, values)
                except sqlite3.Error as error:
                    raise _unreadable(path, error) from error
        return found

    def _write(self, query: str, values: tuple[object, ...]) -> None:
        if not self.writable:
            raise JournalError(f"{self.folder}: the journal was opened for reading only")
        with self._lock:
            try:
                if self._writer is None:
                    path = _create(self.folder, SHARED if self.shared else f"{time.time_ns():020d}-{os.getpid()}.db")
                    if path in self._readers:
                        self._readers.pop(path).close()
                    self._writer = self._readers[path] = _connect(path)
                self._writer.execute(query, values)
            except (sqlite3.Error, OSError) as error:
                raise JournalError(
                    f"{self.folder}: the journal cannot be written ({error}); what was recorded before is safe. "
                    "Free space or mend the permissions and resume"
                ) from error


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


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".db")
    except (FileNotFoundError, NotADirectoryError):
        return []  # nothing is recorded yet; the first record makes the folder or says why it cannot
    except OSError as error:
        raise JournalError(f"{folder}: the journal cannot be read ({error}); mend the permissions") from error


def _create(folder: Path, name: str) -> Path:
    """Make an empty file, unless it is there. It gets its name last: a kill leaves none half made."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if path.exists():
        return path
    unnamed = folder / f"{path.stem}-{os.getpid()}.new"
    _remove(unnamed)  # of a process that was killed and had this one's id
    try:
        _fill(unnamed)
        os.link(unnamed, path)
    except FileExistsError:
        pass  # another process was first
    finally:
        _remove(unnamed)
    return path


def _fill(path: Path) -> None:
    """Make the tables. WAL comes last: until then a full disk is an error, and no commit waits in a file beside."""
    with closing(_connect(path)) as connection:
        connection.executescript(f"BEGIN; {SCHEMA} INSERT INTO meta VALUES ('format', '{FORMAT}'); COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def _open(path: Path) -> sqlite3.Connection:
    try:
        connection = _connect(path)
        connection.execute("PRAGMA query_only=ON")
        found = dict(connection.execute("SELECT name, value FROM meta"))
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    if int(found.get("format", 0)) > FORMAT:
        raise JournalError(f"{path}: written by a newer Pilotfish (format {found['format']}); upgrade to read it")
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(_address(path), uri=True, isolation_level=None, check_same_thread=False, timeout=30.0)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _address(path: Path) -> str:
    """SQLite keeps an index beside a file that it reads; where it cannot, it must be told that nobody writes."""
    address = path.absolute().as_uri()
    if os.access(path.parent, os.W_OK):
        return address
    return address + ("?mode=ro" if path.with_name(path.name + "-wal").exists() else "?immutable=1")


def _unreadable(path: Path, error: sqlite3.Error) -> JournalError:
    return JournalError(f"{path}: not a journal, or damaged ({error}); move it away to go on without it")
