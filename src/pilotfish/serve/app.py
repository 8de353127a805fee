"""The server's endpoints, put together.

app = app_of(offers, manner, config, keys, judge=pool.judge)        # an ASGI application, for any server
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pilotfish.episode import Journal, Judge
from pilotfish.serve.asked import Manner
from pilotfish.serve.completions import Completions
from pilotfish.serve.config import ServeConfig
from pilotfish.serve.endpoint import offered
from pilotfish.serve.episodes import Episodes
from pilotfish.serve.errors import ApiError
from pilotfish.serve.guard import Guard
from pilotfish.serve.keys import Keys
from pilotfish.serve.offers import Offer
from pilotfish.serve.player import Player

PLAYGROUND = Path(__file__).parent / "playground"
STYLES = Path(__file__).parents[1] / "report" / "page.css"
"""Colours and fonts, which the playground has in common with the report and the viewer."""


async def _nothing() -> None:
    return None


def app_of(
    offers: dict[str, Offer],
    manner: Manner,
    config: ServeConfig,
    keys: Keys,
    *,
    judge: Judge,
    record: Journal | None = None,
    close: Callable[[], Awaitable[None]] = _nothing,
) -> Starlette:
    """An application that serves a team.

    Args:
        offers: its models by name.
        manner: how answers are written and judged where a request does not say.
        config: limits.
        keys: of those who may ask.
        judge: gives verdicts where a gold answer is known.
        record: keeps what is asked and answered.
        close: awaited at the end, in the event loop that the engines were asked in.
    """
    player = Player(judge, config, record)
    completions = Completions(player, offers, manner)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await close()

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        return Response(player.metrics.page(), media_type="text/plain; version=0.0.4")

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model(offer) for offer in offers.values()]})

    async def model(request: Request) -> Response:
        return JSONResponse(_model(offered(offers, request.path_params["name"])))

    async def styles(request: Request) -> Response:
        return FileResponse(STYLES)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/metrics", metrics),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", model),
            Route("/v1/chat/completions", completions.chat, methods=["POST"]),
            Route("/v1/completions", completions.text, methods=["POST"]),
            Route("/v1/team/episodes", Episodes(player, offers, manner).play, methods=["POST"]),
            Route("/report.css", styles),
            Mount("/", StaticFiles(directory=PLAYGROUND, html=True)),
        ],
        middleware=[Middleware(Guard, config=config, keys=keys, metrics=player.metrics)],
        exception_handlers={ApiError: _refused, HTTPException: _http},
        lifespan=lifespan,
    )


def _model(offer: Offer) -> dict[str, Any]:
    seats = [{"name": name, "trainee": seat.trainee} for name, seat in offer.team.members.items() if not seat.judges]
    own = {"topology": offer.topology.name, "trained": offer.trained, "members": seats}
    return {"id": offer.name, "object": "model", "created": 0, "owned_by": "pilotfish", "pilotfish": own}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return ApiError(error.status_code, error.detail, "no_such_path" if error.status_code == 404 else "http").response()
