"""`kill -9` at any call loses at most the calls in flight.

python tests/test_episode_kill.py FOLDER LOG N     # plays; kills itself at the N-th call (0: never)
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pilotfish.engine.base import Completion
from pilotfish.episode import Episode, Journal, Scopes, Team, fork, play
from pilotfish.task import Task
from pilotfish.team import Member, Usage
from pilotfish.topology import topology
from pilotfish.verify.verdict import Verdict

EPISODES, CALLS = 6, 6 * 5 + 2
"""Six rows of two groups: the draft is shared by a group, the other five calls are a row's own."""


class Logging:
    """Writes each call's begin and end to a file, and kills its own process at the n-th begin."""

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
        os.write(self.file, b"end\n")
        return Completion(f"word {seed}", "stop", Usage())

    async def close(self) -> None: ...


@topology
async def busy(task: Task, room):
    draft = await room.ask("warm", task.question)
    advice = await room.ask("pilot", draft.text)
    answers = await room.gather(*(room.ask("warm", advice.text) for _ in range(3)))
    return await room.ask("warm", str([answer.text for answer in answers]))


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(1.0)


async def play_all(folder: Path, engine: Logging) -> list[Episode]:
    members = {"pilot": Member("pilot", "scripted", trainee=True), "warm": Member("warm", "scripted")}
    team = Team(members, dict.fromkeys(members, engine))
    record = Journal(folder)
    plays = [
        play(
            Task(f"t{row % 2}", f"question {row % 2}", "4"),
            busy,
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
    before = Counter(log.read_text().split())
    in_flight = before["begin"] - before["end"]
    assert before["begin"] == kill_at
    assert len(list(Journal(folder).turns())) == before["end"]

    episodes = asyncio.run(play_all(folder, Logging(log, 0)))
    total = Counter(log.read_text().split())["begin"]
    assert total == CALLS + in_flight
    assert [episode.unused for episode in episodes] == [()] * EPISODES
    unbroken = asyncio.run(play_all(tmp_path / "other", Logging(log, 0)))
    assert [episode.answer for episode in episodes] == [episode.answer for episode in unbroken]


def test_killed_again_and_again_a_run_still_ends(tmp_path: Path) -> None:
    folder, log = tmp_path / "journal", tmp_path / "log"
    kills = 0
    while child(folder, log, 20) == -signal.SIGKILL:  # above the 18 that may be in flight, so that each run gets on
        kills += 1
        assert kills < 20
    said = Counter(log.read_text().split())
    record = Journal(folder)
    assert len(list(record.episodes())) == EPISODES
    assert len(list(record.turns())) == said["end"] == CALLS
    assert kills >= 2


if __name__ == "__main__":
    asyncio.run(play_all(Path(sys.argv[1]), Logging(Path(sys.argv[2]), int(sys.argv[3]))))
