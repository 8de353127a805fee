"""`kill -9` at random moments of train, eval and collect: the run that goes on ends where an unbroken one does, and the
server is asked at most what was in flight at each kill once more.

The short form runs with all tests; `pytest -m kill` also runs the long one: 20 kills of each.

    python tests/test_kill.py      # where runs are killed: a job a line as JSON, each done in a child of its own
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import collecting
from board import board, said, seat, tasks_file
from mock_server import Call, MockServer
from pilotfish import Journal, Run
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.recipe_file import load_recipe
from pilotfish.train.checkpoints import newest_checkpoint

pytestmark = [pytest.mark.kill, pytest.mark.timeout(3000)]

LATENCY = 0.002
SHORT, LONG = 3, 20
"""Kills of one run."""
Figures = dict[str, Any]


# What is killed: one child after another, so that torch is imported once.


def nursery() -> None:
    import torch

    import pilotfish.train.grpo  # noqa: F401

    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        if not (child := os.fork()):
            _be_the_child(**json.loads(line))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _be_the_child(work: str, recipe: str, folder: str, cache: str) -> None:
    os.dup2(2, 1)
    os.environ["PILOTFISH_CACHE"] = cache
    try:
        {"eval": _evaluate, "collect": _collect, "train": _train}[work](load_recipe(Path(recipe)), Path(folder))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _evaluate(recipe: Recipe, folder: Path) -> None:
    from pilotfish import evaluate

    with Run(folder, recipe) as run:
        evaluate(recipe, run)


def _collect(recipe: Recipe, folder: Path) -> None:
    from pilotfish import collect

    collect(recipe, folder)


def _train(recipe: Recipe, folder: Path) -> None:
    from pilotfish.train.main import train

    train(recipe, folder)


class Nursery:
    """Starts one child at a time and says how it ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._read() == "ready"

    def begin(self, **job: str) -> int:
        """The child's process id."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self._read())

    def end(self) -> int:
        """The child's exit code, once it has ended."""
        return int(self._read())

    def _read(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command, pipe = [sys.executable, __file__], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        yield Nursery(process)
        process.kill()


# Who kills


class Assassin:
    """Kills a process a little after a server was asked for the n-th time."""

    def __init__(self) -> None:
        self.at, self.delay, self.victim = sys.maxsize, 0.0, 0

    def latency(self, call: Call) -> float:
        """Asked by the server as a call comes in."""
        if call.number >= self.at:
            self.at = sys.maxsize
            asyncio.get_running_loop().call_later(self.delay, self._kill)
        return LATENCY

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.victim, signal.SIGKILL)


@dataclass
class Scene:
    """A server, a recipe, and where its runs are."""

    work: str
    data: Callable[[Path, str, int], Recipe]
    """Folder, the server's base URL, kills -> a recipe that makes enough calls for them."""
    reply: Callable[[dict[str, Any]], str]
    places: int
    """Most calls in flight."""
    late: float
    """Most seconds between the call that brings a kill, and the kill."""
    report: Callable[[Path], Figures]


def unbroken_and_killed(scene: Scene, children: Nursery, folder: Path, kills: int, seed: int) -> tuple[Path, Path]:
    """Folders of two runs of one recipe, once it is seen that neither asked what it need not have asked."""
    assassin = Assassin()
    with MockServer(reply=scene.reply, latency=assassin.latency) as server:
        recipe = scene.data(folder, server.base_url, kills)
        (folder / "recipe.yaml").write_text(recipe.dump())

        def begin(name: str) -> int:
            places = {"folder": str(folder / name), "cache": str(folder / f"{name}-cache")}
            return children.begin(work=scene.work, recipe=str(folder / "recipe.yaml"), **places)

        begin("unbroken")
        assert children.end() == 0
        needed, before = server.calls, server.calls
        assert needed == recorded(folder / "unbroken", recipe)
        draw = random.Random(seed)
        moments = sorted(draw.sample(range(1, int(0.75 * needed)), kills))  # so late that it may end first is too late
        for number, moment in enumerate(moments, start=1):
            lost = server.calls - before - safe(folder / "killed", recipe)
            assassin.victim, assassin.delay = begin("killed"), draw.uniform(0, scene.late)
            assassin.at = before + lost + moment
            assert children.end() == -signal.SIGKILL, f"not killed at call {moment} of {needed}"
            asked = server.calls - before
            assert asked - safe(folder / "killed", recipe) <= number * scene.places
        begin("killed")
        assert children.end() == 0
        assert server.calls - before <= needed + kills * scene.places
        assert recorded(folder / "killed", recipe) == needed
        told, calls = scene.report(folder / "killed"), server.calls
        begin("killed")
        assert children.end() == 0
        assert server.calls == calls
        assert scene.report(folder / "killed") == told
    return folder / "unbroken", folder / "killed"


def recorded(folder: Path, recipe: Recipe) -> int:
    """How many answers of members behind the server are in a run's journal, each as often as it is there."""
    return len(keys(folder / "journal", recipe))


def safe(folder: Path, recipe: Recipe) -> int:
    """How many need not be asked again: an answer at temperature 0 is kept for other runs before the run's own record
    has it."""
    return len({*keys(folder / "journal", recipe), *keys(folder.with_name(f"{folder.name}-cache") / "answers", recipe)})


def keys(journal: Path, recipe: Recipe) -> list[str]:
    """Of the answers of members behind the server, in all files of a folder."""
    found: list[str] = []
    for file in journal.glob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            of_others = "SELECT key FROM turns WHERE outcome = 'answered' AND member IS NOT ?"
            found += [key for (key,) in connection.execute(of_others, (recipe.trainee,))]
    return found


def turns(folder: Path) -> dict[str, str]:
    """What was said, by the calls' keys."""
    journal = Journal(folder / "journal", writable=False)
    found = {turn.key: turn.text for turn in journal.turns()}
    journal.close()
    return found


def timeless(value: Any) -> Any:
    """Figures without seconds, which differ between runs that both asked."""
    if isinstance(value, dict):
        return {key: timeless(entry) for key, entry in value.items() if "seconds" not in key and key != "written"}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value


# eval


def evaluation(folder: Path, base_url: str, kills: int) -> Recipe:
    data = board(folder, base_url, tasks=6 + kills, samples=2)
    data["team"]["actor"]["concurrency"] = 4
    data["evaluate"]["models"] = {"big": {"actor": {"model": "big"}}}
    return parse_recipe(data)


def evaluated(folder: Path) -> Figures:
    """All that an evaluation wrote but the time of day, seconds included: they come from the journal."""
    files = {file.name: file.read_text() for file in folder.glob("results*.csv")}
    files["results.md"] = (folder / "results.md").read_text()
    files["scores.jsonl"] = (folder / "scores.jsonl").read_text()
    record = json.loads((folder / "results.json").read_text())
    return {**files, "results.json": {name: part for name, part in record.items() if name != "written"}}


EVAL = Scene("eval", evaluation, said, places=4, late=0.02, report=evaluated)


def check_eval(children: Nursery, folder: Path, kills: int, seed: int) -> None:
    unbroken, killed = unbroken_and_killed(EVAL, children, folder, kills, seed)
    ours, theirs = evaluated(killed), evaluated(unbroken)
    assert ours.keys() == theirs.keys()
    assert timeless(ours["results.json"]) == timeless(theirs["results.json"])
    scores = [[timeless(json.loads(line)) for line in one["scores.jsonl"].splitlines()] for one in (ours, theirs)]
    assert scores[0] == scores[1]
    assert turns(killed) == turns(unbroken)


# collect


def collection(folder: Path, base_url: str, kills: int) -> Recipe:
    return collecting.recipe(folder, base_url, tasks=6 + 2 * kills, sets=2, collect={"concurrency": 4})


def collected(folder: Path) -> Figures:
    """The store: what it is of, and each line."""
    lines = [json.loads(line) for line in (folder / "collected.jsonl").read_text().splitlines()]
    places = {f"{line['task']} {line['set']} {line['round']}": line for line in lines}
    assert len(places) == len(lines)
    return {"manifest": json.loads((folder / "store.json").read_text()), "lines": places}


COLLECT = Scene("collect", collection, collecting.answer, places=8, late=0.02, report=collected)


def check_collect(children: Nursery, folder: Path, kills: int, seed: int) -> None:
    unbroken, killed = unbroken_and_killed(COLLECT, children, folder, kills, seed)
    assert collected(killed) == collected(unbroken)
    assert turns(killed) == turns(unbroken)


# train

TOLERANCE = 1e-5
"""Of weights between the two runs: a step that is played again runs in other batches, whose sums round otherwise."""


def training(folder: Path, base_url: str, kills: int) -> Recipe:
    from tiny import save_tiny

    model = str(save_tiny(folder / "model"))
    config = json.loads((folder / "model" / "config.json").read_text())
    (folder / "model" / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    trainee = {"model": model, "dtype": "float32", "train": "full", "sampling": {"temperature": 0, "max_tokens": 4}}
    steps = {"steps": 4 + kills, "group_size": 4, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 8}
    pace = {"learning_rate": 1e-3, "warmup_steps": 0, "evaluate_every": 4, "save_every": 2, "patience": None}
    return parse_recipe(
        {
            "tasks": {"train": tasks_file(folder / "tasks.jsonl", 10), "holdout": 2},
            "team": {"collaborator": trainee, "actor": seat(base_url, temperature=0, concurrency=4)},
            "topology": "hint",
            "train": {**steps, **pace},
            "evaluate": {"against": ["solo"]},
        }
    )


def trained(folder: Path) -> Figures:
    """What was logged of each step, to the sixth digit, and which step did best."""
    run = Run(folder)
    same = ("reward", "team/accuracy", "trainee/tokens", "holdout/accuracy", "flips/wrong_to_right")
    rows = [(row["kind"], row["step"], *(round(row[name], 6) for name in same if name in row)) for row in run.logged()]
    return {"rows": rows, "best": run.best_step, "finished": run.state("finished")}


TRAIN = Scene("train", training, said, places=4, late=0.08, report=trained)


def check_train(children: Nursery, folder: Path, kills: int, seed: int) -> None:
    import torch
    from safetensors.torch import load_file

    unbroken, killed = unbroken_and_killed(TRAIN, children, folder, kills, seed)
    assert trained(killed) == trained(unbroken)
    assert turns(killed) == turns(unbroken)
    last = [newest_checkpoint(Run(folder).checkpoints) for folder in (killed, unbroken)]  # `best` may be untrained
    ours, theirs = (load_file(checkpoint / "model.safetensors") for checkpoint in last if checkpoint)
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=TOLERANCE)


CHECKS = {"eval": check_eval, "collect": check_collect, "train": check_train}


@pytest.mark.parametrize("work", CHECKS)
def test_killed_at_random_moments_it_ends_as_an_unbroken_run_does(work: str, children: Nursery, tmp_path: Path) -> None:
    CHECKS[work](children, tmp_path, SHORT, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("work", CHECKS)
def test_killed_20_times_it_ends_as_an_unbroken_run_does(work: str, children: Nursery, tmp_path: Path) -> None:
    CHECKS[work](children, tmp_path, LONG, seed=2)


if __name__ == "__main__":
    nursery()
