"""What a team is asked: a request's task with its context, its seed, and what is asked of the final turn."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import get_args

from pilotfish.benchmarks import BOXED, LETTER
from pilotfish.episode.calls import digest
from pilotfish.recipe import Recipe
from pilotfish.serve.body import ChatMessage, Own, Rule, Settings
from pilotfish.serve.errors import ApiError
from pilotfish.source import TaskSource
from pilotfish.task import Task
from pilotfish.team import Message, Messages, Sampling


@dataclass(frozen=True)
class Asked:
    """A task, and how it is to be answered."""

    task: Task
    seed: int
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None

    def sampling(self, own: Sampling) -> Sampling:
        """How the final turn is sampled, by how its member is: stop strings are added, the rest replaced."""
        wishes = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        given = {name: wish for name, wish in wishes.items() if wish is not None}
        return own.model_copy(update={**given, "stop": tuple(dict.fromkeys((*own.stop, *self.stop)))})

    @property
    def scope(self) -> str:
        """Of its calls: a seed that is given twice means the same twice."""
        return f"serve/{self.task.id}/{self.seed}"


@dataclass(frozen=True)
class Manner:
    """How answers are to be written and judged where a request does not say it."""

    instruction: str = ""
    verifier: str = "maths"


def manner_of(recipe: Recipe) -> Manner:
    """That of the tasks that were trained on, or else are measured; the prompts of the run were made with it."""
    sources = (*(recipe.tasks.train if recipe.tasks else ()), *recipe.evaluate.benchmarks)
    own = _manner(sources[0]) if sources else Manner()
    return own if recipe.serve.instruction is None else Manner(recipe.serve.instruction, own.verifier)


def _manner(source: TaskSource) -> Manner:
    known = source.benchmark
    named = source.verifier or (known.verifier if known else "maths")
    verifier = named if isinstance(named, str) and named in get_args(Rule) else "maths"
    if source.instruction is not None:
        return Manner(source.instruction, verifier)
    if verifier != named:
        return Manner("", verifier)
    return Manner(LETTER if verifier == "choice" else known.instruction if known else BOXED, verifier)


def asked(messages: Messages, wanted: Settings, own: Own, manner: Manner) -> Asked:
    """The last user message is the task, what comes before it is its context.

    Raises:
        ApiError: there is no question.
    """
    *context, last = messages
    if last["role"] != "user":
        why = f"the last message is of role {last['role']}; a team answers the user, so end with a user's message"
        raise ApiError(400, why, "invalid_request", param="messages")
    if not last["content"].strip():
        raise ApiError(400, "the question is empty", "invalid_request", param="messages")
    task = Task(
        id=digest(messages),
        question=last["content"],
        answer=own.gold,
        verifier=own.verifier or manner.verifier,
        instruction=manner.instruction if own.instruction is None else own.instruction,
        context=tuple(context),
    )
    seed = secrets.randbits(48) if wanted.seed is None else wanted.seed
    return Asked(task, seed, tuple(wanted.stop), wanted.max_tokens, wanted.temperature)


def conversation(said: Sequence[ChatMessage]) -> Messages:
    """Messages as members read them: one role at a time, since chat templates want them to alternate."""
    *earlier, last = [("system" if one.role == "developer" else one.role, one.content or "") for one in said]
    turns = groupby([*(one for one in earlier if one[1]), last], key=lambda one: one[0])
    return [Message(role=role, content="\n\n".join(text for _, text in texts if text)) for role, texts in turns]
