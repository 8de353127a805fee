"""The HTTP client: one request of the OpenAI format, and what came of it. The only place that speaks HTTP.

    client = Client(key, headers, connections=64, timeout_s=600.0)     # inside the event loop that it belongs to
    outcome = await client.post(url, proxy, call)                      # a Completion or a Fault, never an exception

Everything that can go wrong on the wire comes back as a fault; redirects are refused and cookies dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import aiohttp
from yarl import URL

from pilotfish.engine import wire
from pilotfish.engine.address import Key
from pilotfish.engine.base import Completion
from pilotfish.engine.bill import CountTokens, unseen
from pilotfish.engine.stream import OnText, Pieces
from pilotfish.team import Messages

_CONNECT_S = 30.0
"""Seconds to open a socket; a host that swallows packets must not use up the call's whole time limit."""

# No outage, which would be recorded: whatever ended the run says nothing about the calls that it took along.
_CLOSED = wire.Fault("the engine was closed before this call was answered", final=True)


@dataclass(slots=True)
class Call:
    """What is asked, in every try alike."""

    body: bytes
    messages: Messages
    tokens: int
    """About how many it will use."""
    count: CountTokens
    """Counts a text's tokens when the server does not."""
    on_text: OnText | None = None
    told: bool = False
    """Some of an answer was given on: another try would say it twice."""


class Client:
    """A session of one event loop.

    Args:
        key: sent with each request, and taken out of what is said back.
        headers: sent with each request.
        connections: most at once.
        timeout_s: seconds a request may take.
    """

    def __init__(self, key: Key, headers: Mapping[str, str], connections: int, timeout_s: float) -> None:
        self._key = key
        self._timeout_s = timeout_s
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ttl_dns_cache=300),
            headers={"Content-Type": "application/json", "User-Agent": "pilotfish", **headers, **key.header()},
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_S, timeout_s)),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    @property
    def closed(self) -> bool:
        return self._session.closed

    async def close(self) -> None:
        await self._session.close()

    async def post(self, url: URL, proxy: str | None, call: Call) -> Completion | wire.Fault:
        """One request; a fault's words are fit to be shown."""
        outcome = await self._post(url, proxy, call)
        if isinstance(outcome, Completion):
            return outcome
        if self.closed:
            return _CLOSED
        why = wire.shorten(self._key.removed_from(outcome.why))
        if outcome.status == 401:
            why = f"{why}; {self._key.mended}"
        if outcome.astray:
            asked = self._key.removed_from(str(url.with_query(None)))
            why = f"{why}; asked was {asked}, and a base_url usually ends in /v1, without /chat/completions"
        return replace(outcome, why=why)

    async def _post(self, url: URL, proxy: str | None, call: Call) -> Completion | wire.Fault:
        if self.closed:
            return _CLOSED
        # Errors become faults here, so that what is raised later has no frame with the key behind it.
        try:
            # A redirect is a wrong base_url; following one would carry the key to another place.
            async with self._session.post(url, data=call.body, proxy=proxy, allow_redirects=False) as response:
                return await self._read(response, call)
        except TimeoutError as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            if connecting:
                return wire.Fault("could not connect in time")
            return wire.Fault(f"no answer within {self._timeout_s:g} s", usage=unseen(call.messages, call.count))
        except aiohttp.ClientConnectorCertificateError as error:
            return wire.Fault(f"certificate not trusted: {wire.clean(str(error))}", final=True)
        except (aiohttp.InvalidURL, UnicodeError) as error:
            return wire.Fault(wire.clean(f"{url.host} is no host: {error}"), final=True)
        except aiohttp.ClientPayloadError as error:
            return wire.Fault(wire.clean(f"the answer broke off: {error}"), usage=unseen(call.messages, call.count))
        except (aiohttp.ClientError, OSError) as error:
            return wire.Fault(wire.clean(f"{type(error).__name__}: {error}"))

    async def _read(self, response: aiohttp.ClientResponse, call: Call) -> Completion | wire.Fault:
        if call.on_text is not None and response.content_type == "text/event-stream" and response.status == 200:
            return await self._read_pieces(response, call, call.on_text)
        raw = await response.read()
        outcome = wire.read_response(response.status, response.headers, raw, call.messages, call.count)
        if call.on_text is not None and isinstance(outcome, Completion) and outcome.text:
            call.on_text(outcome.text)
        return outcome

    async def _read_pieces(
        self, response: aiohttp.ClientResponse, call: Call, on_text: OnText
    ) -> Completion | wire.Fault:
        pieces = Pieces(on_text)
        async for data in response.content.iter_any():
            pieces.feed(data)
            call.told = pieces.told
        body = pieces.body()
        if body is None:
            return wire.Fault("the stream broke off before the answer's end", usage=unseen(call.messages, call.count))
        return wire.read_body(body, response.headers, call.messages, call.count)
