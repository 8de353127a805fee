"""`kill -9` at any call loses at most the calls in flight.

python tests/test_episode_kill.py FOLDER LOG N     # plays; kills itself at the N-th call (0: never)
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.engine.base import Completion
from pilotfish.episode import Episode, Journal, Scopes, Team, fork, play
from pilotfish.task import Task
from pilotfish.team import Member, Usage
from pilotfish.topology import Topology, topology
from pilotfish.verify.verdict import Verdict

EPISODES, CALLS = 6, 6 * 5 + 2
"""Six rows of two groups: the draft is shared by a group, the other five calls are a row's own."""
AT_ONCE = 6 * 3
"""Most calls in flight."""


class Logging:
    """Writes each call's begin to a file, and kills its own process at the n-th."""

    identity, version = None, 0

    def __init__(self, log: Path, kill_at: int) -> None:
        self.file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.kill_at, self.begun = kill_at, 0

    async def complete(self, messages, sampling, seed):
        self.begun += 1
        os.write(self.file, b"begin\n")
        if self.begun == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(seed % 7):
            await asyncio.sleep(0)
        return Completion(f"word {seed}", "stop", Usage())

    async def close(self) -> None: ...


def busy(log: Path) -> Topology:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @topology
    async def busy(task: Task, room):
        async def ask(member: str, words: str) -> str:
            turn = await room.ask(member, words)
            os.write(file, f"seen-{turn.key}\n".encode())
            return turn.text

        advice = await ask("pilot", await ask("warm", task.question))
        answers = await room.gather(*(ask("warm", advice) for _ in range(3)))
        return await room.ask("warm", str(answers))

    return busy


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(1.0)


async def play_all(folder: Path, engine: Logging, log: Path) -> list[Episode]:
    members = {"pilot": Member("pilot", "scripted", trainee=True), "warm": Member("warm", "scripted")}
    team = Team(members, dict.fromkeys(members, engine))
    record = Journal(folder)
    plays = [
        play(
            Task(f"t{row % 2}", f"question {row % 2}", "4"),
            busy(log),
            team,
            record,
            Scopes(f"t{row % 2}"),
            judge=judge,
            salts=fork(0, row),
        )
        for row in range(EPISODES)
    ]
    return list(await asyncio.gather(*plays))


def child(folder: Path, log: Path, kill_at: int) -> int:
    command = [sys.executable, __file__, str(folder), str(log), str(kill_at)]
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


@pytest.mark.parametrize("kill_at", [1, 4, 13, 22, CALLS])
def test_a_kill_loses_at_most_the_calls_in_flight(tmp_path: Path, kill_at: int) -> None:
    folder, log = tmp_path / "journal", tmp_path / "log"
    assert child(folder, log, kill_at) == -signal.SIGKILL
    said = log.read_text().split()
    recorded = {f"seen-{turn.key}" for turn in Journal(folder).turns()}
    assert said.count("begin") == kill_at
    assert {word for word in said if word.startswith("seen")} <= recorded
    lost = kill_at - len(recorded)
    assert 0 < lost <= AT_ONCE

    episodes = asyncio.run(play_all(folder, Logging(log, 0), log))
    assert log.read_text().split().count("begin") == CALLS + lost
    assert [episode.unused for episode in episodes] == [()] * EPISODES
    unbroken = asyncio.run(play_all(tmp_path / "other", Logging(log, 0), log))
    assert [episode.answer for episode in episodes] == [episode.answer for episode in unbroken]


def test_killed_again_and_again_a_run_still_ends(tmp_path: Path) -> None:
    folder, log = tmp_path / "journal", tmp_path / "log"
    kills = 0
    while child(folder, log, AT_ONCE + 2) == -signal.SIGKILL:  # more than may be lost, so that each run gets on
        kills += 1
        assert kills < 20
    record = Journal(folder)
    assert len(list(record.episodes())) == EPISODES
    assert len(list(record.turns())) == CALLS
    assert log.read_text().split().count("begin") <= CALLS + kills * AT_ONCE
    assert kills >= 2


if __name__ == "__main__":
    asyncio.run(play_all(Path(sys.argv[1]), Logging(Path(sys.argv[2]), int(sys.argv[3])), Path(sys.argv[2])))
