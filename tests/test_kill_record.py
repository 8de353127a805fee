"""What a record withstands: several processes at once, a full disk, a folder that cannot be written, a newer version,
two runs in one folder. Each ends in one clear line, and the same command goes on once the cause is mended.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from collecting import answer, recipe
from mock_server import MockServer
from pilotfish.cli import main
from pilotfish.episode import Journal
from test_journal import a_turn

pytestmark = [pytest.mark.kill, pytest.mark.timeout(1500)]

IN_FLIGHT = 8
"""Sets in flight, times agents."""
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}


# -- several processes

WRITER = """
import sys
from test_journal import a_turn
from pilotfish.episode import Journal
journal, name, count = Journal(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    if number == count // 2:
        print("half", flush=True)
        sys.stdin.readline()
    journal.record(a_turn(f"{name} {number}", "word " * 500 + f"{name} {number}"))
    journal.record(a_turn(f"both {number}", "word " * 500 + f"both {number}", started=float(name == "right")))
"""


def test_two_processes_write_at_once_while_a_third_reads(tmp_path: Path) -> None:
    count, reads = 150, []
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(writer(tmp_path, name, count)) for name in ("left", "right")]
        reader = Journal(tmp_path, writable=False)
        for word in ("ready", "half"):
            for one in writers:
                assert one.stdout
                assert one.stdout.readline() == f"{word}\n"
            reads.append({turn.key: turn for turn in reader.turns()})
            for one in writers:
                assert one.stdin
                one.stdin.write("go\n")
                one.stdin.flush()
        while any(one.poll() is None for one in writers):
            reads.append({turn.key: turn for turn in reader.turns()})
        assert [one.returncode for one in writers] == [0, 0]
    reads.append({turn.key: turn for turn in reader.turns()})
    for before, after in itertools.pairwise(reads):
        assert before.keys() <= after.keys()
    assert all(turn.text == "word " * 500 + key for read in reads for key, turn in read.items())
    names = ("left", "right", "both")
    assert reads[-1].keys() == {f"{name} {number}" for name in names for number in range(count)}
    assert all(turn.started == 1.0 for key, turn in reads[-1].items() if key.startswith("both"))
    assert (len(reads[0]), 2 * len(reads[1])) == (0, 3 * count)


def writer(folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-c", WRITER, str(folder), name, str(count)], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **ENVIRONMENT})


def test_what_a_killed_process_of_the_same_id_left_half_made_is_in_nobodys_way(tmp_path: Path) -> None:
    Journal(tmp_path / "other", shared=True).record(a_turn())
    kept = tmp_path / "kept"
    kept.mkdir()
    shutil.copy(tmp_path / "other" / "answers.db", kept / f"answers-{os.getpid()}.new")
    record = Journal(kept, shared=True)
    record.record(a_turn("new"))
    assert [turn.key for turn in record.turns()] == ["new"]
    assert not list(kept.glob("*.new*"))


# -- a run by the command line

COMMAND = """
import os, resource, sys
import pilotfish.cli.progress, pilotfish.collect.exchange, pilotfish.collect.main  # another user may not read them
from pilotfish.cli import main
limit, user = int(sys.argv[1]), int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
if user and os.getuid() == 0:
    os.setgid(user)
    os.setuid(user)
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=lambda body: answer(body) + " and so on" * 100) as opened:
        yield opened


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


def written(folder: Path, server: MockServer, tasks: int = 30) -> Path:
    """A recipe's file."""
    data = recipe(folder, server.base_url, tasks=tasks, collect={"concurrency": IN_FLIGHT // 2})
    file = folder / "own.yaml"
    file.write_text(yaml.safe_dump(data.model_dump(mode="json", exclude={"name"})))
    return file


def collect(own: Path, run: Path, *, limit: int = 0, user: int = 0) -> subprocess.Popen[str]:
    """`pilotfish collect`, with a limit of bytes a file, as another user."""
    command = [sys.executable, "-c", COMMAND, str(limit), str(user), "collect", str(own), "--run", str(run)]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def refused(process: subprocess.Popen[str]) -> str:
    """The last line on standard error of a command that ended as it should where it cannot go on."""
    _, said = process.communicate(timeout=600)
    assert process.returncode == 2, said
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


def said_in(run: Path) -> list[tuple[str, str]]:
    journal = Journal(run / "journal", writable=False)
    found = [(turn.key, turn.text) for turn in journal.turns()]
    journal.close()
    return found


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of that size; skips the test where none can be mounted."""
    place = folder / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def check_it_goes_on(own: Path, run: Path, server: MockServer, tmp_path: Path) -> None:
    """The same command, once there is room, ends as if nothing had been, and asks at most what was in flight again."""
    kept = said_in(run)
    assert len(kept) <= server.calls <= len(kept) + IN_FLIGHT
    assert main(["collect", str(own), "--run", str(run)]) == 0
    assert set(kept) <= set(said_in(run))
    total = server.calls
    assert main(["collect", str(own), "--run", str(tmp_path / "unbroken")]) == 0
    assert total <= server.calls - total + IN_FLIGHT
    assert said_in(run) == said_in(tmp_path / "unbroken")


@pytest.mark.parametrize("kilobytes", [4, 120, 260])
def test_on_a_full_disk_a_run_stops_with_the_reason_and_goes_on_once_there_is_room(
    kilobytes: int, server: MockServer, tmp_path: Path
) -> None:
    own = written(tmp_path, server)
    with small_disk(tmp_path, kilobytes) as disk:
        line = refused(collect(own, disk / "run"))
        assert "free space" in line.lower()
        assert "what was recorded before is safe" in line
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        check_it_goes_on(own, disk / "run", server, tmp_path)


def test_where_files_may_not_grow_a_run_stops_with_the_reason_and_goes_on(server: MockServer, tmp_path: Path) -> None:
    own, run = written(tmp_path, server), tmp_path / "run"
    line = refused(collect(own, run, limit=150_000))
    assert "the journal cannot be written" in line
    assert "what was recorded before is safe" in line
    check_it_goes_on(own, run, server, tmp_path)


def test_a_run_in_a_folder_that_cannot_be_written_is_refused_by_name_and_stays_whole(server: MockServer) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own, run = written(folder, server, tasks=3), folder / "run"
        assert main(["collect", str(own), "--run", str(run)]) == 0
        before, calls = said_in(run), server.calls
        folders = [folder, run, run / "journal"]
        for place in folders:
            place.chmod(0o555)
        (run / "lock").chmod(0o444)
        line = refused(collect(own, run, user=65534))
        for place in folders:
            place.chmod(0o755)
        assert str(run) in line
        assert "Permission denied" in line
        assert "permissions" in line
        (run / "lock").chmod(0o644)
        assert main(["collect", str(own), "--run", str(run)]) == 0
        assert said_in(run) == before
        assert server.calls == calls


def test_a_journal_of_a_newer_version_is_refused_before_anybody_is_asked(
    server: MockServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, run = written(tmp_path, server, tasks=3), tmp_path / "run"
    assert main(["collect", str(own), "--run", str(run)]) == 0
    before, calls = said_in(run), server.calls
    (file,) = (run / "journal").glob("*.db")
    age(file, 2)
    raw = file.read_bytes()
    data = yaml.safe_load(own.read_text())
    data["collect"]["concurrency"] = 1
    own.write_text(yaml.safe_dump(data))
    (run / "collected.jsonl").unlink()
    assert main(["collect", str(own), "--run", str(run)]) == 2
    assert f"{file}: written by a newer Pilotfish (format 2); upgrade" in capsys.readouterr().err
    assert file.read_bytes() == raw
    age(file, 1)
    assert main(["collect", str(own), "--run", str(run)]) == 0
    assert said_in(run) == before
    assert server.calls == calls


def age(file: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (str(version),))
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_a_second_run_in_one_folder_is_refused_and_the_first_ends_as_it_would(
    server: MockServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, run = written(tmp_path, server), tmp_path / "run"
    codes: list[int] = []

    def second(body: dict[str, object]) -> str:
        """While the first waits for this answer, it holds the folder."""
        if not codes:
            codes.append(main(["collect", str(own), "--run", str(run)]))
        return answer(body)

    server.reply = second
    first = collect(own, run)
    _, said = first.communicate(timeout=600)
    assert first.returncode == 0, said
    assert codes == [2]
    assert f"{run}: another process is at work in this run; wait for it or stop it" in capsys.readouterr().err
    assert server.calls == len(said_in(run)) == 30 * 2 * 2
    lines = [json.loads(line) for line in (run / "collected.jsonl").read_text().splitlines()]
    assert len({(line["task"], line["set"]) for line in lines}) == len(lines) == 30 * 2
