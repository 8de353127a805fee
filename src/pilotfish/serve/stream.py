"""Answers to clients that may leave: work is cancelled when they do, and a stream tells that it is alive.

return await answered(request, work(), seconds=600)        # a plain answer
return Events(work, seconds=600, keep_alive_s=10)          # server-sent events, as `work` puts them
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pilotfish.serve.errors import told
from pilotfish.serve.form import event

Put = Callable[[bytes], None]
"""Takes an event that is to be sent."""
GONE = 499
"""The status of an answer that nobody waits for any more, for the counters."""
LAST_WORDS_S = 5.0
"""Seconds that a client has to take the reason why its stream ends."""

_log = logging.getLogger(__name__)


async def answered(request: Request, work: Coroutine[Any, Any, Response], seconds: float) -> Response:
    """The response that work comes to, or the error; nothing where the client has left, and the work is cancelled.

    Args:
        request: whose body is read.
        work: makes the response.
        seconds: it may take.
    """
    doing = asyncio.create_task(work)
    gone = asyncio.create_task(_left(request.receive))
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else Response(status_code=GONE)
    except (Exception, asyncio.CancelledError) as error:
        return told(error).response()
    finally:
        await _end(doing, gone)


class Events(Response):
    """A stream of server-sent events.

    The status is sent with the first event or sign of life: what fails before that has a status of its own.

    Args:
        work: does what is asked, and puts events.
        seconds: it may take.
        keep_alive_s: after so many seconds of silence a comment is sent.
    """

    media_type = "text/event-stream"

    def __init__(self, work: Callable[[Put], Awaitable[None]], seconds: float, keep_alive_s: float) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._work = work
        self._seconds = seconds
        self._keep_alive_s = keep_alive_s
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        doing = asyncio.ensure_future(self._work(queue.put_nowait))
        gone = asyncio.create_task(_left(receive))
        for task in (doing, gone):
            task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            async with asyncio.timeout(self._seconds):
                await self._send_all(queue, send)
                if doing.done():
                    doing.result()
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                else:
                    self.status_code = GONE
        except (Exception, asyncio.CancelledError) as error:
            doing.cancel()
            with suppress(TimeoutError):  # whoever does not read is told nothing
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._fail(error, scope, receive, send)
        finally:
            await _end(doing, gone)

    async def _send_all(self, queue: asyncio.Queue[bytes | None], send: Send) -> None:
        """Send what comes, until the work is done or the client has left."""
        while True:
            try:
                events = [await asyncio.wait_for(queue.get(), self._keep_alive_s)]
            except TimeoutError:
                events = [b": the team is at work\n\n"]
            while not queue.empty():
                events.append(queue.get_nowait())
            if body := b"".join(one for one in events if one is not None):
                await self._send(body, send)
            if None in events:
                return

    async def _send(self, body: bytes, send: Send) -> None:
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _fail(self, error: BaseException, scope: Scope, receive: Receive, send: Send) -> None:
        found = told(error)
        if not self._begun:
            await found.response()(scope, receive, send)
            return
        await self._send(event(found.body(), "error"), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
