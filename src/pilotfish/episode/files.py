"""The journal's files: made, opened, and told from what is no journal. What is in them is `journal.py`'s matter.

Each is a SQLite database in WAL mode. A commit is handed to the operating system and not waited for on the disk
(`synchronous=NORMAL`): a kill of the process takes nothing of it. When the machine itself goes down, the last seconds
may be gone, that is what the system had not yet written out; all before them, and the file itself, stay whole.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

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

MOVE = "PRAGMA wal_checkpoint(PASSIVE)"
MOVED_AFTER = 256
"""Rows that are written between one move and the next."""
LONG_LOG = 8000
"""Pages of 4 KB after which the log is to start anew."""

LONGEST = 504
"""Bytes of the longest path that SQLite opens."""

Row = tuple[str, tuple[object, ...]]
"""A statement and its values."""


class JournalError(Exception):
    """The journal cannot be read or written: the message names the file and the way out."""


class OwnFile:
    """The file that a process writes.

    What is committed stands in a log beside the file (`-wal`) and is moved into the file from time to time. That waits
    for the disk, so it is done in a thread of its own: no call does.

    Args:
        path: the file.
        lock: held by whoever uses the connection.
    """

    def __init__(self, path: Path, lock: threading.RLock) -> None:
        self.connection = connect(path)
        self.connection.execute("PRAGMA wal_autocheckpoint=0")
        self._path = path
        self._lock = lock
        self._unmoved = 0
        self._mover: threading.Thread | None = None

    def write(self, rows: Sequence[Row]) -> None:
        """Commit all rows, or none."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            for query, values in rows:
                self.connection.execute(query, values)
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:  # on a full disk SQLite may have rolled back by itself
                self.connection.execute("ROLLBACK")
            raise
        self._unmoved += len(rows)
        if self._unmoved >= MOVED_AFTER and not (self._mover and self._mover.is_alive()):
            self._unmoved = 0
            self._mover = threading.Thread(target=self._move, name="pilotfish-journal", daemon=True)
            self._mover.start()

    def settle(self) -> None:
        """Wait for the thread."""
        if self._mover:
            self._mover.join()

    def _move(self) -> None:
        with suppress(sqlite3.Error), closing(connect(self._path)) as connection:  # all is safe in the log
            pages = connection.execute(MOVE).fetchone()[1]
            if pages > LONG_LOG:
                with self._lock:  # for the few pages since: a log of which nothing is left to move starts anew
                    connection.execute(MOVE)


def listed(folder: Path) -> list[Path]:
    """The files of a folder, oldest first."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".db")
    except (FileNotFoundError, NotADirectoryError):
        return []  # nothing is recorded yet; the first record makes the folder or says why it cannot
    except OSError as error:
        raise JournalError(f"{folder}: the journal cannot be read ({error}); mend the permissions") from error


def create(folder: Path, name: str) -> Path:
    """Make an empty file, unless it is there. It gets its name last: a kill leaves none half made."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if path.exists():
        return path
    unnamed = folder / f"{path.stem}-{os.getpid()}.new"
    if (length := len(os.fsencode(unnamed.absolute()))) > LONGEST:
        raise JournalError(
            f"{folder}: a path of {length} bytes with the journal's file; SQLite opens {LONGEST}; shorten it"
        )
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
    with closing(connect(path)) as connection:
        connection.executescript(f"BEGIN; {SCHEMA} INSERT INTO meta VALUES ('format', '{FORMAT}'); COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a file that is there; what is no journal of this version is refused by name."""
    try:
        connection = connect(path)
        connection.execute("PRAGMA query_only=ON")
        found = dict(connection.execute("SELECT name, value FROM meta"))
    except sqlite3.Error as error:
        raise unreadable(path, error) from error
    if int(found.get("format", 0)) > FORMAT:
        raise JournalError(f"{path}: written by a newer Pilotfish (format {found['format']}); upgrade to read it")
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """Open a file to write; every statement outside a transaction is one."""
    connection = sqlite3.connect(_address(path), uri=True, isolation_level=None, check_same_thread=False, timeout=30.0)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _address(path: Path) -> str:
    """SQLite keeps an index beside a file that it reads; where it cannot, it must be told that nobody writes."""
    address = path.absolute().as_uri()
    if os.access(path.parent, os.W_OK):
        return address
    return address + ("?mode=ro" if path.with_name(path.name + "-wal").exists() else "?immutable=1")


def unreadable(path: Path, error: sqlite3.Error) -> JournalError:
    """Why a file cannot be read."""
    return JournalError(f"{path}: not a journal, or damaged ({error}); move it away to go on without it")
