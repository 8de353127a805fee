"""The OpenAI wire format: what a response means, in chat and completions form. No HTTP is spoken here.

A response is one of two things: a `Completion`, or a `Fault`, which says in the server's own words what went wrong and
whether asking again can mend it. `length` and `content_filter` are answers, also where the server says the latter by
an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pilotfish.engine.base import Completion
from pilotfish.engine.bill import CountTokens, used
from pilotfish.engine.retry import retry_after_s
from pilotfish.team import Messages, Usage

_WORDS_SHOWN = 400
_RETRIED = frozenset({408, 409, 425, 429})
_OVERLOAD = frozenset({429, 503, 529})
_NO_SUCH_PATH = frozenset({404, 405})
# Codes of an error inside a 200 that no retry mends. `insufficient_quota` is not one: it also names a rate limit.
_FINAL_CODES = frozenset(
    {
        "authentication_error",
        "context_length_exceeded",
        "exceed_context_size_error",
        "invalid_api_key",
        "invalid_request_error",
        "model_not_found",
        "not_found_error",
        "permission_error",
    }
)
# Codes of an error about the words of one call. It says nothing about the next one, so it must not stop a run.
_FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation", "data_inspection_failed", "datainspectionfailed"}
)
# Finish reasons of a server that gave up: what text there is, is not what the model had to say.
_BROKEN_OFF = frozenset({"abort", "error", "insufficient_system_resource"})
_STATUS = re.compile(r"[1-5][0-9][0-9]")
_CONTEXT = re.compile(r"context (length|size|window)|maximum context", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"exceed|maximum|too (long|large|many)|longer than|larger than|greater than|overflow", re.IGNORECASE
)
_MODEL = re.compile(r"model|deployment", re.IGNORECASE)
_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\x9f\s]+")


@dataclass(frozen=True, slots=True)
class Fault:
    """A try that did not answer."""

    why: str
    final: bool = False
    """Asking again cannot mend it."""
    retry_after_s: float | None = None
    """What the server asked to wait."""
    status: int = 0
    """The HTTP status, or the number inside a 200; 0 where no answer came or a 200 made no sense."""
    usage: Usage = field(default_factory=Usage)
    """What is on the bill for it."""
    astray: bool = False
    """The server does not take calls at that address. An unknown model, which is a 404 too, is another matter."""

    @property
    def too_long(self) -> bool:
        """Prompt and answer do not fit the model's context."""
        return self.final and _overflows(self.why)

    @property
    def overload(self) -> bool:
        """The server has too much to do."""
        return self.status in _OVERLOAD


def read_response(
    status: int, headers: Mapping[str, str], raw: bytes, messages: Messages, count: CountTokens
) -> Completion | Fault:
    """What a response means.

    Args:
        status: the HTTP status.
        headers: the response's headers, looked up without regard to case.
        raw: the whole body.
        messages: what was asked, for the estimate when the server counts no tokens.
        count: tokens of a text, for the same estimate.
    """
    if status != 200:
        filtered = _is_filtered((_object(raw) or {}).get("error"))
        return _empty(messages, count) if filtered else _refusal(status, headers, raw)
    content_type = headers.get("Content-Type", "application/json")
    if "json" not in content_type.lower():
        return Fault(f"200 with {content_type} in place of JSON: {_plain(raw)}")
    body = _object(raw)
    if body is None:
        return Fault(
            f"200 with a body that is no JSON object: {_plain(raw)}" if raw.strip() else "200 with an empty body"
        )
    return read_body(body, headers, messages, count)


def read_body(
    body: Mapping[str, Any], headers: Mapping[str, str], messages: Messages, count: CountTokens
) -> Completion | Fault:
    """What the JSON of a 200 means."""
    error = body.get("error")
    if _is_filtered(error):
        return _empty(messages, count)
    outcome = _error_inside(error, headers) if error else _completion(body, messages, count)
    if isinstance(outcome, Fault) and isinstance(body.get("usage"), dict):
        return replace(outcome, usage=used(body["usage"], [], "", count))
    return outcome


def _completion(body: Mapping[str, Any], messages: Messages, count: CountTokens) -> Completion | Fault:
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or (message := _message(choice)) is None:
        return Fault("200 without a choice that holds a message")
    if choice.get("error"):
        return _error_inside(choice["error"], {})
    finish = choice.get("finish_reason")
    finish_reason = finish if isinstance(finish, str) else "stop"
    if finish_reason in _BROKEN_OFF:
        return Fault(f"200 with finish reason {finish_reason}")
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    text = _text(message.get("content"))
    if text is None:
        text = _text(message.get("refusal"))
    if text is None:
        # A null is an answer where the server says why there is none: filtered, cut off or spent while thinking.
        if finish_reason not in ("content_filter", "length") and not reasoning:
            return Fault(f"200 with null content and finish reason {finish_reason}")
        text = ""
    usage = used(body.get("usage"), messages, text + (reasoning or ""), count)
    return _with_tokens(Completion(text, finish_reason, usage, reasoning=reasoning or None), choice)


def _with_tokens(completion: Completion, choice: Mapping[str, Any]) -> Completion:
    """With token ids and log-probabilities, from a server of vLLM that was sent ids."""
    prompt, drawn, scores = choice.get("prompt_token_ids"), choice.get("token_ids"), choice.get("logprobs")
    if not isinstance(prompt, list) or not isinstance(drawn, list):
        return completion
    logprobs = tuple(scores["token_logprobs"]) if scores else None
    return replace(completion, prompt_ids=tuple(prompt), completion_ids=tuple(drawn), logprobs=logprobs)


def _empty(messages: Messages, count: CountTokens) -> Completion:
    """What a filter left of an answer."""
    return Completion("", "content_filter", used(None, messages, "", count))


def _message(choice: dict[str, Any]) -> dict[str, Any] | None:
    """What was said: a message in the chat form, a text in the completions form."""
    message = choice.get("message")
    if isinstance(message, dict):
        return message
    return {"content": choice["text"]} if isinstance(choice.get("text"), str) else None


def _text(content: object) -> str | None:
    """The text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return None
    # A server that splits a character leaves half of a surrogate pair, which no file or database takes.
    return content if content.isascii() else content.encode("utf-8", "replace").decode()


def _refusal(status: int, headers: Mapping[str, str], raw: bytes) -> Fault:
    if 300 <= status < 400:
        return Fault(f"{status}: moved to {headers.get('Location', 'another place')}; set base_url to it", final=True)
    body = _object(raw)
    words = _words(body) if body is not None else _plain(raw)
    final = not (status in _RETRIED or status >= 500 or status < 300)
    about_model = _MODEL.search(" ".join((words, *_codes((body or {}).get("error")))))
    astray = status in _NO_SUCH_PATH and not about_model
    return Fault(f"{status}: {words}", final or _overflows(words), retry_after_s(headers), status, astray=astray)


def _error_inside(error: object, headers: Mapping[str, str]) -> Fault:
    code = error.get("code") if isinstance(error, dict) else None
    words = _words({"error": error})
    number = int(code) if isinstance(code, int) or (isinstance(code, str) and _STATUS.fullmatch(code)) else 500
    final = (400 <= number < 500 and number not in _RETRIED) or _has_final_code(error) or _overflows(words)
    return Fault(f"200 with an error inside: {words}", final, retry_after_s(headers), number)


def _has_final_code(error: object) -> bool:
    return bool(_codes(error) & _FINAL_CODES)


def _is_filtered(error: object) -> bool:
    return bool(_codes(error) & _FILTER_CODES)


def _codes(error: object) -> set[str]:
    """What an error says it is."""
    return {str(error.get(name)).lower() for name in ("code", "type")} if isinstance(error, dict) else set()


def _overflows(words: str) -> bool:
    """Some servers answer a prompt that does not fit with a 5xx; their words tell."""
    return bool(_CONTEXT.search(words) and _OVERFLOW.search(words))


def _words(body: Mapping[str, Any]) -> str:
    """The server's own words in an error body, in any of the usual places."""
    error = body.get("error", body)
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return clean(error if isinstance(error, str) else json.dumps(error))


def _plain(raw: bytes) -> str:
    text = raw[:20_000].decode("utf-8", "replace")
    return clean(_MARKUP.sub(" ", text)) or "no body"


def clean(text: str) -> str:
    """One printable line: no control characters, no runs of blanks."""
    return _UNPRINTABLE.sub(" ", text).strip()


def shorten(text: str) -> str:
    """The start of a long line, for an error message."""
    return text if len(text) <= _WORDS_SHOWN else text[: _WORDS_SHOWN - 1] + "…"


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and len(value) == 1:  # Google's errors come so
        value = value[0]
    return value if isinstance(value, dict) else None
