"""A proxy between an engine and a server that lets some calls fail: for tests and for a soak.

    with MockServer(reply=reply) as server, FaultProxy(server.base_url, share=0.3, seed=1) as proxy:
        OpenAIEngine(model="mock", base_url=proxy.base_url)
        proxy.faulted            # how often each fault was made

In a process of its own, before any server:

    python tests/fault_proxy.py http://127.0.0.1:8000/v1 --share 0.3      # prints its base URL

A call that fails never reaches the server, so the server's own count is of answers.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import aiohttp
from aiohttp import web

from mock_server import Call, Failure, Fault, MockServer, fail

FAULTS: dict[str, Fault] = {
    "refused": "refused",
    "reset": "reset",
    "cut": "cut",
    "429": "429",
    "429 with Retry-After": Failure(429, '{"error": {"message": "slow down"}}', {"Retry-After": "2"}),
    "500": "500",
    "503": "503",
    "empty body": "empty",
    "truncated JSON": "truncated",
    "wrong content type": "text",
    "HTML error page": "html502",
    "HTML with 200": "html",
    "null content": "null",
    "error inside a 200": "error_inside",
    "hang": "hang",
}
"""What a retry mends, by name. `refused` shuts the door for a moment: nobody can connect."""
REFUSED_S = 0.002


class FaultProxy(MockServer):
    """Passes calls on, except for a share of them.

    Args:
        upstream: the server's base URL.
        share: of the calls that fail, drawn one by one.
        seed: of the draw.
        faults: names in FAULTS to draw from.
    """

    def __init__(self, upstream: str, share: float, seed: int = 0, faults: Sequence[str] = tuple(FAULTS)) -> None:
        super().__init__(fault=self._draw)
        self.upstream = upstream
        self.share = share
        self.faulted: Counter[str] = Counter()
        self.keep_requests = False
        self._names = list(faults)
        self._random = random.Random(seed)
        self._session: aiohttp.ClientSession | None = None
        self._door: web.TCPSite | None = None
        self._runner: web.AppRunner | None = None

    def _draw(self, _: Call) -> Fault:
        if self._random.random() >= self.share:
            return None
        name = self._random.choice(self._names)
        self.faulted[name] += 1
        return FAULTS[name]

    def _app(self) -> web.Application:
        app = super()._app()
        app.cleanup_ctx.append(self._line_to_the_server)
        return app

    async def _line_to_the_server(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._session:
            yield

    async def _open_door(self, runner: web.AppRunner, port: int) -> web.TCPSite:
        self._runner, self._door = runner, await super()._open_door(runner, port)
        return self._door

    async def _respond(self, call: Call, request: web.Request) -> web.StreamResponse:
        fault = self._draw(call)
        if fault == "refused":
            return await self._refuse(request)
        if fault is not None:
            return await fail(fault, request)
        self.answered += 1
        return await self._pass_on(request)

    async def _pass_on(self, request: web.Request) -> web.Response:
        assert self._session
        url = self.upstream.removesuffix("/v1") + request.path_qs
        kept = {name: value for name, value in request.headers.items() if name in ("Authorization", "Content-Type")}
        async with self._session.post(url, data=await request.read(), headers=kept) as response:
            headers = {"Content-Type": response.headers["Content-Type"]}
            return web.Response(status=response.status, body=await response.read(), headers=headers)

    async def _refuse(self, request: web.Request) -> web.Response:
        door, runner = self._door, self._runner
        if door is not None and runner is not None:
            self._door, port = None, runner.addresses[0][1]
            await door.stop()
            asyncio.get_running_loop().call_later(REFUSED_S, self._reopen, runner, port)
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _reopen(self, runner: web.AppRunner, port: int) -> None:
        self._opening = asyncio.ensure_future(self._open_again(runner, port))

    async def _open_again(self, runner: web.AppRunner, port: int) -> None:
        """A connection that found the door shut may hold its port for a moment."""
        while self._door is None:
            try:
                await self._open_door(runner, port)
            except OSError:
                await asyncio.sleep(REFUSED_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="A proxy that lets some calls fail.")
    parser.add_argument("upstream", help="the server's base URL")
    parser.add_argument("--share", type=float, default=0.3, help="of the calls that fail")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with FaultProxy(args.upstream, args.share, args.seed) as proxy:
        print(proxy.base_url, flush=True)
        sys.stdin.read()
        print(dict(proxy.faulted), file=sys.stderr)


if __name__ == "__main__":
    main()
