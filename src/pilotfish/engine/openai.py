"""The `openai` engine: any server that speaks the OpenAI chat format (hosted APIs, vLLM, SGLang, llama.cpp, Ollama).

    engine = OpenAIEngine(model="qwen-plus", base_url="https://example.com/v1", key_env="ACTOR_KEY")
    completion = await engine.complete([{"role": "user", "content": "2 + 2?"}], Sampling(temperature=0.0), seed=1)

What a retry can mend is retried with back-off; the rest stops at once with the server's own words. A call keeps its
place under the concurrency cap while it waits for a retry: during an outage or a rate limit only `concurrency` calls
use up their retries, and the others stay in line. Each event loop has its own HTTP session and its own cap.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from pilotfish.engine import wire
from pilotfish.engine.base import Attempt, CallFailed, Completion, Refused
from pilotfish.engine.retry import wait_before
from pilotfish.team import Messages, Sampling

_CONNECT_S = 30.0
"""Seconds to open a socket; a host that swallows packets must not use up the call's whole time limit."""


@dataclass(frozen=True, slots=True)
class _Line:
    """What one event loop needs: its session, and the places under the concurrency cap."""

    session: aiohttp.ClientSession
    places: asyncio.Semaphore


class OpenAIEngine:
    """Asks an OpenAI-compatible server over HTTP.

    Args:
        model: the name that the server knows the model by.
        base_url: up to and without `/chat/completions`, for example `http://localhost:8000/v1`.
        key_env: name of the environment variable that holds the key; None for a server without keys.
        revision: what tells this deployment from another of the same name; part of `identity`.
        timeout_s: seconds one try may take, not counting the wait for a place under the cap.
        retries: tries after the first.
        concurrency: most calls at the server at once.
        headers: HTTP headers to add.
        extra: body fields to add or replace; a None removes the field.
        count_tokens: counts a text's tokens when the server does not; by default a quarter of its characters.
        sleep: waits that many seconds before a retry.

    Raises:
        Refused: `key_env` names a variable that is empty or holds what no header can carry.
        ValueError: `base_url` is no http(s) address, or carries a key.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        key_env: str | None = None,
        revision: str | None = None,
        timeout_s: float = 600.0,
        retries: int = 6,
        concurrency: int = 64,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        count_tokens: wire.CountTokens = wire.estimate_tokens,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if concurrency < 1 or retries < 0 or timeout_s <= 0:
            raise ValueError(
                f"{model}: concurrency {concurrency}, retries {retries}, timeout_s {timeout_s:g}: "
                "give at least 1 place, 0 retries and a time limit above 0"
            )
        self.model = model
        self.revision = revision
        self.concurrency = concurrency
        self.retries = retries
        self.timeout_s = timeout_s
        self._url = _address(base_url)
        self._proxy = _proxy(self._url)
        self._key = _Key(key_env)
        self._headers = {"Content-Type": "application/json", "User-Agent": "pilotfish", **(headers or {})}
        self._extra = dict(extra or {})
        self._count_tokens = count_tokens
        self._sleep = sleep
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    def __repr__(self) -> str:
        return f"OpenAIEngine({self.identity!r}, {str(self._url.with_query(None))!r})"

    @property
    def identity(self) -> str:
        """`model@revision`, whatever the endpoint, and a hash of `extra`, which changes what is answered."""
        name = f"{self.model}@{self.revision}" if self.revision else self.model
        if not self._extra:
            return name
        fields = json.dumps(self._extra, sort_keys=True, default=repr)
        return f"{name}#{hashlib.sha256(fields.encode()).hexdigest()[:8]}"

    @property
    def version(self) -> int:
        return 0

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        line = self._line()
        async with line.places:
            # Only now: thousands of calls may be in line, and their bodies would all be in memory.
            body = wire.request_body(self.model, messages, sampling, seed, self._extra)
            return await self._ask(line.session, body, messages)

    async def close(self) -> None:
        lines, self._lines = self._lines, {}
        for loop, line in lines.items():
            if loop is asyncio.get_running_loop():
                await line.session.close()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(line.session.close(), loop)

    async def _ask(self, session: aiohttp.ClientSession, body: bytes, messages: Messages) -> Completion:
        attempts: list[Attempt] = []
        while True:
            began = time.perf_counter()
            outcome = await self._try(session, body, messages)
            seconds = time.perf_counter() - began
            if isinstance(outcome, Completion):
                return replace(outcome, seconds=seconds, attempts=tuple(attempts))
            if outcome.final:
                raise Refused(f"{self._who()}: {outcome.why}")
            attempts.append(Attempt(seconds, outcome.why))
            if len(attempts) > self.retries or session.closed:
                why = f"{self._who()}: no answer in {len(attempts)} tries; the last: {outcome.why}"
                raise CallFailed(why, tuple(attempts))
            await self._sleep(wait_before(len(attempts), outcome.retry_after_s))

    async def _try(self, session: aiohttp.ClientSession, body: bytes, messages: Messages) -> Completion | wire.Fault:
        """One request; a fault's words are fit to be shown."""
        outcome = await self._request(session, body, messages)
        if isinstance(outcome, Completion):
            return outcome
        return replace(outcome, why=wire.shorten(self._key.removed_from(outcome.why)))

    async def _request(
        self, session: aiohttp.ClientSession, body: bytes, messages: Messages
    ) -> Completion | wire.Fault:
        if session.closed:
            return wire.Fault("the engine was closed")
        # Errors become faults here, so that what is raised later has no frame with the key behind it.
        try:
            # A redirect is a wrong base_url; following one would carry the key to another place.
            async with session.post(self._url, data=body, proxy=self._proxy, allow_redirects=False) as response:
                raw = await response.read()
                return wire.read_response(response.status, response.headers, raw, messages, self._count_tokens)
        except TimeoutError as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            return wire.Fault("could not connect in time" if connecting else f"no answer within {self.timeout_s:g} s")
        except aiohttp.ClientConnectorCertificateError as error:
            return wire.Fault(f"certificate not trusted: {wire.clean(str(error))}", final=True)
        except (aiohttp.ClientError, OSError) as error:
            return wire.Fault(wire.clean(f"{type(error).__name__}: {error}"))

    def _who(self) -> str:
        return f"{self.model} at {self._url.host}:{self._url.port}"

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            self._lines = {other: kept for other, kept in self._lines.items() if not other.is_closed()}
            line = self._lines[loop] = _Line(self._session(), asyncio.Semaphore(self.concurrency))
        return line

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.concurrency, ttl_dns_cache=300),
            headers={**self._headers, **self._key.header()},
            timeout=aiohttp.ClientTimeout(total=self.timeout_s, sock_connect=min(_CONNECT_S, self.timeout_s)),
            cookie_jar=aiohttp.DummyCookieJar(),
        )


class _Key:
    """The key, kept where neither `repr` nor an error shows it."""

    def __init__(self, env: str | None) -> None:
        self._env = env
        self._value = os.environ.get(env, "").strip() if env else ""
        if env and not self._value:
            raise Refused(f"no key in ${env}; export it or set key_env")
        if not (self._value.isascii() and self._value.isprintable()):
            raise Refused(f"${env} holds characters that no HTTP header can carry; export the key again")

    def __repr__(self) -> str:
        return f"${self._env}" if self._env else "no key"

    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def removed_from(self, text: str) -> str:
        if not self._value:
            return text
        return text.replace(self._value, "[key]").replace(quote(self._value, safe=""), "[key]")


def _address(base_url: str) -> URL:
    """The address that chat completions are posted to; a query, as some gateways want, is kept."""
    url = URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"base_url {base_url!r} is no http(s) address; write it as http://localhost:8000/v1")
    if url.user or url.password:
        raise ValueError(f"base_url for {url.host} carries a user or a password; put the key in key_env")
    return url.with_path(url.path.rstrip("/") + "/chat/completions", keep_query=True)


def _proxy(url: URL) -> str | None:
    """The environment's proxy for an address, looked up once; never one for this machine itself."""
    host = url.host or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    proxy = getproxies().get(url.scheme, "")
    return proxy if proxy.startswith(("http://", "https://")) else None
