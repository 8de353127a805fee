"""Streams: real deltas of the final turn, signs of life, clients that leave, and a server that is full."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from mock_server import Failure, MockServer
from pilotfish import Sampling, ScriptedEngine, Task, Team, Turn, topology
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.serve.places import Places
from pilotfish.team import Messages, Price
from pilotfish.topology import hint, vote
from seated import seats
from serving import Answer, Served, served, until, user


class Gate:
    """A member that answers when it is let, and counts whom it lost."""

    def __init__(self, text: str = "the words") -> None:
        self.asked = self.cancelled = 0
        self.text = text
        self._open = False
        self._doors: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def let(self) -> None:
        self._open = True
        for loop, door in self._doors:
            loop.call_soon_threadsafe(door.set)

    async def __call__(self, messages: Messages, sampling: Sampling, seed: int) -> str:
        self.asked += 1
        try:
            if not self._open:
                self._doors.append((asyncio.get_running_loop(), asyncio.Event()))
                await self._doors[-1][1].wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.text


def texts(answer: Answer, index: int = 0) -> list[str]:
    """The pieces of a choice's text."""
    choices = [choice for _, said in answer.events if isinstance(said, dict) for choice in said.get("choices", [])]
    pieces = [choice for choice in choices if choice["index"] == index]
    return [text for choice in pieces if (text := choice.get("delta", choice).get("content", choice.get("text")))]


def streamed(server: Served, question: str = "2 + 2?", **fields: Any) -> Answer:
    return server.chat(question, stream=True, **fields)


def test_the_final_turn_comes_word_by_word_and_nothing_else_is_shown() -> None:
    with served(hint, seats(collaborator=["A secret hint."], actor=["It is  four \n"])) as server:
        answer = streamed(server, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert texts(answer) == ["It", " is", "  four", " \n"]
    assert b"secret" not in answer.raw
    first, *_, last, usage, done = [said for _, said in answer.events]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "It"}
    assert answer.raw.count(b'"role"') == 1
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["members"]["collaborator"]["completion_tokens"] == 3
    assert done == "[DONE]"


def test_words_are_sent_while_the_member_still_speaks() -> None:
    gate = Gate("first then")

    class Slow(ScriptedEngine):
        async def stream(self, messages: Any, sampling: Any, seed: int, on_text: Any) -> Any:
            on_text("first ")
            done = await self.complete(messages, sampling, seed)
            on_text("then")
            return done

    with served(hint, seats(collaborator=["."], actor=Slow(gate))) as server:
        line = server.begin("/v1/chat/completions", {"messages": [user("?")], "stream": True})
        heard = b""
        while b"first" not in heard:
            heard += line.recv(65536)
        assert b"then" not in heard
        gate.let()
        while b"[DONE]" not in heard:
            heard += line.recv(65536)
        line.close()
    assert b"then" in heard


def test_without_a_final_turn_the_whole_answer_comes_at_once() -> None:
    with served(vote.bind(samples=2), seats(actor=lambda m, s, seed: "so \\boxed{4}")) as server:
        assert texts(streamed(server)) == ["so \\boxed{4}"]


def test_an_empty_answer_is_an_answer() -> None:
    with served(hint, seats(collaborator=["."], actor=[""])) as server:
        first, last, _ = (said for _, said in streamed(server).events)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["finish_reason"] == "stop"


def test_several_choices_and_prompts_are_told_apart() -> None:
    with served(hint, seats(collaborator=["."], actor=["a b", "c d"])) as server:
        both = streamed(server, n=2)
    assert sorted([texts(both, 0), texts(both, 1)]) == [["a", " b"], ["c", " d"]]
    with served(hint, seats(collaborator=["."] * 2, actor=lambda m, s, seed: m[-1]["content"][:1])) as server:
        prompts = server.post("/v1/completions", {"prompt": ["x", "y"], "stream": True})
    assert [texts(prompts, 0), texts(prompts, 1)] == [["x"], ["y"]]


def test_a_topology_that_answers_otherwise_than_its_final_turn_says_so() -> None:
    @topology
    async def fickle(task: Task, room: Any) -> str:
        await room.ask("actor", task.question, final=True)
        return "something else"

    with served(fickle, seats(actor=["the answer"] * 2)) as server:
        assert server.chat("?").json["choices"][0]["message"]["content"] == "something else"
        assert streamed(server).events[-1][1]["error"]["code"] == "not_the_final_turn"


def test_two_final_turns_do_not_speak_at_once() -> None:
    @topology
    async def both(task: Task, room: Any) -> Turn:
        one, _ = await room.gather(*(room.ask("actor", f"{n}", final=True) for n in range(2)))
        return one  # type: ignore[no-any-return]

    with served(both, seats(actor=lambda m, s, seed: f"call {m[-1]['content']}")) as server:
        assert "".join(texts(streamed(server))) == "call 0"


def test_a_silent_stream_shows_that_it_is_alive_and_tells_a_late_failure() -> None:
    gate = Gate()
    failing = ScriptedEngine(["x"], fail=lambda m, s, seed: True)
    with served(hint, seats(collaborator=gate, actor=failing), keep_alive_s=0.02) as server:
        line = server.begin("/v1/chat/completions", {"messages": [user("?")], "stream": True})
        heard = b""
        while heard.count(b": the team is at work") < 2:
            heard += line.recv(65536)
        gate.let()
        while b"member_unavailable" not in heard:
            heard += line.recv(65536)
        line.close()
    assert heard.startswith(b"HTTP/1.1 200")
    assert b'"retry_after":15' in heard  # a stream has no header left to say it


# Clients that leave


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_the_calls_made_for_it(stream: bool) -> None:
    gate = Gate()
    with served(hint, seats(collaborator=gate, actor=["4"] * 2), episodes=1) as server:
        leaving = server.begin("/v1/chat/completions", {"messages": [user("?")], "stream": stream})
        assert until(lambda: gate.asked == 1)
        leaving.close()
        assert until(lambda: gate.cancelled == 1)
        gate.let()
        assert server.chat("?").status == 200  # its place is free again


def used(server: Served, member: str) -> list[str]:
    """The counters of what a member used."""
    lines = server.get("/metrics").raw.decode().split("\n")
    return [line for line in lines if f'member="{member}"' in line and "_total{" in line]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leaves", [True, False], ids=["left", "out of time"])
def test_what_was_answered_for_a_request_without_an_answer_is_counted(leaves: bool, stream: bool) -> None:
    gate = Gate()
    team = seats(collaborator=["Add them."], actor=gate)
    priced = {name: replace(member, price=Price(output=1_000_000)) for name, member in team.members.items()}
    limits = {} if leaves else {"timeout_s": 1.5}
    with served(hint, Team(priced, team.engines), **limits) as server:
        line = server.begin("/v1/chat/completions", {"messages": [user("2 + 2?")], "stream": stream})
        assert until(lambda: gate.asked == 1)
        if leaves:
            line.close()
        assert until(lambda: gate.cancelled == 1)
        hinted, answered = used(server, "collaborator"), used(server, "actor")
        line.close()
    assert 'pilotfish_tokens_total{kind="completion",member="collaborator"} 2.0' in hinted
    assert 'pilotfish_cost_total{member="collaborator"} 2.0' in hinted
    assert answered == [], "what a call used that was cut off, nobody knows"


def test_a_client_that_leaves_closes_the_connection_of_its_call() -> None:
    with MockServer(latency=600) as upstream:
        team = _team(OpenAIEngine(model="mock", base_url=upstream.base_url, retries=0))
        with served(hint, team) as server:
            for stream in (False, True):
                leaving = server.begin("/v1/chat/completions", {"messages": [user("?")], "stream": stream})
                assert until(lambda stream=stream: upstream.in_flight == 1)
                leaving.close()
                assert until(lambda: upstream.in_flight == 0)
        assert upstream.closed_early == 2
        assert upstream.answered == 0


def _team(actor: Any) -> Team:
    scripted = seats(collaborator=["Add."] * 9, actor=["x"])
    return Team(scripted.members, {**scripted.engines, "actor": actor})


def test_an_answer_streams_through_from_a_server_behind() -> None:
    with MockServer(reply="It is four.") as upstream:
        with served(hint, _team(OpenAIEngine(model="mock", base_url=upstream.base_url))) as server:
            answer = streamed(server, stream_options={"include_usage": True})
        assert upstream.requests[0].body["stream"] is True
    assert texts(answer) == ["It ", "is ", "four."]
    assert answer.events[-2][1]["usage"]["members"]["actor"]["completion_tokens"] == 3


@pytest.mark.parametrize("said", ["", "It is"])
def test_what_a_filter_took_from_an_answer_is_told(said: str) -> None:
    def filtered(body: Any) -> Any:
        text = said if said or body.get("stream") else None
        return {"message": {"content": text}, "finish_reason": "content_filter"}

    with MockServer(reply=filtered) as upstream:
        engine = OpenAIEngine(model="mock", base_url=upstream.base_url)
        with served(hint, _team(engine)) as server:
            whole, answer = server.chat("?"), streamed(server)
    choice = whole.json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (said, "content_filter")
    assert "".join(texts(answer)) == said
    assert answer.events[-2][1]["choices"][0]["finish_reason"] == "content_filter"


def test_an_outage_of_a_server_behind_is_503_with_retry_after() -> None:
    with MockServer(fault=lambda call: "503") as upstream:
        engine = OpenAIEngine(model="mock", base_url=upstream.base_url, retries=0)
        with served(hint, _team(engine)) as server:
            answer = server.chat("?")
    assert (answer.status, answer.error, answer.headers["retry-after"]) == (503, "member_unavailable", "15")


def test_a_conversation_that_does_not_fit_a_server_behind_is_the_clients_to_shorten() -> None:
    words = '{"error": {"message": "maximum context length is 8 tokens; 9 are too many at http://10.0.0.1"}}'
    with MockServer(fault=lambda call: Failure(400, words)) as upstream:
        team = _team(OpenAIEngine(model="mock", base_url=upstream.base_url))
        with served(hint, team) as server:
            answer = server.chat("?")
    assert (answer.status, answer.error) == (400, "context_length_exceeded")
    assert b"http" not in answer.raw


# A server that is full


def test_one_more_than_may_wait_is_refused_and_the_others_are_answered() -> None:
    gate, answers = Gate(), []
    with served(hint, seats(collaborator=gate, actor=lambda m, s, seed: "4"), episodes=2, waiting=3) as server:
        lines = [server.begin("/v1/chat/completions", {"messages": [user(f"{n}?")]}) for n in range(5)]
        assert until(lambda: b"pilotfish_requests_waiting 3.0" in server.get("/metrics").raw)
        refused = server.chat("?")
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (503, "server_full", "2")
        assert until(lambda: gate.asked == 2)
        assert server.chat("?", n=3).error == "over_limit"
        lines[4].close()  # it stands in line
        assert until(lambda: b"pilotfish_requests_waiting 2.0" in server.get("/metrics").raw)
        gate.let()
        answers = [_read(line) for line in lines[:4]]
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)


def test_a_place_is_not_lost_to_one_who_leaves_the_line_as_it_moves() -> None:
    async def crowd() -> tuple[int, int]:
        places, out = Places(playing=2, waiting=9), asyncio.Event()

        async def sit(wanted: int) -> None:
            async with places.taken(wanted):
                await out.wait()

        first = asyncio.create_task(sit(2))
        waiting = [asyncio.create_task(sit(wanted)) for wanted in (2, 1, 1, 1)]
        await asyncio.sleep(0)
        for task in (first, waiting[0], waiting[1]):
            task.cancel()  # in one round of the event loop
        await asyncio.gather(first, *waiting[:2], return_exceptions=True)
        assert (places.playing, places.waiting) == (2, 0)
        out.set()
        await asyncio.gather(*waiting[2:])
        return places.playing, places.waiting

    assert asyncio.run(crowd()) == (0, 0)


def test_fifty_clients_at_once_each_get_their_own_answer() -> None:
    def answer(messages: Messages, sampling: Sampling, seed: int) -> str:
        return f"answer to {messages[-1]['content'].split()[0]}"

    with served(hint, seats(collaborator=lambda m, s, seed: "Add.", actor=answer)) as server:
        bodies = [{"messages": [user(f"q{n} ?")], "stream": n % 2 == 0} for n in range(50)]
        lines = [server.begin("/v1/chat/completions", body) for body in bodies]
        for number, line in enumerate(lines):
            heard = _read(line)
            said = f"q{number}" if number % 2 == 0 else f"answer to q{number}"
            assert f'{said}"'.encode() in heard


def _read(line: socket.socket) -> bytes:
    """A whole answer; what follows it is not waited for."""
    heard = b""
    while b"[DONE]" not in heard and not _is_whole(heard):
        heard += line.recv(65536)
    line.close()
    return heard


def _is_whole(heard: bytes) -> bool:
    head, _, body = heard.partition(b"\r\n\r\n")
    try:
        return b"application/json" in head and bool(json.loads(body))
    except ValueError:
        return False
