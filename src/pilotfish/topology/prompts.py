"""Prompts: named templates that a recipe may override.

A template is filled once, in one pass: what comes from a task or from a model is never read as a template again, so a
question that holds `{braces}`, `%` or a chat template's own tokens arrives as it was written.

    PROMPTS = Prompts(solve=Prompt(user="{question}\\n{instruction}"))
    PROMPTS.solve(task)                               # -> messages
    PROMPTS.override({"solve": {"system": "Be brief."}})
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.task import Task
from pilotfish.team import Message, Messages

FIELD = re.compile(r"(?<!\{)\{([a-z_]+)\}(?!\})")
QUOTED = re.compile(r"\{(\{[a-z_]+\})\}")


@dataclass(frozen=True)
class Prompt:
    """A system and a user template.

    `{question}` and `{instruction}` come from the task; other fields from the caller.
    """

    user: str
    system: str = ""

    def __call__(self, task: Task, **fields: str) -> Messages:
        """Messages for a task.

        Raises:
            ValueError: a template names a field that this prompt is not given.
        """
        values = {"question": task.question, "instruction": task.instruction, **fields}
        messages = [("system", fill(self.system, values)), ("user", fill(self.user, values))]
        return [Message(role=role, content=content) for role, content in messages if content]

    @property
    def fields(self) -> tuple[str, ...]:
        """What its templates may name: the task's own fields, and those that are named in them now."""
        named = FIELD.findall(f"{self.system} {self.user}")
        return tuple(dict.fromkeys(("question", "instruction", *named)))


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values in for `{names}`, in one pass, and trim the template's ends; values stay as they are.

    `{{name}}` stands for `{name}` itself: `\\boxed{{answer}}`.

    Raises:
        ValueError: a name that has no value.
    """
    parts = FIELD.split(template)  # text, name, text, name, …, text
    parts[::2] = [QUOTED.sub(r"\1", text) for text in parts[::2]]
    check(template, parts[1::2], tuple(values))
    for number in range(1, len(parts), 2):
        parts[number] = values[parts[number]]
    _trim(parts, range(len(parts)), str.lstrip)
    _trim(parts, range(len(parts) - 1, -1, -1), str.rstrip)
    return "".join(parts)


def check(template: str, named: Sequence[str], fields: Sequence[str]) -> None:
    """Raises ValueError: among the fields that a template names is one that it is not given."""
    for name in named:
        if name not in fields:
            raise ValueError(f"prompt template {template!r} names {{{name}}}; it may use: {', '.join(fields)}")


def _trim(parts: list[str], inwards: range, strip: Callable[[str], str]) -> None:
    """Strip one end up to the first value or text that is not empty; odd parts are values."""
    for number in inwards:
        if number % 2 == 0:
            parts[number] = strip(parts[number])
        if parts[number]:
            return


def in_context(context: Sequence[Message], messages: Messages) -> Messages:
    """A member's messages with the conversation before the question in front of them.

    A model reads one system message at the beginning: the conversation's and the prompt's own, in this order.
    """
    if not context:
        return messages
    own = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    system = [message["content"] for message in (*context, *messages[:own]) if message["role"] == "system"]
    said = [message.copy() for message in (*context, *messages[own:]) if message["role"] != "system"]
    return [*([Message(role="system", content="\n\n".join(system))] if system else []), *said]


class Prompts:
    """A topology's prompts by name; immutable."""

    def __init__(self, **prompts: Prompt) -> None:
        self._prompts = prompts
        self._fields = {name: prompt.fields for name, prompt in prompts.items()}

    def __getattr__(self, name: str) -> Prompt:
        if name.startswith("_") or name not in self._prompts:
            raise AttributeError(name)
        return self._prompts[name]

    def override(self, changes: Mapping[str, Mapping[str, str]]) -> Prompts:
        """These prompts with some texts replaced. A text may name the fields of the task and of the prompt as it was
        made.

        Raises:
            ValueError: a prompt or a part (`system`, `user`) that does not exist, or a text that names another field.
        """
        prompts = dict(self._prompts)
        for name, parts in changes.items():
            if name not in prompts:
                raise ValueError(f"prompts: no prompt {name!r}; there are: {', '.join(prompts)}")
            for part in parts:
                if part not in ("system", "user"):
                    raise ValueError(f"prompts.{name}: no part {part!r}; there are: system, user")
                check(parts[part], FIELD.findall(parts[part]), self._fields[name])
            prompts[name] = replace(prompts[name], **parts)
        changed = Prompts(**prompts)
        changed._fields = self._fields
        return changed

    @property
    def digest(self) -> str:
        """Eight characters that change with any of the texts."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:8]

    def as_dict(self) -> dict[str, Any]:
        return {name: {"system": prompt.system, "user": prompt.user} for name, prompt in self._prompts.items()}
