"""The journal: who waits for whom, several processes, damaged and newer files, odd texts."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.engine.base import Attempt, CallFailed, Completion
from pilotfish.episode import Journal, JournalError, Scopes, Turn, play, replay
from pilotfish.episode.files import LONGEST
from pilotfish.task import Task
from pilotfish.team import Sampling, Usage
from pilotfish.topology import topology
from stage import journal, judge, run, stage


def a_turn(key: str = "k", text: str = "four", *, started: float = 1.0, outcome: str = "answered", **more) -> Turn:
    done = Completion(text, "stop", Usage(3, 1)) if outcome == "answered" else None
    messages = [{"role": "user", "content": "2 + 2?"}]
    whole = {"messages": messages, "asker": "e", "scope": "s", **more}
    return Turn(
        key=key, member="actor", version=0, sampling=Sampling(), outcome=outcome, completion=done,
        started=started, **whole,
    )  # fmt: skip


def names(tmp_path: Path) -> list[str]:
    return sorted(path.suffix for path in tmp_path.iterdir())


# -- waiters


class Gate:
    """A call that answers when it is let through."""

    def __init__(self) -> None:
        self.begun, self.cancelled = 0, 0
        self.open = asyncio.Event()

    async def __call__(self) -> Turn:
        self.begun += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return a_turn(text=f"answer {self.begun}")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_equal_calls_wait_for_one_another_and_one_of_them_asked() -> None:
    async def scenario(record: Journal) -> None:
        gate = Gate()
        waiters = [asyncio.create_task(record.answer("k", gate)) for _ in range(3)]
        await settle()
        gate.open.set()
        assert [(turn.text, asked) for turn, asked in await asyncio.gather(*waiters)] == [
            ("answer 1", True),
            ("answer 1", False),
            ("answer 1", False),
        ]
        assert await record.answer("k", gate) == (a_turn(text="answer 1"), False)
        assert gate.begun == 1

    with journal() as record:
        run(scenario(record))


@pytest.mark.parametrize("who", [0, 1])
def test_a_waiter_that_is_cancelled_does_not_cancel_the_call(who: int) -> None:
    async def scenario(record: Journal) -> None:
        gate = Gate()
        waiters = [asyncio.create_task(record.answer("k", gate)) for _ in range(2)]
        await settle()
        waiters[who].cancel()
        await settle()
        assert waiters[who].cancelled()
        gate.open.set()
        turn, _ = await waiters[1 - who]
        assert (turn.text, gate.begun, gate.cancelled) == ("answer 1", 1, 0)

    with journal() as record:
        run(scenario(record))


def test_the_last_waiter_to_leave_cancels_the_call_and_the_next_one_asks_anew() -> None:
    async def scenario(record: Journal) -> None:
        gate = Gate()
        waiters = [asyncio.create_task(record.answer("k", gate)) for _ in range(2)]
        await settle()
        for waiter in waiters:
            waiter.cancel()
        newcomer = asyncio.create_task(record.answer("k", gate))
        await settle()
        assert (gate.begun, gate.cancelled) == (2, 1)
        gate.open.set()
        assert (await newcomer)[0].text == "answer 2"
        assert record.find("k") == a_turn(text="answer 2")

    with journal() as record:
        run(scenario(record))


def test_an_error_of_the_call_reaches_every_waiter_and_is_not_recorded() -> None:
    async def fail() -> Turn:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def scenario(record: Journal) -> None:
        results = await asyncio.gather(*(record.answer("k", fail) for _ in range(2)), return_exceptions=True)
        assert [str(result) for result in results] == ["no", "no"]
        assert record.find("k") is None

    with journal() as record:
        run(scenario(record))


# -- several processes

WRITER = """
import sys
from test_journal import a_turn
from pilotfish.episode import Journal
journal = Journal(sys.argv[1])
for number, line in enumerate(sys.stdin):
    journal.record(a_turn(f"{sys.argv[2]} {number}", line.strip()))
    print("written", flush=True)
"""


def writer(folder: Path, name: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def write(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin
    assert process.stdout
    process.stdin.write(text + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "written\n"


def test_journals_of_several_processes_are_read_together_and_while_they_are_written(tmp_path: Path) -> None:
    reader = Journal(tmp_path, writable=False)
    with writer(tmp_path, "left") as left, writer(tmp_path, "right") as right:
        for number in range(3):
            write(left, f"l{number}")
            write(right, f"r{number}")
            assert [turn.text for turn in reader.turns()] == [
                *(f"l{n}" for n in range(number + 1)),
                *(f"r{n}" for n in range(number + 1)),
            ]
        left.kill()
        right.kill()
    again = Journal(tmp_path)
    again.record(a_turn("here"))
    assert len(list(again.turns())) == 7
    assert len(list(reader.turns())) == 7
    assert names(tmp_path).count(".db") == 3


def test_the_newest_record_of_a_key_wins_and_an_answer_wins_over_an_outage(tmp_path: Path) -> None:
    one, two = Journal(tmp_path), Journal(tmp_path)
    one.record(a_turn("a", "newer", started=2.0))
    two.record(a_turn("a", "older", started=1.0))
    one.record(a_turn("b", "answer", started=1.0))
    two.record(a_turn("b", outcome="failed", started=2.0))
    for record in (Journal(tmp_path), Journal(tmp_path, writable=False)):
        assert [turn.text for turn in record.turns()] == ["newer", "answer"]
        assert [turn.text for turn in map(record.find, "ab") if turn] == ["newer", "answer"]


def test_a_file_has_its_name_only_once_it_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(unnamed: Path, name: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", killed)
    with pytest.raises(KeyboardInterrupt):
        Journal(tmp_path).record(a_turn())
    monkeypatch.undo()
    assert names(tmp_path) == []
    later = Journal(tmp_path)
    later.record(a_turn())
    assert [turn.text for turn in later.turns()] == ["four"]


def test_answers_that_many_runs_keep_are_in_one_file(tmp_path: Path) -> None:
    journals = [Journal(tmp_path, shared=True) for _ in range(3)]
    for number, one in enumerate(journals):
        one.record(replace(a_turn(), key=f"k{number}"))
    assert [path.name for path in tmp_path.glob("*.db")] == ["answers.db"]
    assert all(Journal(tmp_path, shared=True).find(f"k{number}") for number in range(3))
    assert all(one.find(f"k{number}") for one in journals[1:] for number in range(3))


# -- what cannot be read or written


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    Journal(tmp_path).record(a_turn())
    (file,) = tmp_path.glob("*.db")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE meta SET value = '2' WHERE name = 'format'")
    connection.close()
    with pytest.raises(JournalError, match=rf"{file.name}: written by a newer Pilotfish \(format 2\); upgrade"):
        Journal(tmp_path)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be read as one" * 20, b""])
def test_a_file_that_is_no_journal_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.db").write_bytes(content)
    with pytest.raises(JournalError, match=r"odd\.db: not a journal, or damaged .*; move it away"):
        Journal(tmp_path)


def test_damage_in_the_middle_of_a_file_is_named(tmp_path: Path) -> None:
    record = Journal(tmp_path)
    for number in range(300):
        record.record(a_turn(f"{number}", "a long answer " * 20))
    record.close()
    (file,) = tmp_path.glob("*.db")
    raw = bytearray(file.read_bytes())
    raw[3 * 4096 :] = b"\xff" * (len(raw) - 3 * 4096)
    file.write_bytes(raw)
    with pytest.raises(JournalError, match=rf"{file.name}: not a journal, or damaged"):
        list(Journal(tmp_path).turns())


def test_a_folder_that_cannot_be_made_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    record = Journal(tmp_path / "file" / "journal")
    with pytest.raises(JournalError, match=r"file/journal: the journal cannot be written .*mend the permissions"):
        record.record(a_turn())


def test_a_path_that_sqlite_does_not_open_is_named(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a" * 60] * 8)
    with pytest.raises(JournalError, match=r"aaa: a path of \d+ bytes with the journal's file; SQLite opens 504"):
        Journal(deep).record(a_turn())
    rest = LONGEST - len(os.fsencode(tmp_path)) - 60
    deep = tmp_path.joinpath(*["a" * 60] * (rest // 61), "b" * (rest % 61 or 1))
    Journal(deep).record(a_turn())
    assert list(Journal(deep).turns())


def test_a_journal_opened_for_reading_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="opened for reading only"):
        Journal(tmp_path, writable=False).record(a_turn())
    assert list(tmp_path.iterdir()) == []


READ_ONLY = """
import os, sys
from pathlib import Path
from pilotfish.episode import Journal, JournalError
from test_journal import a_turn
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
journal = Journal(sys.argv[1])
print([turn.text for turn in journal.turns()])
try:
    journal.record(a_turn("new"))
except JournalError as error:
    print(error)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_read_only_folder_can_be_read_and_says_why_it_cannot_be_written(killed: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with writer(folder, "archive") as process:
            write(process, "four")
            if killed:
                process.kill()
        folder.chmod(0o555)
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        command, environment = [sys.executable, "-c", READ_ONLY, name], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        folder.chmod(0o755)
    assert done.stdout.startswith("['four']\n"), done.stderr
    assert "the journal cannot be written" in done.stdout


# -- texts

odd_texts = st.text(alphabet=st.characters(exclude_categories=()), max_size=20) | st.sampled_from(
    ["\ud800", "a\x00b", "\udfff\x00", "\u2028", "{}", "%s", ""]
)


@settings(max_examples=60, deadline=None)
@given(question=odd_texts, said=odd_texts, error=odd_texts, seen=odd_texts)
def test_lone_surrogates_and_nul_bytes_survive(question: str, said: str, error: str, seen: str) -> None:
    one = stage({"warm": 1.0, "flaky": 1.0})

    async def speak(messages, sampling, seed):
        return Completion(said, "stop", Usage(), reasoning=seen, attempts=(Attempt(0.0, error),))

    async def fail(messages, sampling, seed):
        raise CallFailed(error)

    one.speakers["warm"].complete, one.speakers["flaky"].complete = speak, fail  # type: ignore[method-assign]

    @topology
    async def odd(task: Task, room):
        await room.ask("flaky", task.question, optional=True)
        return await room.ask("warm", task.question)

    task = Task("odd", question, "4")
    with journal() as record:
        episode = run(play(task, odd, one.team, record, Scopes("odd"), judge=judge))
        again = Journal(record.folder, writable=False)
        assert again.episode(episode.id) == episode
        assert run(replay(episode.id, task, odd, one.team.members, again, Scopes("odd"))) == episode
    assert episode.answer == said


def test_token_ids_log_probabilities_and_tries_come_back_exactly(tmp_path: Path) -> None:
    tries = (Attempt(0.1, "cut off", Usage(7, 2, estimated=True)), Attempt(0.2, "refused"))
    done = Completion(
        "4", "length", Usage(3, 2, 1, 1, True), 0.25, "thought", (1, 2**40), (7,), (-0.1 - 1e-17,), ()
    )  # fmt: skip
    turn = a_turn()
    turn = Turn(**{**{name: getattr(turn, name) for name in turn.__slots__}, "completion": done, "attempts": tries})
    Journal(tmp_path).record(turn)
    assert Journal(tmp_path).find("k") == turn
    assert turn.billed == Usage(10, 4, 1, 1, True)


def test_importing_episodes_and_topologies_does_not_import_torch() -> None:
    code = "import sys, pilotfish.episode, pilotfish.topology; sys.exit('torch' in sys.modules)"
    path = os.pathsep.join(filter(None, sys.path))
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}).returncode == 0
