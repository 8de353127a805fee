"""A run to look into: groups of training with rewards, a holdout over steps, an evaluation, curves; and its pages.

    run = recorded(tmp_path, said=lambda member, asked: "…")
    with served(run) as address: ...

Everything is played by scripted members, so that any words can be put into their mouths.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import uvicorn

from pilotfish import Sampling, Scopes, ScriptedEngine, Task, Team, Verdict, play
from pilotfish.episode import Episode, Journal, fork
from pilotfish.recipe import parse_recipe
from pilotfish.run import Run, append
from pilotfish.team import Member
from pilotfish.topology import Topology, hint, solo
from pilotfish.train.row import Row, RowId
from pilotfish.train.row_record import FILE, lines
from pilotfish.view.app import app, listen

GROUP = 4
TASKS = [Task(f"t{n}", f"What is {n} + 1?", str(n + 1)) for n in range(4)]
HELD = [Task(f"held {n}", f"What is {n} + 2?", str(n + 2)) for n in range(2)]
Said = Callable[[str, str], str]
"""What is said, by member and by the last message."""


def plain(member: str, asked: str) -> str:
    return f"{member} says {len(asked)}"


async def judge(task: Task, answer: str, form: str) -> Verdict:
    """With a hint even answers are right, without one odd ones; of the last task nobody can say with a hint."""
    hinted = "Hint" in answer
    if hinted and task is TASKS[-1]:
        return Verdict(None, None, "the gold answer is none")
    return Verdict(float((int(task.answer) % 2 == 0) == hinted), answer[:20], "as it was scripted")


class Recorder:
    """Plays episodes into a run's journal."""

    def __init__(self, run: Run, said: Said) -> None:
        self.run = run
        self.journal: Journal = run.journal()
        sampling = Sampling(temperature=1.0, max_tokens=100_000)
        members = {
            name: Member(name, "scripted", trainee=name == "collaborator", sampling=sampling)
            for name in ("collaborator", "actor")
        }
        self.team = Team(
            members,
            {
                "collaborator": ScriptedEngine(lambda m, s, seed: f"{said('collaborator', m[-1]['content'])} {seed}"),
                "actor": ScriptedEngine(
                    lambda m, s, seed: f"{'Hint' if 'Hint' in str(m) else ''}{said('actor', m[-1]['content'])}"
                ),
            },
        )

    def play(self, task: Task, topology: Topology, scope: str, **more: Any) -> Awaitable[Episode]:
        return play(task, topology, self.team, self.journal, Scopes(scope, seed=1), judge=judge, **more)

    async def step(self, step: int, tasks: Sequence[Task], rewards: Callable[[int], float | None]) -> None:
        """A step of training: a group a task, what each row was worth, and the actor alone."""
        for task in tasks:
            scope = f"train/{step}/{task.id}/0"
            played = [await self.play(task, hint, scope, salts=fork(0, row)) for row in range(GROUP)]
            await self.play(task, solo, f"alone/{task.id}")
            id = RowId(task.id)
            rows = [Row(id, [0], [0], [0.0], rewards(at), episodes=(one,)) for at, one in enumerate(played)]
            append(self.run.folder / FILE, lines(rows, step, GROUP, "group"))
        figures = {"reward": 0.25 * step, "trainee/leak_rate": 0.1, "tokens/actor": 90}
        self.run.log({"kind": "step", "step": step + 1, **figures})

    async def holdout(self, step: int) -> None:
        for task in HELD:
            await self.play(task, hint, f"eval/holdout/{task.id}/0", arm=f"step {step}")
        self.run.log({"kind": "holdout", "step": step, "holdout/accuracy": 0.5})

    async def evaluated(self, task: Task, arm: str) -> None:
        """One task of an evaluation: `solo`, or the team under any other name."""
        await self.play(task, solo if arm == "solo" else hint, f"eval/sums/{task.id}/0", arm=arm)


def begun(folder: Path) -> Run:
    seat = {"engine": "openai", "base_url": "http://127.0.0.1:9", "model": "frozen"}
    team = {"collaborator": {"model": "small", "train": "full"}, "actor": seat}
    return Run(folder / "run", parse_recipe({"team": team, "topology": "hint"}))


def recorded(folder: Path, said: Said = plain) -> Run:
    """Two steps on two tasks each, the holdout before, between and after, an evaluation on four."""
    run = begun(folder)
    recorder = Recorder(run, said)

    async def all_of_it() -> None:
        for step in range(2):
            await recorder.holdout(step)
            await recorder.step(step, TASKS[:2], lambda row: None if row == 3 else float(row % 2))
        await recorder.holdout(2)
        for task in TASKS:
            await recorder.evaluated(task, "solo")
            await recorder.evaluated(task, "trained")

    asyncio.run(all_of_it())
    recorder.journal.close()
    return run


@contextmanager
def served(run: Run) -> Iterator[str]:
    """The address of a run's pages."""
    listening = listen(0)
    server = uvicorn.Server(uvicorn.Config(app(run), log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


def asked(address: str, name: str) -> Any:
    with urlopen(f"{address}data/{name}", timeout=100) as answer:
        return json.loads(answer.read())
