"""The `openai` engine: any server that speaks the OpenAI format (hosted APIs, vLLM, SGLang, llama.cpp, Ollama).

    engine = OpenAIEngine(model="qwen-plus", base_url="https://example.com/v1", key_env="ACTOR_KEY")
    completion = await engine.complete([{"role": "user", "content": "2 + 2?"}], Sampling(temperature=0.0), seed=1)
    completion = await engine.stream(messages, sampling, seed=1, on_text=print)

What a retry can mend is retried with back-off; the rest stops at once with the server's own words. A call keeps its
place under the cap while it waits for a retry: during an outage or a rate limit only that many calls use up their
retries, and the others stay in line. Each event loop has its own HTTP session, cap and limits.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.engine import wire
from pilotfish.engine.address import Key, address
from pilotfish.engine.base import Completion
from pilotfish.engine.bill import CountTokens, estimate_tokens
from pilotfish.engine.client import Call, Client
from pilotfish.engine.endpoints import Endpoint, Endpoints
from pilotfish.engine.form import PATHS, Form, request_body
from pilotfish.engine.limits import Clock, RateLimits
from pilotfish.engine.stream import OnText
from pilotfish.engine.tries import Sent, Try, hedged, retried
from pilotfish.team import Messages, Sampling


@dataclass(frozen=True, slots=True)
class _Line:
    """What one event loop needs: its HTTP client, the places under the cap, and the servers."""

    client: Client
    places: asyncio.Semaphore
    endpoints: Endpoints


class OpenAIEngine:
    """Asks OpenAI-compatible servers over HTTP.

    Args:
        model: the name that the servers know the model by.
        base_url: up to and without `/chat/completions`, for example `http://localhost:8000/v1`; or several, all of
            which serve this deployment.
        key_env: name of the environment variable that holds the key; None for a server without keys.
        revision: what tells this deployment from another of the same name; part of `identity`.
        form: `chat`, or `completions` for one prompt without a template.
        render: makes token ids of messages, which a server of vLLM is sent in completions form; its answers then hold
            token ids and log-probabilities.
        timeout_s: seconds one try may take, not counting the wait for a place.
        retries: tries after the first.
        concurrency: most calls at each server at once; fewer for as long as a server says that it is overloaded.
        requests_per_minute: most tries a minute, at all servers together.
        tokens_per_minute: most tokens a minute; a call counts as its prompt and `max_tokens` until its answer is there.
        hedge_after_s: seconds after which a try gets a second beside it.
        headers: HTTP headers to add.
        extra: body fields to add or replace; a None removes the field.
        count_tokens: counts a text's tokens when the server does not; by default a quarter of its bytes.
        clock: tells seconds and waits before a retry.

    Raises:
        Refused: `key_env` names a variable that is empty or holds what no header can carry.
        ValueError: a `base_url` is no http(s) address, or carries a key; a number out of its range.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str | Sequence[str],
        key_env: str | None = None,
        revision: str | None = None,
        form: Form = "chat",
        render: Callable[[Messages], Sequence[int]] | None = None,
        timeout_s: float = 600.0,
        retries: int = 6,
        concurrency: int = 64,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        hedge_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        count_tokens: CountTokens = estimate_tokens,
        clock: Clock | None = None,
    ) -> None:
        if retries < 0:
            raise ValueError(f"{model}: retries is {retries}; give at least 0")
        _above_0(model, concurrency=concurrency, timeout_s=timeout_s, hedge_after_s=hedge_after_s)
        _above_0(model, requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
        self.model = model
        self.revision = revision
        self.concurrency = concurrency
        self.retries = retries
        self.timeout_s = timeout_s
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self.hedge_after_s = hedge_after_s
        self._form: Form = "completions" if render else form
        self._render = render
        path = PATHS[self._form]
        self._urls = [address(url, path) for url in ([base_url] if isinstance(base_url, str) else base_url)]
        if not self._urls:
            raise ValueError(f"{model}: base_url is an empty list; name a server")
        self._key = Key(key_env)
        self._headers = dict(headers or {})
        self._extra = dict(extra or {})
        self._count_tokens = count_tokens
        self._clock = clock or Clock()
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    def __repr__(self) -> str:
        return f"OpenAIEngine({self.identity!r}, {', '.join(str(url.with_query(None)) for url in self._urls)!r})"

    @property
    def identity(self) -> str:
        """`model@revision`, whatever the endpoint, and a hash of `extra` and `form`, which change what is answered."""
        name = f"{self.model}@{self.revision}" if self.revision else self.model
        asked = self._extra if self._form == "chat" else {**self._extra, "form": self._form}
        if not asked:
            return name
        fields = json.dumps(asked, sort_keys=True, default=repr)
        return f"{name}#{hashlib.sha256(fields.encode()).hexdigest()[:8]}"

    @property
    def version(self) -> int:
        return 0

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        return await self._answer(messages, sampling, seed, None)

    async def stream(self, messages: Messages, sampling: Sampling, seed: int, on_text: OnText) -> Completion:
        """Answer once, giving each piece of the text on as it comes.

        A try that breaks off after some text was given on is not made again.

        Args:
            messages: the chat so far.
            sampling: how to draw.
            seed: as for `complete`.
            on_text: takes a piece of text; from a server that does not stream, all of it.
        """
        return await self._answer(messages, sampling, seed, on_text)

    async def close(self) -> None:
        lines, self._lines = self._lines, {}
        for loop, line in lines.items():
            if loop is asyncio.get_running_loop():
                await _closed(line)
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(_closed(line), loop)

    async def _answer(self, messages: Messages, sampling: Sampling, seed: int, on_text: OnText | None) -> Completion:
        line = self._line()
        async with line.places:
            # Whoever left this place is recorded in the meantime: a kill costs no more calls than there are places.
            await asyncio.sleep(0)
            # Only now: thousands of calls may be in line, and their bodies would all be in memory.
            streamed = on_text is not None
            prompt = self._render(messages) if self._render else None
            body = request_body(self.model, messages, sampling, seed, self._extra, self._form, streamed, prompt)
            call = Call(body, messages, self._tokens(messages, sampling), self._count_tokens, on_text)
            return await retried(
                lambda avoid: self._tries(line, call, avoid),
                line.endpoints,
                self._clock,
                model=self.model,
                retries=self.retries,
                told=lambda: call.told,
            )

    def _tokens(self, messages: Messages, sampling: Sampling) -> int:
        """What a call may use, where tokens are limited."""
        if self.tokens_per_minute is None:
            return 0
        return sum(self._count_tokens(message["content"]) for message in messages) + sampling.max_tokens

    async def _tries(self, line: _Line, call: Call, avoid: Endpoint | None) -> list[Try]:
        """One try, or two side by side; the last one counts."""
        if self.hedge_after_s is None or call.on_text is not None:
            return [await self._try(line, call, avoid)]
        return await hedged(
            lambda other, sent: self._try(line, call, other or avoid, sent), self.hedge_after_s, self._clock
        )

    async def _try(self, line: _Line, call: Call, avoid: Endpoint | None, sent: Sent | None = None) -> Try:
        place = await line.endpoints.enter(call.tokens, avoid)
        if sent is not None:
            sent.to(place.endpoint)
        began = time.perf_counter()
        outcome: Completion | wire.Fault | None = None
        try:
            outcome = await line.client.post(place.endpoint.url, place.endpoint.proxy, call)
        finally:
            line.endpoints.leave(place, outcome)
        return Try(place.endpoint, time.perf_counter() - began, outcome)

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            self._lines = {other: kept for other, kept in self._lines.items() if not other.is_closed()}
            places = self.concurrency * len(self._urls)
            client = Client(self._key, self._headers, places, self.timeout_s)
            limits = RateLimits(self.requests_per_minute, self.tokens_per_minute)
            endpoints = Endpoints(self._urls, self.concurrency, limits, self._clock)
            line = self._lines[loop] = _Line(client, asyncio.Semaphore(places), endpoints)
        return line


async def _closed(line: _Line) -> None:
    await line.client.close()
    line.endpoints.close()


def _above_0(model: str, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value <= 0:
            raise ValueError(f"{model}: {name} is {value:g}; give more than 0")
