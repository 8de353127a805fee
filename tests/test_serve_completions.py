"""The completion endpoints: a team answers as one model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pilotfish import Sampling, ScriptedEngine, Turn, topology
from pilotfish.engine.base import CallFailed, Refused, TooLong
from pilotfish.team import Messages, Price
from pilotfish.topology import hint, vote
from seated import seats
from serving import Body, served, user


def echo(messages: Messages, sampling: Sampling, seed: int) -> str:
    """Says what it was told, word by word behind the roles."""
    return " | ".join(f"{message['role']}: {message['content']}" for message in messages)


def pair(collaborator: Any = ("Add them.",), actor: Any = echo) -> Any:
    return seats(collaborator=list(collaborator) if isinstance(collaborator, tuple) else collaborator, actor=actor)


def test_a_team_answers_as_one_model_and_its_usage_is_the_sum_with_the_split_beside() -> None:
    with served(hint, pair()) as server:
        said = server.chat("2 + 2?").json
    assert said["object"] == "chat.completion"
    assert said["model"] == "team"
    assert said["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "user: 2 + 2?\n(Hint: Add them.)\nBox it."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    members = said["usage"]["members"]
    assert {name: part["completion_tokens"] for name, part in members.items()} == {"collaborator": 2, "actor": 9}
    assert said["usage"]["completion_tokens"] == 11
    assert said["usage"]["total_tokens"] == sum(part["total_tokens"] for part in members.values())


def test_money_is_told_where_members_have_prices() -> None:
    team = pair()
    priced = team.members["actor"]
    object.__setattr__(priced, "price", Price(input=0, output=1_000_000))
    with served(hint, team) as server:
        usage = server.chat("2 + 2?").json["usage"]
    assert usage["cost"] == usage["members"]["actor"]["cost"] == 9.0


def test_earlier_messages_are_context_for_every_member() -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        user("Add 1 and 1."),
        {"role": "assistant", "content": "2"},
        user("And"),
        user([{"type": "text", "text": "1 more?"}]),  # type: ignore[arg-type]
    ]
    with served(hint, pair(collaborator=echo)) as server:
        said = server.post("/v1/chat/completions", {"messages": talk, "pilotfish": {"turns": True}}).json
    [[advice, answer]] = said["pilotfish"]["turns"]
    for turn in (advice, answer):
        assert [m["role"] for m in turn["messages"]] == ["system", "user", "assistant", "user"]
        assert turn["messages"][0]["content"].startswith("Be brief.")
        assert [m["content"] for m in turn["messages"][1:3]] == ["Add 1 and 1.", "2"]
    assert "You advise another model" in advice["messages"][0]["content"]
    assert advice["messages"][-1]["content"] == "And\n\n1 more?"
    assert [advice["member"], answer["member"]] == ["collaborator", "actor"]


def test_settings_apply_to_the_final_turn_alone() -> None:
    heard: dict[str, Sampling] = {}

    def listen(name: str) -> Any:
        return lambda messages, sampling, seed: heard.setdefault(name, sampling) and "one two three. four"

    with served(hint, seats(collaborator=listen("collaborator"), actor=listen("actor"))) as server:
        said = server.chat("?", max_tokens=4, temperature=0.25, stop=["."]).json
        cut = server.chat("?", max_completion_tokens=2).json
    assert heard["collaborator"] == Sampling()
    assert heard["actor"] == Sampling(max_tokens=4, temperature=0.25, stop=(".",))
    assert (said["choices"][0]["message"]["content"], said["choices"][0]["finish_reason"]) == ("one two three", "stop")
    assert (cut["choices"][0]["message"]["content"], cut["choices"][0]["finish_reason"]) == ("one two", "length")


def test_several_answers_share_all_before_the_final_turn() -> None:
    hints, answers = ScriptedEngine(["Add them."]), ScriptedEngine(["4", "5", "6"])
    with served(hint, seats(collaborator=hints, actor=answers)) as server:
        said = server.chat("2 + 2?", n=3).json
    assert sorted(choice["message"]["content"] for choice in said["choices"]) == ["4", "5", "6"]
    assert [choice["index"] for choice in said["choices"]] == [0, 1, 2]
    assert said["usage"]["members"]["collaborator"]["completion_tokens"] == 2
    assert said["usage"]["members"]["actor"]["completion_tokens"] == 3


def test_several_answers_without_a_final_turn_come_from_teams_of_their_own() -> None:
    draws = iter(range(100))
    drawn = ScriptedEngine(lambda messages, sampling, seed: f"\\boxed{{{next(draws)}}}")
    with served(vote.bind(samples=2), seats(actor=drawn)) as server:
        said = server.chat("?", n=2).json
    assert len({choice["message"]["content"] for choice in said["choices"]}) == 2
    assert drawn.calls == 4


def test_a_seed_gives_the_same_answer_again_and_requests_without_one_differ() -> None:
    def draw(messages: Messages, sampling: Sampling, seed: int) -> str:
        return str(seed)

    def content(said: Any) -> str:
        return str(said.json["choices"][0]["message"]["content"])

    with served(hint, seats(collaborator=draw, actor=draw)) as server:
        once, again, other = (content(server.chat("?", seed=seed)) for seed in (7, 7, 8))
        free = {content(server.chat("?")) for _ in range(3)}
    assert once == again != other
    assert len(free) == 3


def test_prompts_are_completed_one_by_one() -> None:
    with served(hint, pair(collaborator=echo)) as server:
        one = server.post("/v1/completions", {"prompt": "2 + 2?", "model": "actor"}).json
        two = server.post("/v1/completions", {"prompt": ["a", "b"], "model": "actor", "n": 2}).json
    assert one["object"] == "text_completion"
    assert one["choices"][0]["text"] == "user: 2 + 2?\nBox it."
    assert [choice["text"][:7] for choice in two["choices"]] == ["user: a", "user: a", "user: b", "user: b"]


def test_a_gold_answer_gives_a_verdict_and_an_instruction_stands_in_for_the_servers() -> None:
    own = {"gold": "4", "instruction": "Say it."}
    with served(
        hint, pair(actor=lambda messages, sampling, seed: f"{messages[-1]['content'][-7:]} \\boxed{{4}}")
    ) as server:
        said = server.chat("2 + 2?", pilotfish=own).json
    assert said["choices"][0]["message"]["content"].startswith("Say it.")
    assert said["pilotfish"]["verdicts"] == [{"reward": 1.0, "extracted": "4", "why": ""}]


# What cannot be answered


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "messages", "required"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role", "'user'"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages", "end with a user"),
        ({"messages": [user(" ")]}, "messages", "empty"),
        ({"messages": [user("x"), {"role": "assistant", "content": "y"}, user("")]}, "messages", "question is empty"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}, user("x")]}, "messages.0.tool_calls", "no tools"),
        ({"messages": [user("x")], "stop": ["s"] * 9}, "stop", "at most 8"),
        ({"messages": [user("x")], "stop": ""}, "stop.0", "at least 1"),
        ({"messages": [user("\ud800")]}, None, "Invalid JSON"),
        ({"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]}, "messages.0.content", "is no text"),  # type: ignore[arg-type]
        ({"messages": [user("x")], "temperature": 3}, "temperature", "less than or equal to 2"),
        ({"messages": [user("x")], "tools": [{"type": "function"}]}, "tools", "no such setting"),
        ({"messages": [user("x")], "top_p": 0.5}, "top_p", "top_p is '0.5'"),
        ({"messages": [user("x")], "beam_width": 3}, "beam_width", "no such setting"),
        ({"messages": [user("x")], "n": 99}, "n", "this server takes 8"),
        ({"messages": [user("x")], "max_tokens": 10**6}, "max_tokens", "this server takes"),
        ({"messages": [user("x")] * 300}, "messages", "this server takes 256"),
    ],
)
def test_a_request_that_cannot_be_honoured_is_refused_with_the_field(body: Body, param: str | None, words: str) -> None:
    with served(hint, pair()) as server:
        answer = server.post("/v1/chat/completions", body)
    error = answer.json["error"]
    assert answer.status == 400
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    assert error["param"] is None if param is None else error["param"].startswith(param)


def test_neutral_settings_pass() -> None:
    neutral = {
        "top_p": 1.0,
        "frequency_penalty": 0,
        "logprobs": False,
        "response_format": {"type": "text"},
        "stop": None,
    }
    with served(hint, pair()) as server:
        assert server.chat("?", user="me", tools=[], **neutral).status == 200


def test_no_json_and_an_unknown_model_are_told() -> None:
    with served(hint, pair()) as server:
        assert server.post("/v1/chat/completions", b"{").status == 400
        unknown = server.chat("?", model="gpt")
        assert (unknown.status, unknown.error) == (404, "model_not_found")
        assert "team" in unknown.json["error"]["message"]
        assert server.get("/v1/nowhere").json["error"]["code"] == "no_such_path"
        assert {model["id"] for model in server.get("/v1/models").json["data"]} == {"team", "collaborator", "actor"}
        assert server.get("/v1/models/team").json["pilotfish"]["topology"] == "hint"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (CallFailed("http://10.0.0.1/v1 is down"), 503, "member_unavailable"),
        (Refused("wrong key sk-secret at http://10.0.0.1/v1"), 502, "member_refused"),
        (TooLong("9 prompt tokens do not fit the window of 8"), 400, "context_length_exceeded"),
        (RuntimeError("/home/me/secret"), 500, "internal_error"),
    ],
)
def test_what_goes_wrong_behind_the_server_is_told_without_its_secrets(
    error: Exception, status: int, code: str
) -> None:
    broken = ScriptedEngine(["x"], fail=lambda messages, sampling, seed: error)
    with served(hint, seats(collaborator=["Add."] * 2, actor=broken)) as server:
        plain, streamed = server.chat("?"), server.chat("?", stream=True)
    for answer in (plain, streamed):
        assert (answer.status, answer.error) == (status, code)
        assert not any(word in answer.raw for word in (b"secret", b"http://", b"Traceback"))
        assert answer.headers.get("retry-after") == ("15" if status == 503 else None)


def test_an_absent_optional_member_is_no_outage() -> None:
    @topology
    async def lenient(task: Any, room: Any) -> Turn:
        said = await room.ask("flaky", task.question, optional=True)
        return await room.ask("actor", said.text or "nobody spoke", final=True)

    team = seats(flaky=ScriptedEngine(["x"], fail=lambda messages, sampling, seed: True), actor=echo)
    with served(lenient, team) as server:
        said = server.chat("?", pilotfish={"turns": True}).json
    assert said["choices"][0]["message"]["content"] == "user: nobody spoke"
    assert said["pilotfish"]["turns"][0][0]["outcome"] == "absent"


def test_a_request_that_takes_too_long_is_ended_with_its_reason() -> None:
    ended: list[str] = []

    async def never(messages: Messages, sampling: Sampling, seed: int) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return ""

    slow = ScriptedEngine(never)
    with served(hint, seats(collaborator=slow, actor=echo), timeout_s=1.5) as server:
        assert [server.chat("?").error, server.chat("?", stream=True).error] == ["timeout", "timeout"]
    assert ended == ["cancelled"] * 2
