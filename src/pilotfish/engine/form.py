"""The body of a request, in the two forms of the OpenAI wire format.

`chat` sends the messages; the server's template makes a prompt of them. `completions` is for servers and base models
without a template: the prompt is the messages' texts in their order, a blank line between them, and no roles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pilotfish.team import Messages, Sampling

Form = Literal["chat", "completions"]
PATHS: dict[Form, str] = {"chat": "/chat/completions", "completions": "/completions"}
"""What follows `base_url`."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def request_body(
    model: str,
    messages: Messages,
    sampling: Sampling,
    seed: int,
    extra: Mapping[str, Any],
    form: Form = "chat",
    stream: bool = False,
    token_ids: Sequence[int] | None = None,
) -> bytes:
    """The JSON of a request.

    Every sampling field is sent, also those at 1: servers put a model's recommended values in place of missing ones.
    The seed is cut to 31 bits, the range that all servers take.

    Args:
        extra: fields to add or replace; a None removes the field (`{"seed": None}` for a server that refuses seeds).
        form: messages, or one prompt.
        stream: ask for the answer in pieces, and for its usage at the end.
        token_ids: the prompt as a server of vLLM takes it, in completions form; the answer then comes with its ids, and
            with log-probabilities where the whole distribution is sampled.
    """
    asked: dict[str, Any] = {"messages": messages}
    if token_ids is not None:
        asked = {"prompt": token_ids, "return_token_ids": True, **({"logprobs": 0} if sampling.top_p == 1 else {})}
    elif form == "completions":
        asked = {"prompt": plain_prompt(messages)}
    body: dict[str, Any] = {
        "model": model,
        **asked,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": seed & 0x7FFFFFFF,
    }
    if sampling.stop:
        body["stop"] = sampling.stop
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if extra:
        body = {name: value for name, value in (body | dict(extra)).items() if value is not None}
    return _encode(body).encode()


def plain_prompt(messages: Messages) -> str:
    """The prompt of the completions form: the texts alone, a blank line between them."""
    return "\n\n".join(message["content"] for message in messages)
