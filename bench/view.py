"""The viewer: how long a large run takes to open, to list, and to show an episode and a group.

    python bench/view.py [--episodes 100000] [--keep FOLDER]

Makes a run of so many episodes, with turns, in groups of 8 and on a holdout, and asks the served pages for what a
browser asks for:

- `open_s`: from the start of the server to the page and the first lines of the list.
- `whole_s`: until the whole run is listed; filtering, sorting and scrolling then need no server.
- `refresh_ms`: what following the run costs when nothing is new.
- `episode_ms`, `group_ms`: one episode, and a group of 8, with all turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from pilotfish.engine.base import Completion
from pilotfish.episode import Episode, Journal, Turn
from pilotfish.episode.turn import Placed
from pilotfish.recipe import parse_recipe
from pilotfish.run import Run, append
from pilotfish.team import Messages, Sampling, Usage
from pilotfish.train.row_record import FILE, advantages
from pilotfish.verify.verdict import Verdict
from pilotfish.view.app import listen, serve

GROUP = 8
PORT = 7421
ASKED: Messages = [
    {"role": "user", "content": "A train leaves at nine and covers 60 miles an hour. How far is it at noon? " * 4}
]
WORDS = "Distance is speed times time, and from nine to noon there are three hours. " * 4


def turn(key: str, member: str, version: int, words: str, asker: str) -> Turn:
    done = Completion(words, "stop", Usage(180, 60), 0.4)
    return Turn(key, asker, member, version, ASKED, Sampling(), "answered", done, asker=asker)


def episode(group: int, row: int) -> Episode:
    """A row of a group of the topology hint: the trainee's words, then the actor's answer."""
    task, step = f"t{group % 500}", group // 16
    scope = f"train/{step}/{task}/0"
    id = f"{scope}|hint||0.{row}"
    hinted = turn(f"{id} hint", "collaborator", step, f"{WORDS} ({row})", id)
    answered = turn(f"{id} answer", "actor", 0, f"{WORDS} \\boxed{{{170 + row}}}", id)
    placed = (Placed((0,), hinted, 0, (f"0.{row}",)), Placed((1,), answered, 1, (f"0.{row}",), True))
    verdict = Verdict(float((group + row) % 3 == 0), str(170 + row))
    return Episode(id, task, "hint", scope, placed, answered.text, verdict, "collaborator", 1.0)


async def recorded(journal: Journal, groups: range) -> list[Episode]:
    """Groups of episodes, in the journal with their turns."""
    episodes = [episode(group, row) for group in groups for row in range(GROUP)]
    turns = [placed.turn for one in episodes for placed in one.turns]
    await asyncio.gather(*(journal.answer(one.key, partial(_given, one)) for one in turns))
    await asyncio.gather(*(journal.finish(one) for one in episodes))
    return episodes


async def _given(turn: Turn) -> Turn:
    return turn


def lines(episodes: list[Episode]) -> Iterator[dict[str, object]]:
    for start in range(0, len(episodes), GROUP):
        group = episodes[start : start + GROUP]
        rewards = [one.verdict.reward for one in group]
        about = {"step": 0, "decision": 0, "episodes": [one.id for one in group]}
        yield {**about, "rewards": rewards, "advantages": advantages(rewards, "group")}


def made(folder: Path, count: int) -> Run:
    seat = {"model": "bench", "engine": "openai", "base_url": "http://127.0.0.1:9"}
    team = {"collaborator": {"model": "bench", "train": "full"}, "actor": seat}
    run = Run(folder, parse_recipe({"team": team, "topology": "hint", "name": "bench"}))
    journal, groups = run.journal(), count // GROUP
    for start in range(0, groups, 100):
        append(run.folder / FILE, lines(asyncio.run(recorded(journal, range(start, min(groups, start + 100))))))
    journal.close()
    return run


def asked(name: str) -> bytes:
    with urlopen(f"http://127.0.0.1:{PORT}/{name}", timeout=60) as answer:
        return bytes(answer.read())


def measured(run: Run) -> None:
    began = time.perf_counter()
    threading.Thread(target=serve, args=(run, listen(PORT)), daemon=True).start()
    asked("")
    state = json.loads(asked("data/state"))
    rows = json.loads(asked("data/rows/0"))
    print(f"value open_s {time.perf_counter() - began:.2f}")
    count = len(rows["columns"]["mark"])
    seen = {0}
    while not state["whole"] or len(seen) < len(state["chunks"]):
        state = json.loads(asked("data/state"))
        for chunk in set(range(len(state["chunks"]))) - seen:
            count += len(json.loads(asked(f"data/rows/{chunk}"))["columns"]["mark"])
            seen.add(chunk)
    print(f"value whole_s {time.perf_counter() - began:.2f}")
    print(f"{count} episodes")
    marks = [str(mark) for mark in rows["columns"]["mark"][:GROUP]]
    print(f"value refresh_ms {milliseconds('data/state'):.1f}")
    print(f"value episode_ms {milliseconds(f'data/episodes?marks={marks[0]}'):.1f}")
    print(f"value group_ms {milliseconds('data/episodes?marks=' + ','.join(marks)):.1f}")


def milliseconds(name: str) -> float:
    """The best of five."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        asked(name)
        times.append(time.perf_counter() - began)
    return min(times) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="How long the viewer takes to open a large run.")
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="make the run here, or measure the one that is here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = args.keep or Path(place) / "run"
        measured(Run(folder) if (folder / "recipe.yaml").exists() else made(folder, args.episodes))


if __name__ == "__main__":
    main()
