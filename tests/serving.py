"""A served team for tests: scripted members behind a real HTTP server on a free loopback port.

    with served(hint, seats(collaborator=["Add."], actor=["4"])) as server:
        server.post("/v1/chat/completions", {"messages": [user("2 + 2?")]}).json["choices"]

The server runs in a thread, as `pilotfish serve` runs it; requests go over sockets, so that they
can be broken off.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.applications import Starlette

from pilotfish.episode import Journal, Team
from pilotfish.serve.app import app_of
from pilotfish.serve.asked import Manner
from pilotfish.serve.config import ServeConfig
from pilotfish.serve.door import server_of
from pilotfish.serve.keys import Keys
from pilotfish.serve.offers import Offer
from pilotfish.topology import Topology, solo
from seated import judge

MANNER = Manner("Box it.", "exact")
LIMIT_S = 100.0
"""Whatever a test waits for comes long before, also on a machine that has much else to do."""
Body = dict[str, Any]


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Names and fields of server-sent events; `[DONE]` as a string."""
        blocks = [block for block in self.raw.decode().split("\n\n") if block and not block.startswith(":")]
        return [_event(block) for block in blocks]


def _event(block: str) -> tuple[str, Any]:
    lines = dict(line.split(": ", 1) for line in block.split("\n"))
    return lines.get("event", ""), "[DONE]" if lines["data"] == "[DONE]" else json.loads(lines["data"])


@dataclass
class Served:
    """A server that runs."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Body | bytes, **headers: str) -> Answer:
        return self.request("POST", path, body, headers)

    def chat(self, question: str, **fields: Any) -> Answer:
        return self.post("/v1/chat/completions", {"messages": [user(question)], **fields})

    def request(self, method: str, path: str, body: Body | bytes | None, headers: Mapping[str, str]) -> Answer:
        """A header's name is written with `_` in place of `-`."""
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            line.request(method, path, sent, {"Content-Type": "application/json", **self.headers, **named})
            response = line.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            line.close()

    def begin(self, path: str, body: Body) -> socket.socket:
        """A request whose answer nobody has read yet; closing the socket leaves it."""
        sent = json.dumps(body).encode()
        line = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        line.sendall(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        return line


def user(text: str) -> Body:
    return {"role": "user", "content": text}


@contextmanager
def running(app: Starlette) -> Iterator[Served]:
    """An application behind the server that `pilotfish serve` uses."""
    door = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = server_of(app)
    thread = threading.Thread(target=server.run, args=([door],), daemon=True)
    thread.start()
    try:
        yield Served(door.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(LIMIT_S)
        door.close()
        assert not thread.is_alive()


@contextmanager
def served(
    topology: Topology,
    team: Team,
    *,
    trainee: str | None = None,
    keys: Keys | None = None,
    record: Journal | None = None,
    **config: Any,
) -> Iterator[Served]:
    """A team, and each of its members, as models."""
    seated = {name: replace(member, trainee=name == trainee) for name, member in team.members.items()}
    team = Team(seated, team.engines)
    offers = {name: Offer(name, solo.bind(member=name), team) for name in seated}
    offers["team"] = Offer("team", topology, team, trained=trainee is not None)

    async def close() -> None:
        for engine in team.engines.values():
            await engine.close()

    limits = ServeConfig(**config)
    app = app_of(offers, MANNER, limits, keys or Keys(), judge=judge, record=record, close=close)
    with running(app) as server:
        yield server


def until(true: Callable[[], bool]) -> bool:
    """Whether something comes true in time."""
    last = time.monotonic() + LIMIT_S
    while not true() and time.monotonic() < last:
        threading.Event().wait(0.005)
    return true()
