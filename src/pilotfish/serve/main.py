"""`serve`: a finished run in, its team behind an OpenAI-compatible server.

from pilotfish import Run, serve
run = Run("runs/quickstart")
serve(run.recipe, run)                     # until it is interrupted
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from starlette.applications import Starlette

from pilotfish.engine.meter import Meter
from pilotfish.outcome import outcomes
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.serve.app import app_of
from pilotfish.serve.asked import manner_of
from pilotfish.serve.config import ServeConfig
from pilotfish.serve.door import server_of
from pilotfish.serve.keys import Keys, keys_in
from pilotfish.serve.offers import has_weights, offers_of
from pilotfish.serve.rehearsal import rehearse
from pilotfish.verify import VerifierPool

BACKLOG = 1024
"""Most connections that wait to be taken."""


def serve(recipe: Recipe, run: Run, *, told: Callable[[str], None] = lambda line: None) -> None:
    """Serve a run's team until the process is interrupted.

    Args:
        recipe: the run's; its `serve` section says where and how much.
        run: its best weights sit in the trainee's seat.
        told: called with news.

    Raises:
        RecipeError: it would let others in without keys, or the port is taken.
        Refused: no key where one is named, or weights that cannot be loaded.
    """
    config = recipe.serve
    _keys(config)
    with _bound(config) as door:  # what can be refused is, before weights are loaded
        app = open_app(recipe, run, told)
        door.listen(BACKLOG)
        told(f"http://{_shown(config.host)}:{door.getsockname()[1]}/v1; stop it with Ctrl-C")
        server_of(app).run([door])


def open_app(recipe: Recipe, run: Run, told: Callable[[str], None]) -> Starlette:
    """The application of a run, with its team loaded; ending its lifespan closes all that it holds."""
    config, keys = recipe.serve, _keys(recipe.serve)
    journal = run.journal(writable=config.record)
    meter = Meter(recorded=config.record) if recipe.max_cost else None
    seats, pool = Seats(recipe, journal, meter), VerifierPool()
    offers = offers_of(recipe, run, seats)
    for engine in offers["team"].team.engines.values():
        _ = engine.identity  # of weights it is a hash, which takes seconds the first time
    rehearse(offers["team"], told)
    for note in _about_weights(recipe, run):
        told(f"note: {note}")
    told(f"models: {', '.join(offers)}")

    async def close() -> None:
        await seats.close()
        pool.close()
        journal.close()

    record = journal if config.record else None
    return app_of(offers, manner_of(recipe), config, keys, judge=pool.judge, record=record, close=close)


def _about_weights(recipe: Recipe, run: Run) -> list[str]:
    """What a user of the server must know of the trainee's weights."""
    if recipe.trainee is None:
        return []
    if not has_weights(recipe, run):
        return [f"{run.folder} has no trained weights for {recipe.trainee}; it is served as before training"]
    return [f"{run.folder}: {one.note}" for one in outcomes(run)[-1:] if one.note]


def _keys(config: ServeConfig) -> Keys:
    keys = keys_in(config.key_env)
    if not config.local and not keys:
        raise RecipeError(
            f"serve.host {config.host} lets others in: name an environment variable with API keys in serve.key_env"
        )
    return keys


def _bound(config: ServeConfig) -> socket.socket:
    """A socket that holds the port; nobody can connect before it listens."""
    door = socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((config.host, config.port))
        return door
    except OSError as error:
        door.close()
        where = f"serve.host {config.host}, serve.port {config.port}"
        raise RecipeError(f"{where}: {error.strerror}; choose another with --port") from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
