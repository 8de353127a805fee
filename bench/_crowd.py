"""A crowd of clients for the soak of the server: what each was answered, and what the server is left with.

lost = asyncio.run(soak("http://127.0.0.1:8000", clients=200, minutes=10))
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from typing import Any

import aiohttp

GROWTH_MB = 30
"""Of the server's memory after the first lap, which is no leak."""


class Clients:
    """Clients that ask without a pause, and what became of it."""

    def __init__(self, url: str, session: aiohttp.ClientSession, seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._url = url
        self._session = session
        self._random = random.Random(seed)

    async def ask_until(self, until: float) -> None:
        while time.monotonic() < until:
            leaves = self._random.random() < 0.1
            try:
                async with asyncio.timeout(self._random.random() if leaves else 120):
                    await self._ask()
            except TimeoutError:
                self._note("left" if leaves else "no answer in 120 s", leaves)
            except aiohttp.ClientError as error:
                self._note(f"broken off: {error!r}", False)

    async def _ask(self) -> None:
        kind = self._random.choice(("plain", "streamed", "watched"))
        body: dict[str, Any] = {"messages": [{"role": "user", "content": f"What is {self._random.random()}?"}]}
        body |= {"plain": {"n": 2}, "streamed": {"stream": True}, "watched": {"models": ["team", "actor"]}}[kind]
        path = "/v1/team/episodes" if kind == "watched" else "/v1/chat/completions"
        async with self._session.post(self._url + path, json=body) as answer:
            raw = await answer.text()
            reason = _reason(kind, answer.status, raw)
            retry = "Retry-After" in answer.headers or answer.status != 503
        self._note(reason or f"{kind}: {answer.status} {raw[-200:]!r}", bool(reason) and retry)
        if answer.status == 503:
            await asyncio.sleep(2 * self._random.random())

    def _note(self, outcome: str, right: bool) -> None:
        self.outcomes[outcome if right else "wrong"] += 1
        if not right:
            self.wrong.append(outcome)


def _reason(kind: str, status: int, raw: str) -> str:
    """`answered`, or why not, as the server says; empty where it says neither."""
    ends = {"plain": '"usage"', "streamed": "data: [DONE]", "watched": "event: done"}
    if status == 200 and ends[kind] in raw:
        return "answered"
    found = re.findall(r'"code":\s*"(\w+)"', raw)
    return str(found[-1]) if found else ""


async def left(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Memory in MB, open files and tasks of the server, of which nobody asks anything."""
    async with session.get(f"{url}/metrics") as answer:
        page = await answer.text()
    names = ("process_resident_memory_bytes", "process_open_fds", "pilotfish_tasks", "pilotfish_episodes_playing")
    memory, files, tasks, playing = (float(re.findall(rf"^{name} (\S+)", page, re.M)[0]) for name in names)
    return {"MB": memory / 2**20, "files": files, "tasks": tasks, "playing": playing}


async def quiet(url: str) -> dict[str, float]:
    """What the server holds once all that was asked has ended and idle connections are closed."""
    for _ in range(150):
        async with aiohttp.ClientSession() as session:
            found = await left(session, url)
        if not found["playing"]:
            break
        await asyncio.sleep(1)
    await asyncio.sleep(20)  # until the idle connections to the members are closed
    async with aiohttp.ClientSession() as session:
        return await left(session, url)


async def lap(url: str, clients: int, seconds: float, seed: int) -> tuple[Counter[str], list[str]]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        crowd = Clients(url, session, seed)
        until = time.monotonic() + seconds
        await asyncio.gather(*(crowd.ask_until(until) for _ in range(clients)))
    return crowd.outcomes, crowd.wrong


async def soak(url: str, clients: int, minutes: float) -> int:
    """Laps of a minute; how much was lost or left behind."""
    first: dict[str, float] = {}
    lost, found = 0, {}
    for number in range(max(2, round(minutes))):
        outcomes, wrong = await lap(url, clients, 60 if minutes >= 1 else 60 * minutes, number)
        found = await quiet(url)
        first = first or found
        held = ", ".join(f"{value:.0f} {name}" for name, value in found.items())
        print(f"lap {number}: {json.dumps(dict(outcomes))}; left: {held}", flush=True)
        for line in wrong[:3]:
            print(f"  wrong: {line}")
        lost += len(wrong)
    grown = {name: found[name] - first[name] for name in found}
    print(f"grown since the first lap: {', '.join(f'{value:+.0f} {name}' for name, value in grown.items())}")
    leaks = (grown["MB"] > GROWTH_MB) + (grown["files"] > 8) + (grown["tasks"] > 0)
    print(f"value serve_soak_lost {lost + leaks}")
    return lost + leaks
