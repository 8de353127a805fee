"""What a response in the OpenAI chat format means: answers, reasoning, usage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilotfish.engine.base import Completion
from pilotfish.engine.bill import CountTokens, estimate_tokens
from pilotfish.engine.wire import read_response
from pilotfish.team import Usage


def read(body: dict[str, Any], asked: str = "2 + 2?", count: CountTokens = estimate_tokens) -> Completion:
    outcome = read_response(200, {}, json.dumps(body).encode(), [{"role": "user", "content": asked}], count)
    assert isinstance(outcome, Completion)
    return outcome


def body(message: dict[str, Any], finish_reason: str | None = "stop", **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}], **fields}


def test_usage_comes_from_the_server_with_its_details() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    assert read(body({"content": "4"}, usage=usage)).usage == Usage(100, 50, cached=64, reasoning=30, estimated=False)
    without_details = {**usage, "prompt_tokens_details": None, "completion_tokens_details": {}}
    assert read(body({"content": "4"}, usage=without_details)).usage == Usage(100, 50)


def test_thinking_that_is_counted_in_the_sum_only_is_on_the_bill() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115}
    assert read(body({"content": "4"}, usage=usage)).usage == Usage(10, 105, reasoning=100)
    detailed = {**usage, "completion_tokens_details": {"reasoning_tokens": 100}}
    assert read(body({"content": "4"}, usage=detailed)).usage == Usage(10, 105, reasoning=100)
    nothing_hidden = {"prompt_tokens": 10, "completion_tokens": 105, "total_tokens": 115}
    assert read(body({"content": "4"}, usage=nothing_hidden)).usage == Usage(10, 105)


def test_no_part_is_more_than_the_whole() -> None:
    """Else a price would be negative."""
    cached, thought = {"cached_tokens": 999}, {"reasoning_tokens": 999}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": cached}
    assert read(body({"content": "4"}, usage=usage)).usage == Usage(10, 5, cached=10)
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": thought}
    assert read(body({"content": "4"}, usage=usage)).usage == Usage(10, 5, reasoning=5)


def test_a_chinese_text_is_not_estimated_as_an_english_one() -> None:
    assert (estimate_tokens("two and two"), estimate_tokens("二加二等于四。")) == (3, 6)


@pytest.mark.parametrize(
    "usage",
    [None, {}, [], {"prompt_tokens": None, "completion_tokens": "many"}, {"prompt_tokens": 0, "completion_tokens": 0}],
)
def test_usage_is_estimated_and_marked_when_the_server_counts_none(usage: Any) -> None:
    answer = body({"content": "x" * 36, "reasoning": "hmm."}, usage=usage)
    assert read(answer, "y" * 80).usage == Usage(prompt=21, completion=11, estimated=True)
    assert read(answer, "y" * 80, count=len).usage == Usage(prompt=80, completion=40, estimated=True)


def test_an_empty_answer_counted_by_the_server_is_not_estimated() -> None:
    completion = read(body({"content": ""}, usage={"prompt_tokens": 9, "completion_tokens": 0}))
    assert (completion.text, completion.usage) == ("", Usage(prompt=9, completion=0))


@pytest.mark.parametrize(
    ("message", "finish_reason", "text", "reasoning"),
    [
        ({"content": "4"}, "length", "4", None),
        ({"content": None}, "content_filter", "", None),
        ({"content": None}, "length", "", None),
        ({"content": None, "reasoning_content": "so it is"}, "stop", "", "so it is"),
        ({"content": "4", "reasoning_content": "two and two"}, "stop", "4", "two and two"),
        ({"content": "4", "reasoning": "two and two"}, "stop", "4", "two and two"),
        ({"content": None, "refusal": "I will not."}, "stop", "I will not.", None),
        ({"content": [{"type": "text", "text": "4"}, {"type": "thinking", "thinking": []}]}, "stop", "4", None),
        ({"content": "half \ud83d pair"}, "stop", "half ? pair", None),
        ({"content": "四 🐟"}, "stop", "四 🐟", None),
    ],
)
def test_what_counts_as_an_answer(
    message: dict[str, Any], finish_reason: str, text: str, reasoning: str | None
) -> None:
    completion = read(body(message, finish_reason))
    assert (completion.text, completion.finish_reason, completion.reasoning) == (text, finish_reason, reasoning)


def test_a_missing_finish_reason_reads_as_stop() -> None:
    assert read(body({"content": "4"}, None)).finish_reason == "stop"
