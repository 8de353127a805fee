"""What a try used: as the server counted it, or an estimate where it did not."""

from __future__ import annotations

from collections.abc import Callable

from pilotfish.team import Messages, Usage

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Tokens of a text when nobody counts them: a quarter of its bytes, which is near in English and in Chinese."""
    return len(text.encode("utf-8", "replace")) // 4 + 1


def used(reported: object, messages: Messages, said: str, count: CountTokens) -> Usage:
    """What a try used.

    Args:
        reported: a response's `usage`, whatever it is.
        messages: what was asked, for the estimate.
        said: the answer with its reasoning, for the same estimate.
        count: tokens of a text, for the same estimate.
    """
    fields = reported if isinstance(reported, dict) else {}
    prompt = _tokens(fields, "prompt_tokens")
    completion = _tokens(fields, "completion_tokens")
    known_prompt = bool(prompt)  # no prompt has 0 tokens: a server that says so does not count
    known_completion = completion is not None and (known_prompt or completion > 0)
    asked = prompt if prompt else _of_prompt(messages, count)
    told = completion if completion is not None and known_completion else count(said) if said else 0
    # Some servers leave the tokens of thinking out of the answer's, and have them in the sum, as on the bill.
    thought = max(0, (_tokens(fields, "total_tokens") or 0) - asked - told) if known_prompt and known_completion else 0
    reasoning = _tokens(fields.get("completion_tokens_details"), "reasoning_tokens") or 0
    return Usage(
        prompt=asked,
        completion=told + thought,
        cached=min(asked, _tokens(fields.get("prompt_tokens_details"), "cached_tokens") or 0),
        reasoning=min(told + thought, max(reasoning, thought)),
        estimated=not (known_prompt and known_completion),
    )


def _tokens(fields: object, name: str) -> int | None:
    value = fields.get(name) if isinstance(fields, dict) else None
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**53 else None


def unseen(messages: Messages, count: CountTokens) -> Usage:
    """What the bill says of a try whose end nobody saw: the prompt for sure, and of the answer nobody knows."""
    return Usage(_of_prompt(messages, count), estimated=True)


def _of_prompt(messages: Messages, count: CountTokens) -> int:
    return sum(count(message["content"]) for message in messages)
