"""The forms of a request: chat, one plain prompt, a stream; and how shared text comes first."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumping import JumpingClock
from mock_server import Call, Failure, Fault, MockServer
from pilotfish.engine.base import CallFailed, Completion, Refused
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.engine.stream import Pieces
from pilotfish.team import Messages, Sampling, Usage
from pilotfish.topology import BUILT_IN, Topology
from pilotfish.topology.prompts import FIELD

GREEDY = Sampling(temperature=0.0, max_tokens=64)
ASKED: Messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + {2}?"}]
EVENTS = {"Content-Type": "text/event-stream"}


def complete(server: MockServer, on_text: Any = None, **options: Any) -> Completion:
    async def main() -> Completion:
        engine = OpenAIEngine(**{"model": "mock", "base_url": server.base_url, "clock": JumpingClock(), **options})
        try:
            if on_text is None:
                return await engine.complete(ASKED, GREEDY, 7)
            return await engine.stream(ASKED, GREEDY, 7, on_text)
        finally:
            await engine.close()

    return asyncio.run(main())


def events(*bodies: Any, done: bool = True) -> Failure:
    """A stream as a server sends it."""
    lines = [f"data: {json.dumps(body, ensure_ascii=False)}\n\n" for body in bodies]
    return Failure(
        200, ": keep\n\n" + "".join(lines) + ("data: [DONE]\n\n" if done else ""), EVENTS, "text/event-stream"
    )


def piece(finish: str | None = None, **delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_the_completions_form_sends_the_texts_and_reads_a_text() -> None:
    with MockServer(reply=lambda body: {"choices": [{"text": " 4", "finish_reason": "length"}]}) as server:
        said = complete(server, form="completions")
        call = server.requests[0]
    assert call.path == "/v1/completions"
    assert call.body["prompt"] == "Be brief.\n\n2 + {2}?"
    assert "messages" not in call.body
    assert (call.body["max_tokens"], call.body["seed"]) == (64, 7)
    assert (said.text, said.finish_reason) == (" 4", "length")


def test_the_form_is_part_of_what_names_the_deployment() -> None:
    def identity(**options: Any) -> str:
        return OpenAIEngine(**{"model": "qwen", "base_url": ["http://a/v1", "http://b/v1"], **options}).identity

    assert identity() == "qwen"
    assert identity(form="completions") not in ("qwen", identity(extra={"form": "chat"}))


def test_an_error_in_a_list_of_one_is_read() -> None:
    body = '[{"error": {"code": 400, "message": "Unknown name \\"seed\\": Cannot find field."}}]'
    with (
        MockServer(fault=lambda call: Failure(400, body)) as server,
        pytest.raises(Refused, match=r'400: Unknown name "seed": Cannot find field\.$'),
    ):
        complete(server)


def test_a_stream_gives_the_pieces_on_and_ends_as_a_plain_answer() -> None:
    pieces: list[str] = []
    with MockServer(reply="two and two make 四") as server:
        said = complete(server, pieces.append)
        body = server.requests[0].body
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert pieces == ["two ", "and ", "two ", "make ", "四"]
    assert (said.text, said.finish_reason, said.usage) == ("two and two make 四", "stop", Usage(5, 5))


def test_reasoning_in_a_stream_is_kept_apart_and_not_given_on() -> None:
    pieces: list[str] = []
    stream = events(
        piece(role="assistant"), piece(reasoning_content="so "), piece(reasoning="it is"), piece("stop", content="4")
    )
    with MockServer(fault=lambda call: stream) as server:
        said = complete(server, pieces.append)
    assert (pieces, said.text, said.reasoning, said.usage.estimated) == (["4"], "4", "so it is", True)


@pytest.mark.parametrize(
    "broken",
    [events(piece(content=""), done=False), events({"error": {"message": "overloaded", "code": 503}}), "cut", "503"],
    ids=["ended early", "error inside", "cut", "503"],
)
def test_a_stream_that_breaks_before_any_text_is_tried_again(broken: Fault) -> None:
    pieces: list[str] = []
    with MockServer(reply="4", fault=lambda call: broken if call.number == 1 else None) as server:
        said = complete(server, pieces.append)
    assert (said.text, pieces, len(said.attempts)) == ("4", ["4"], 1)


def test_a_stream_that_breaks_after_some_text_is_an_outage_and_not_said_twice() -> None:
    pieces: list[str] = []
    with (
        MockServer(fault=lambda call: events(piece(content="fo"), done=False)) as server,
        pytest.raises(CallFailed, match="broke off"),
    ):
        complete(server, pieces.append)
    assert (pieces, server.calls) == (["fo"], 1)


def test_a_server_that_does_not_stream_says_it_all_at_once() -> None:
    def plain(call: Call) -> Fault:
        return Failure(200, '{"choices": [{"message": {"content": "four"}, "finish_reason": "stop"}]}')

    pieces: list[str] = []
    with MockServer(fault=plain) as server:
        assert complete(server, pieces.append).text == "four"
    assert pieces == ["four"]


@given(cuts=st.lists(st.integers(0, 400), max_size=12))
def test_a_stream_reads_the_same_wherever_its_bytes_are_cut(cuts: list[int]) -> None:
    data = events(
        piece(content="四 and "), piece(content="vier"), piece("length"), {"choices": [], "usage": {"a": 1}}
    ).body
    raw = data.encode() if isinstance(data, str) else data
    said: list[str] = []
    pieces = Pieces(said.append)
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    for start, end in itertools.pairwise(edges):
        pieces.feed(raw[start:end])
    body = pieces.body()
    assert said == ["四 and ", "vier"]
    assert body == {
        "choices": [{"message": {"content": "四 and vier", "reasoning_content": ""}, "finish_reason": "length"}],
        "usage": {"a": 1},
    }


@pytest.mark.parametrize("topology", BUILT_IN, ids=lambda one: one.name)
def test_prompts_begin_with_what_calls_of_one_task_share(topology: Topology) -> None:
    """A server's prefix cache serves what comes before the first difference: the question is before what is said."""
    prompts = inspect.signature(topology.function).parameters.get("prompts")
    for name, texts in prompts.default.as_dict().items() if prompts else ():
        fields = FIELD.findall(texts["user"])
        assert "question" not in fields or fields[0] == "question", name
