"""The HTTP server around the application: it lets go of who never says what it wants, and ends what takes too long
with a reason when it is told to stop.

server_of(app).run([socket])
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 30.0
"""Seconds that a client may take from its first byte, or from the connection, to the end of a request's head."""
LEAVE_S = 8.0
"""Seconds that requests get to end once the server is told to stop; a container is killed after ten."""
LAST_WORDS_S = 2.0
"""Seconds after that, in which those that have not ended are told so."""


def server_of(app: Starlette) -> uvicorn.Server:
    """The HTTP server of an application."""
    quiet: dict[str, Any] = {"log_level": "error", "access_log": False, "server_header": False, "proxy_headers": False}
    ending = round(LEAVE_S + LAST_WORDS_S)
    return Door(
        uvicorn.Config(app, http=Patient, ws="none", timeout_keep_alive=65, timeout_graceful_shutdown=ending, **quiet)
    )


class Door(uvicorn.Server):
    """Cancels what has not ended in time, while there is still time to say so."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.get_running_loop().call_later(LEAVE_S, self._end)
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()

    def _end(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()


class Patient(H11Protocol):
    """One connection. Nothing else bounds the time before a request has begun."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None
