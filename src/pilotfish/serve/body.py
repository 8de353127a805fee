"""What a client sends: the bodies of `/v1/chat/completions` and `/v1/completions`, read strictly.

A field that a team cannot honour is refused unless it is neutral, rather than left out unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from pilotfish.serve.config import ServeConfig
from pilotfish.serve.errors import ApiError

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
}
"""Settings that a team does not have, and the values that ask for nothing."""
BODY_S = 30.0
"""Seconds that a request may take to come."""
IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
"""Fields that change no answer."""
Rule = Literal["maths", "choice", "exact"]
"""A verifier that judges by a gold answer alone."""
Body = TypeVar("Body", bound="Settings")
Stop = Annotated[str, Field(min_length=1, max_length=200)]


class Own(BaseModel):
    """What Pilotfish adds to OpenAI's fields, under `pilotfish`."""

    model_config = ConfigDict(extra="forbid")

    turns: bool = False
    """Also give the turns of the team."""
    gold: str = ""
    """The right answer, where it is known: the verdict is given."""
    verifier: Rule | None = None
    """What judges by the gold answer; as the run's own tasks when not given."""
    instruction: str | None = None
    """In place of the server's own."""


class StreamOptions(BaseModel):
    include_usage: bool = False


def listed(value: Any) -> Any:
    """A list, where one text may stand for it."""
    return [value] if isinstance(value, str) else value


class Settings(BaseModel):
    """What all requests may ask of the final turn."""

    model_config = ConfigDict(extra="forbid")

    stop: Annotated[list[Stop], FailFast()] = Field(default=[], max_length=8)
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)

    @model_validator(mode="before")
    @classmethod
    def _only_what_can_be_done(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        fields = {name: given for name, given in value.items() if name not in IGNORED and given is not None}
        for name in NEUTRAL.keys() & fields.keys():
            if (given := fields.pop(name)) not in NEUTRAL[name]:
                why = f"{name} is {str(given)[:80]!r}, and a team has no such setting; leave it out"
                raise PydanticCustomError("no_such_setting", "{why}", {"why": why, "param": name})
        if "max_completion_tokens" in fields:
            fields["max_tokens"] = fields.pop("max_completion_tokens")
        return fields

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return listed(value)


class Wanted(Settings):
    """What the completion endpoints have in common."""

    model: str = "team"
    n: int = Field(default=1, ge=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    pilotfish: Own = Own()


class ChatMessage(BaseModel):
    """A message; fields beside role and content, such as a name, are not read."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | None = None
    tool_calls: Any = None

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        """The text of a message that comes in parts."""
        if not isinstance(value, list):
            return value
        written = [part.get("text") for part in value if isinstance(part, Mapping) and part.get("type") == "text"]
        texts = [text for text in written if isinstance(text, str)]
        if len(texts) < len(value):
            raise ValueError("a part is no text, and text is all that a team reads")
        return "\n".join(texts)

    @field_validator("tool_calls")
    @classmethod
    def _none(cls, value: Any) -> None:
        if value:
            raise ValueError("a team calls no tools and reads no calls; leave such messages out")


Said = Annotated[list[ChatMessage], FailFast()]
"""Messages, read up to the first that is wrong: half a million of them fit into a body."""


class Conversation(BaseModel):
    """A body that holds one."""

    messages: Said


class Chat(Wanted, Conversation):
    """The body of `/v1/chat/completions`."""

    messages: Said = Field(min_length=1)


class Prompt(Wanted):
    """The body of `/v1/completions`: each prompt is a task of its own."""

    prompt: Annotated[list[str], FailFast()] = Field(min_length=1)

    @field_validator("prompt", mode="before")
    @classmethod
    def _prompts(cls, value: Any) -> Any:
        return listed(value)


async def read(request: Request, kind: type[Body], config: ServeConfig) -> Body:
    """The body of a request.

    Raises:
        ApiError: it is too large, no JSON, or not of this kind; says which field and why.
    """
    try:
        async with asyncio.timeout(BODY_S):
            body = kind.model_validate_json(await _bytes(request, config.body_bytes))
    except TimeoutError:
        raise ApiError(408, f"the request did not come within {BODY_S:g} s", "body_too_slow") from None
    except ValidationError as error:
        raise _complaint(error) from None
    _check_limits(body, config)
    return body


async def _bytes(request: Request, most: int) -> bytes:
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > most:
            raise ApiError(413, f"a request may have {most} bytes", "body_too_large")
    return bytes(raw)


def _complaint(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(step) for step in first["loc"])[:200]
    why = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        why = "a team has no such setting; leave it out"
    param = place or first.get("ctx", {}).get("param")
    return ApiError(400, f"{place}: {why}" if place else why, "invalid_request", param=param)


def _check_limits(body: Settings, config: ServeConfig) -> None:
    answers = body.n if isinstance(body, Wanted) else 1
    answers *= len(body.prompt) if isinstance(body, Prompt) else 1
    messages = len(body.messages) if isinstance(body, Conversation) else 1
    for name, found, most in (
        ("n", answers, config.choices),
        ("max_tokens", body.max_tokens or 1, config.max_tokens),
        ("messages", messages, config.messages),
    ):
        if found > most:
            raise ApiError(400, f"{name} comes to {found}, and this server takes {most}", "over_limit", param=name)
