"""Clients that mean no good, or read slowly, or come all at once; and a server that is told to stop while they wait."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from typing import Any

import pytest

from pilotfish import Sampling, ScriptedEngine
from pilotfish.serve import door, stream
from pilotfish.team import Messages
from pilotfish.topology import hint
from seated import seats
from serving import LIMIT_S, served, until, user
from test_serve_stream import Gate

CHAT = "/v1/chat/completions"


def team(**more: Any) -> Any:
    return seats(**{"collaborator": lambda m, s, seed: "Add.", "actor": lambda m, s, seed: "4", **more})


def heard(line: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    whole = b""
    while piece := line.recv(65536):
        whole += piece
    line.close()
    return whole


# Bodies


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/team/episodes"])
@pytest.mark.parametrize("name", ["messages", "prompt", "stop"])
def test_a_body_of_nothing_but_mistakes_is_read_up_to_the_first(path: str, name: str) -> None:
    with served(hint, team()) as server:
        began = time.process_time()
        answer = server.post(path, f'{{"{name}": [{"1," * 450_000}1]}}'.encode())
        took = time.process_time() - began
    assert answer.status == 400
    assert len(answer.raw) < 1000
    assert took < 1  # half a million complaints took three, and the first one a hundredth


def test_a_made_up_field_is_not_repeated_at_length() -> None:
    with served(hint, team()) as server:
        assert len(server.chat("?", **{"k" * 100_000: 1}).raw) < 1000


def test_a_prompt_in_braces_reaches_the_members_as_it_was_written() -> None:
    strange = "{question} {0} {{x}} %s <|im_end|>"
    told: list[Messages] = []
    with served(hint, team(actor=lambda m, s, seed: told.append(m) or "4")) as server:
        talk = [{"role": "system", "content": strange}, user(strange), {"role": "assistant", "content": strange}]
        assert server.post(CHAT, {"messages": [*talk, user(strange)]}).status == 200
    assert [message["content"] for message in told[0][:3]] == [strange] * 3
    assert told[0][3]["content"].startswith(strange)


# Answers


def test_an_event_is_one_line_for_clients_that_know_other_line_ends() -> None:
    said = "a\u2028b\u2029c\x85d\ud800 \U0001f41f"
    with served(hint, team(actor=lambda m, s, seed: said)) as server:
        streamed = server.chat("?", stream=True)
        watched = server.post("/v1/team/episodes", {"messages": [user("?")]})
    assert streamed.raw.isascii()
    assert "".join(event["choices"][0]["delta"].get("content", "") for _, event in streamed.events[:-1]) == said
    assert dict(watched.events)["verdict"]["answer"] == said


@pytest.mark.parametrize("odd", [asyncio.CancelledError(), ExceptionGroup("/home/me", [ValueError("secret")])])
def test_an_engine_that_fails_in_an_odd_way_gives_an_error_like_any_other(odd: BaseException) -> None:
    def break_down(messages: Messages, sampling: Sampling, seed: int) -> str:
        raise odd

    with served(hint, team(collaborator=break_down)) as server:
        for answer in (server.chat("?"), server.chat("?", stream=True)):
            assert (answer.status, answer.error) == (500, "internal_error")
            assert b"secret" not in answer.raw
        watched = server.post("/v1/team/episodes", {"messages": [user("?")]})
    assert watched.events[-1][0] in ("error", "done")
    assert b"internal_error" in watched.raw


def test_answers_of_one_request_share_an_outage_too() -> None:
    asked: list[int] = []
    away = ScriptedEngine(["x"], fail=lambda m, s, seed: asked.append(seed) or True)
    with served(hint, team(collaborator=away)) as server:
        assert server.chat("?", n=4).error == "member_unavailable"
    assert len(asked) == 1


# Connections


def test_two_hundred_clients_that_start_together_are_all_answered() -> None:
    with served(hint, team()) as server:
        lines = [server.begin(CHAT, {"messages": [user("?")]}) for _ in range(200)]
        assert {line.recv(12) for line in lines} == {b"HTTP/1.1 200"}
        for line in lines:
            line.close()


def test_who_never_says_what_it_wants_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEAD_S", 1.5)  # far longer than the last client takes, that says it at once
    with served(hint, team()) as server:
        silent = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S)
        slow = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S)
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: ")
        assert heard(silent) == heard(slow) == b""
        kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
        for _ in range(2):
            kept.request("GET", "/health")
            assert kept.getresponse().read() == b'{"status":"ok"}'
        kept.sock.sendall(b"G")
        assert kept.sock.recv(1) == b""


def test_a_slow_client_gets_the_time_that_its_team_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEAD_S", 1.0)
    gate = Gate()
    with served(hint, team(collaborator=gate)) as server:
        line = server.begin(CHAT, {"messages": [user("?")]})
        assert until(lambda: gate.asked == 1)
        line.settimeout(1.2)
        with pytest.raises(TimeoutError):
            line.recv(1)
        gate.let()
        line.settimeout(LIMIT_S)
        assert line.recv(12) == b"HTTP/1.1 200"
        line.close()


def test_a_client_that_does_not_read_holds_no_member_longer_than_a_request_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LAST_WORDS_S", 0.1)
    gate = Gate()

    class Chatty(ScriptedEngine):
        async def stream(self, messages: Any, sampling: Any, seed: int, on_text: Any) -> Any:
            on_text("word " * 4_000_000)
            return await self.complete(messages, sampling, seed)

    with served(hint, team(actor=Chatty(gate)), timeout_s=3, episodes=1) as server:
        line = server.begin(CHAT, {"messages": [user("?")], "stream": True})
        assert until(lambda: gate.asked == 1)
        assert until(lambda: gate.cancelled == 1)
        assert until(lambda: b"pilotfish_episodes_playing 0.0" in server.get("/metrics").raw)
        line.close()


def test_requests_that_come_in_a_row_are_answered_in_order() -> None:
    with served(hint, team(actor=lambda m, s, seed: m[-1]["content"][0])) as server:
        line = server.begin(CHAT, {"messages": [user("a")]})
        body = json.dumps({"messages": [user("b")]}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
        line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        whole = heard(line)
    assert whole.count(b"HTTP/1.1 200") == 2
    assert whole.index(b'"content":"a"') < whole.index(b'"content":"b"')


# The end


@pytest.mark.parametrize("streams", [False, True])
def test_a_server_that_is_told_to_stop_says_so_to_those_that_it_cannot_wait_for(
    streams: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door, "LEAVE_S", 0.2)
    monkeypatch.setattr(door, "LAST_WORDS_S", LIMIT_S)
    gate = Gate()
    with served(hint, team(collaborator=gate), keep_alive_s=0.01) as server:
        line = server.begin(CHAT, {"messages": [user("?")], "stream": streams})
        assert until(lambda: gate.asked == 1)
        if streams:
            assert line.recv(12) == b"HTTP/1.1 200"
    whole = heard(line)  # the end of the block stops the server
    assert b"server_stops" in whole
    assert b'"retry_after":15' in whole
    assert streams or whole.startswith(b"HTTP/1.1 503")
    assert gate.cancelled == 1
    assert not caplog.records
