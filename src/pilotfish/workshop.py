"""The workshop: what the parts of a run share. Engines, the record, the judge, the loop that episodes are played on.

The stages of one recipe are played in one workshop, so that frozen members are loaded once.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from pilotfish.background import Background
from pilotfish.cache import cache_folder
from pilotfish.engine.meter import Meter
from pilotfish.episode import Journal
from pilotfish.processes import Processes
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.verify import VerifierPool

T = TypeVar("T")


class Workshop:
    """Opens at once, but for the engines, which load when they are first asked for.

    Args:
        recipe: whose team is seated.
        run: where the record is.
        meter: see `Seats`.
        processes: that have the run in hand together; this one alone when None.
    """

    def __init__(
        self, recipe: Recipe, run: Run, meter: Meter | None = None, processes: Processes | None = None
    ) -> None:
        self.processes = processes or Processes()
        self.background = Background()
        self.journal = run.journal()
        self.seats = Seats(recipe, self.journal, meter, self.processes)
        self.kept = Journal(cache_folder() / "answers", shared=True)
        self.pool = VerifierPool()

    def play(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for something that plays episodes."""
        return self.background.run(coroutine)

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *problem: object) -> None:
        self.background.cancel()  # first: calls that lose their engine would be recorded as outages
        self.background.run(self.seats.close())
        self.background.close()
        self.pool.close()
        self.journal.close()
        self.kept.close()
