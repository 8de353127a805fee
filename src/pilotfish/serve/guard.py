"""The guard in front of all endpoints: who may ask, from where, how often and how much; and what every answer carries.

A page of another site that a browser shows could send requests to this machine, so a request must name this server as
its host, come from no other origin, and bring JSON. Nothing is allowed across origins.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pilotfish.engine.limits import Bucket
from pilotfish.serve.config import ServeConfig
from pilotfish.serve.errors import ApiError, told
from pilotfish.serve.keys import Keys
from pilotfish.serve.metrics import Metrics

LOCAL = ("localhost", "127.0.0.1", "::1")
CALLERS = 10_000
"""Most callers whose rate is remembered."""
BURST_S = 10.0
"""What so many seconds bring may come at once: a crowd of clients starts together."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""On every answer: nothing runs that is not this server's own."""


class Guard:
    """ASGI middleware.

    Args:
        app: what is guarded.
        config: limits.
        keys: of those who may ask; where there are none, nobody needs one.
        metrics: count the answers.
    """

    def __init__(self, app: ASGIApp, config: ServeConfig, keys: Keys, metrics: Metrics) -> None:
        self._app = app
        self._config = config
        self._keys = keys
        self._metrics = metrics
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            self._check(scope)
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            pass  # in the middle of its own request
        except (Exception, asyncio.CancelledError) as error:
            found = told(error)
            if not answer.status:
                await found.response()(scope, receive, answer)
        finally:
            path = scope["path"] if scope["path"] in KNOWN else "other"
            self._metrics.requests.labels(path, str(answer.status or 499)).inc()

    def _check(self, scope: Scope) -> None:
        """Raises ApiError: the request does not get through."""
        headers = Headers(scope=scope)
        self._check_place(headers)
        if not scope["path"].startswith("/v1/") and scope["path"] != "/metrics":
            return
        address = scope["client"][0] if scope.get("client") else ""
        caller = self._keys.caller(headers.get("authorization", "")) if self._keys else address
        self._check_rate(caller or address)
        if caller is None:
            raise ApiError(401, "no API key, or a wrong one; send `Authorization: Bearer KEY`", "invalid_api_key")
        scope["caller"] = caller
        if scope["method"] == "POST":
            self._check_body(headers)

    def _check_place(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._config.local and _name(f"//{host}") not in (*LOCAL, self._config.host):
            raise ApiError(421, f"this server is not {host[:80]!r}", "wrong_host")
        origin = headers.get("origin")
        if origin and origin.partition("://")[2] != host:
            raise ApiError(403, "requests from pages of other sites are not answered", "wrong_origin")

    def _check_body(self, headers: Headers) -> None:
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(415, "send JSON, with `Content-Type: application/json`", "wrong_content_type")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._config.body_bytes:
            raise ApiError(413, f"a request may have {self._config.body_bytes} bytes", "body_too_large")

    def _check_rate(self, caller: str) -> None:
        bucket = self._buckets.pop(caller, None) or Bucket(self._config.requests_per_minute, BURST_S)
        self._buckets[caller] = bucket
        if len(self._buckets) > CALLERS:
            self._buckets.popitem(last=False)
        if wait := bucket.wait(1, time.monotonic()):
            why = f"more than {self._config.requests_per_minute:g} requests a minute; slow down"
            raise ApiError(429, why, "rate_limit_exceeded", retry_after=wait)
        bucket.take(1)


def _name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


KNOWN = ("/", "/health", "/metrics", "/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/team/episodes")
"""Paths that are counted by their name: a client could make up any number of others."""


class _Answer:
    """Adds headers to an answer and remembers its status."""

    def __init__(self, send: Send) -> None:
        self.status = 0
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=message["headers"])
            headers.update(HEADERS)
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)
