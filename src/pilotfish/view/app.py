"""The viewer's server: pages and figures of one run, for a browser on the same machine.

    pilotfish view runs/hint            # http://127.0.0.1:7420
    uvicorn.run(app(Run("runs/hint")))

It reads, and writes nothing; a run that is at work is followed. The page is plain files without a build step, may load
nothing from elsewhere and runs no script but its own, whatever the models said.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pilotfish.episode import JournalError
from pilotfish.run import Run, RunError
from pilotfish.view import shown
from pilotfish.view.index import CHUNK, Index
from pilotfish.view.pages import PAGE, POLICY, page_files

PORT = 7420
HOSTS = ["127.0.0.1", "localhost"]
"""Names under which the page is given out: a name that somebody else's server resolves to this machine is not one."""
AT_ONCE = 64
"""Episodes that one request may ask for."""
LONGEST = len(str(2**48))
"""Digits of a mark."""
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def app(run: Run) -> Starlette:
    """The server of a run's pages.

    Args:
        run: it may be at work.
    """
    served = _Served(run)
    routes = [
        Route("/", served.page),
        Route("/data/about", served.about),
        Route("/data/state", served.state),
        Route("/data/rows/{chunk:int}", served.rows),
        Route("/data/episodes", served.episodes),
        Route("/data/curves", served.curves),
        Route("/{name}", served.page),
    ]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)
    return Starlette(
        routes=routes,
        middleware=[hosts],
        lifespan=served.lifespan,
        exception_handlers={JournalError: _unreadable},
    )


def serve(run: Run, listening: socket.socket) -> None:
    """Serve until interrupted.

    Args:
        run: whose episodes.
        listening: as `listen` made it.
    """
    import uvicorn

    config = uvicorn.Config(app(run), log_level="warning", lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


def listen(port: int = PORT) -> socket.socket:
    """A socket on loopback.

    Raises:
        RunError: the port is taken.
    """
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise RunError(f"view: port {port} cannot be had ({error.strerror}); name another one with --port") from error


class _Served:
    """What the answers to requests share. They are made in threads, so that a long one keeps none waiting."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.files = page_files()
        self.index = Index(run)
        self.journal = run.journal(writable=False)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self.index.close()
        self.journal.close()

    def page(self, request: Request) -> Response:
        name = request.path_params.get("name", PAGE)
        if name not in self.files:
            return PlainTextResponse("there is no such page\n", status_code=404, headers=HEADERS)
        content, kind = self.files[name]
        return Response(content, headers=HEADERS, media_type=kind)

    def about(self, request: Request) -> Response:
        return JSONResponse(shown.about(self.run), headers=HEADERS)

    def state(self, request: Request) -> Response:
        """How far the index has come; asked again until it is whole, and then now and again."""
        whole = self.index.read()
        return JSONResponse({"size": CHUNK, "chunks": self.index.versions, "whole": whole}, headers=HEADERS)

    def rows(self, request: Request) -> Response:
        chunk = self.index.chunk(request.path_params["chunk"])
        return JSONResponse(self.index.columns(chunk), headers=HEADERS)

    def episodes(self, request: Request) -> Response:
        asked = request.query_params.get("marks", "").split(",")[:AT_ONCE]
        marks = [int(mark) for mark in asked if mark.isdecimal() and len(mark) <= LONGEST]
        lines = [line for mark in marks if (line := self.index.marked(mark))]
        return JSONResponse(shown.episodes(lines, self.journal), headers=HEADERS)

    def curves(self, request: Request) -> Response:
        return JSONResponse(shown.curves(self.run), headers=HEADERS)


def _unreadable(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", status_code=500, headers=HEADERS)
