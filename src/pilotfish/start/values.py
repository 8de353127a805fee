"""What a cell of a user's rows says: text and numbers as they are, a list by its parts, a chat by its last question.

texts([{"role": "user", "content": "2 + 2?"}])      # ("2 + 2?",)
texts(["Graz", "Graz, Austria"])                    # both; the first counts
"""

from __future__ import annotations

from typing import Any

Scalar = str | int | float


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a value; several of a list only, and none of what is no text and no number."""
    if is_chat(value):
        return texts(_last_question(value))
    if isinstance(value, list):
        return tuple(text for part in value for text in _of_part(part) if text.strip())
    return (_storable(value),) if isinstance(value, Scalar) else ()


def is_chat(value: Any) -> bool:
    """Whether a value is a list of messages, each with its role."""
    return bool(value) and isinstance(value, list) and all(isinstance(one, dict) and "role" in one for one in value)


def _last_question(chat: list[dict[str, Any]]) -> Any:
    return next((message.get("content") for message in reversed(chat) if message["role"] == "user"), None)


def _of_part(part: Any) -> tuple[str, ...]:
    """An option may stand beside its letter: `{"label": "A", "text": "red"}`."""
    said = part.get("text") if isinstance(part, dict) else part
    return (_storable(said),) if isinstance(said, Scalar) else ()


def _storable(value: Scalar) -> str:
    """Halves of surrogate pairs, which no file can hold, become question marks."""
    return str(value).encode("utf-8", "replace").decode("utf-8")
