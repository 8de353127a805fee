"""How the journal writes: what is on disk, and when."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from mock_server import MockServer
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.episode import Journal, Turn, files
from stage import run
from test_engine_openai import GREEDY, ask
from test_engine_openai import run as with_engine
from test_journal import a_turn


def test_answers_that_come_together_are_all_on_disk_before_anyone_sees_one(tmp_path: Path) -> None:
    reader = Journal(tmp_path, writable=False)

    async def seen(record: Journal, key: str) -> int:
        async def ask() -> Turn:
            return a_turn(key)

        await record.answer(key, ask)
        return len(list(reader.turns()))

    async def scenario(record: Journal) -> list[int]:
        return await asyncio.gather(*(seen(record, f"k{number}") for number in range(20)))

    assert run(scenario(Journal(tmp_path))) == [20] * 20


def test_an_answer_whose_waiter_leaves_while_it_is_written_is_kept(tmp_path: Path) -> None:
    async def scenario(record: Journal) -> None:
        async def ask() -> Turn:
            asyncio.get_running_loop().call_soon(waiter.cancel)  # comes before the write
            return a_turn()

        waiter = asyncio.create_task(record.answer("k", ask))
        with pytest.raises(asyncio.CancelledError):
            await waiter

    run(scenario(Journal(tmp_path)))
    assert [turn.text for turn in Journal(tmp_path).turns()] == ["four"]


def test_what_cannot_be_written_is_said_to_all_who_wait_and_takes_nothing_along(tmp_path: Path) -> None:
    async def ask(key: str) -> Turn:
        return a_turn(key, scope="\ud800" if key == "b" else "s")

    async def scenario(record: Journal) -> None:
        await record.answer("before", lambda: ask("before"))
        lost = await asyncio.gather(*(record.answer(key, partial(ask, key)) for key in "abc"), return_exceptions=True)
        assert [type(error) for error in lost] == [UnicodeEncodeError] * 3
        await record.answer("after", lambda: ask("after"))

    run(scenario(Journal(tmp_path)))
    assert [turn.key for turn in Journal(tmp_path).turns()] == ["after", "before"]


def test_a_long_log_begins_anew_though_its_end_could_not_be_moved_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOVED_AFTER", 20)
    monkeypatch.setattr(files, "LONG_LOG", 10)
    record, numbers = Journal(tmp_path), itertools.count()

    def write(count: int) -> int:
        """Bytes of the log after so many rows more."""
        for number in itertools.islice(numbers, count):
            record.record(a_turn(f"{number}", "word " * 200))
        (log,) = tmp_path.glob("*-wal")
        return log.stat().st_size

    write(19)
    (file,) = tmp_path.glob("*.db")
    mover = Held(file)
    monkeypatch.setattr(files, "connect", lambda path: mover)
    long = write(1)
    assert record._own is not None
    record._own.settle()
    assert write(10) == long, "what is written now does not stand behind the rest"
    assert len(list(record.turns())) == 30
    record.close()
    assert not list(tmp_path.glob("*-wal"))


class Held:
    """The connection of the thread that moves the log, which a reader keeps from moving all of it the first time."""

    def __init__(self, file: Path) -> None:
        self.reader, self.mover = (
            sqlite3.connect(file, isolation_level=None, check_same_thread=False) for _ in range(2)
        )
        self.reader.execute("BEGIN")
        self.reader.execute("SELECT count(*) FROM turns").fetchone()

    def execute(self, query: str) -> sqlite3.Cursor:
        found = self.mover.execute(query)
        self.reader.close()
        return found

    def close(self) -> None:
        self.mover.close()


def test_a_place_is_taken_again_only_when_its_last_answer_is_on_disk(tmp_path: Path) -> None:
    """Else a kill could cost one call more than there are places."""
    record, reader = Journal(tmp_path), Journal(tmp_path, writable=False)
    behind: list[int] = []

    def count(text: str) -> int:
        """Called before a call is sent, since tokens are limited."""
        behind.append(server.calls - len(list(reader.turns())))
        return 1

    async def many(engine: OpenAIEngine) -> None:
        async def turn(key: str) -> Turn:
            said = await engine.complete(ask(key), GREEDY, 1)
            return Turn(key, "s", "actor", 0, ask(key), GREEDY, "answered", said)

        await asyncio.gather(*(record.answer(key, partial(turn, key)) for key in map(str, range(60))))

    with MockServer() as server:
        with_engine(server.base_url, many, concurrency=1, count_tokens=count, tokens_per_minute=1e9)
    assert behind == [0] * 60
