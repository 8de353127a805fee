"""What a client is told when it gets no answer. Its words hold no key, no path and no address: those are logged."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from starlette.responses import JSONResponse

from pilotfish.engine.base import Refused, TooLong
from pilotfish.engine.meter import MaxCostReached

RESTART_S = 15.0
"""When a client of a server that is told to stop may find the next one."""

_log = logging.getLogger(__name__)


class ApiError(Exception):
    """An answer in the form of OpenAI's errors.

    Args:
        status: of HTTP.
        message: for the client.
        code: for its program.
        param: the field that is wrong.
        retry_after: seconds after which another try makes sense; a stream has them in its `error` event.
    """

    def __init__(
        self, status: int, message: str, code: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        wait = {} if self.wait is None else {"retry_after": self.wait}
        return {"error": {"message": str(self), "type": kind, "code": self.code, "param": self.param, **wait}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, {} if self.wait is None else {"Retry-After": str(self.wait)})

    @property
    def wait(self) -> int | None:
        """`retry_after` in whole seconds, which is all that the header can say."""
        return None if self.retry_after is None else max(1, round(self.retry_after))


def told(error: BaseException) -> ApiError:
    """What a client hears of an error; all else that there is to say is logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TimeoutError):
        return ApiError(504, "the team took longer than a request may; ask for less", "timeout")
    if isinstance(error, TooLong):
        _log.warning("a call is too long: %s", error)
        why = "conversation and answer do not fit the context of a member; send less, or lower max_tokens"
        return ApiError(400, why, "context_length_exceeded", param="messages")
    if isinstance(error, MaxCostReached):
        _log.error("%s", error)
        return ApiError(402, "what this server may spend is spent", "max_cost_reached")
    if isinstance(error, Refused):
        _log.error("a member refused a call: %s", error)
        return ApiError(502, "a member of the team refuses such a call; the server's log says why", "member_refused")
    if isinstance(error, asyncio.CancelledError) and _stopping():
        return ApiError(503, "the server is told to stop; try again", "server_stops", retry_after=RESTART_S)
    _log.error("a request failed", exc_info=error)
    return ApiError(500, "the server failed; its log says why", "internal_error")


def _stopping() -> bool:
    """Whether this request was cancelled from outside: no engine's mishap, and not the end of its own time."""
    here = asyncio.current_task()
    return here is not None and here.cancelling() > 0
