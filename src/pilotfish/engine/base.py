"""What an engine is: messages and sampling in, one completion out.

Every engine is asynchronous and answers each call as soon as it ends. What may go wrong has two kinds only:
`CallFailed` (an outage: the engine's own retries ran out; the verdict becomes None) and `Refused` (a wrong key, a wrong
model name, a prompt that does not fit: nothing will mend it by asking again, so the run stops with the server's words).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pilotfish.team import Messages, Sampling, Usage

OnText = Callable[[str], None]
"""Takes a piece of an answer's text as it comes, in the event loop of whoever asked."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a call that did not answer; kept for the bill and for the log."""

    seconds: float
    error: str
    usage: Usage = field(default_factory=Usage)
    """What is on the bill for it all the same: as the server counted, or an estimate where nobody saw its end."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a member said.

    `prompt_ids`, `completion_ids` and `logprobs` are known for engines in process only; `logprobs` are natural logs of
    the sampled tokens under the untruncated distribution at the call's temperature (at temperature 0: at 1), one per
    completion id. `completion_ids` hold the end-of-turn token if the model produced it.
    """

    text: str
    finish_reason: str
    """`stop`, `length`, or what the server said."""
    usage: Usage
    seconds: float = 0.0
    reasoning: str | None = None
    """Reasoning content that the server reports apart from the answer."""
    prompt_ids: tuple[int, ...] | None = None
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    attempts: tuple[Attempt, ...] = field(default=())
    """The failed tries before this answer."""

    @property
    def billed(self) -> Usage:
        """What the answer and the tries before it used."""
        return billed(self.attempts, self.usage)


def billed(attempts: Iterable[Attempt], answer: Usage | None = None) -> Usage:
    """What is on the bill for a call: its failed tries, and the answer if it came."""
    return sum((attempt.usage for attempt in attempts), answer or Usage())


class CallFailed(Exception):
    """A call that did not answer although it was retried. An outage, never a wrong answer."""

    def __init__(self, why: str, attempts: tuple[Attempt, ...] = ()) -> None:
        super().__init__(why)
        self.attempts = attempts


class Refused(Exception):
    """A call that can never succeed as it is: wrong key, unknown model, a context that does not fit. Stops the run."""


class SaidElsewhere(Refused):
    """The main process of this launch knows why, and says it."""


class TooLong(Refused):
    """Prompt and answer do not fit the model's context; fewer words would."""


class Engine(Protocol):
    """Turns messages into a completion."""

    @property
    def identity(self) -> str | None:
        """Names the deployment for answers kept across runs: model name and revision, or a hash of local weights and
        chat template. None when its answers must never outlive a run."""

    @property
    def version(self) -> int:
        """Version of the weights; changes only for the policy being trained."""

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """Answer once.

        Args:
            messages: the chat so far, at least one message.
            sampling: how to draw.
            seed: a 63-bit integer; the same call with the same seed gives the same answer where the engine can.

        Raises:
            CallFailed: an outage that outlasted the retries.
            Refused: the call can never succeed.
        """

    async def close(self) -> None:
        """Release sockets, threads and memory. Idempotent."""


@runtime_checkable
class Streaming(Protocol):
    """An engine that can give an answer on while it is made."""

    async def stream(self, messages: Messages, sampling: Sampling, seed: int, on_text: OnText) -> Completion:
        """As `Engine.complete`; `on_text` is given the text's pieces as they come, which together are the text or its
        beginning. A call that breaks off after a piece is not made again."""


async def complete(
    engine: Engine, messages: Messages, sampling: Sampling, seed: int, on_text: OnText | None
) -> Completion:
    """Ask an engine, and let whoever listens hear the answer as it comes, where the engine can."""
    if on_text is None or not isinstance(engine, Streaming):
        return await engine.complete(messages, sampling, seed)
    return await engine.stream(messages, sampling, seed, on_text)


async def accounted(ask: Callable[[], Awaitable[Completion]], tell: Callable[[Usage | None], None]) -> Completion:
    """Make a call, and tell what it used, however it ends: None where it is cancelled, since nobody knows."""
    used = None
    try:
        done = await ask()
        used = done.billed
        return done
    except CallFailed as error:
        used = billed(error.attempts)
        raise
    finally:
        tell(used)


class Wrapped(ABC):
    """An engine in front of another: the same deployment, with something done around each call."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def identity(self) -> str | None:
        return self.engine.identity

    @property
    def version(self) -> int:
        return self.engine.version

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        return await self.around(lambda: self.engine.complete(messages, sampling, seed))

    async def stream(self, messages: Messages, sampling: Sampling, seed: int, on_text: OnText) -> Completion:
        return await self.around(lambda: complete(self.engine, messages, sampling, seed, on_text))

    @abstractmethod
    async def around(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        """Make the call, with what is done before and after it."""

    async def close(self) -> None:
        await self.engine.close()
