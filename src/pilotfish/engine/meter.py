"""A meter on what a run spends: engines behind it make no further call once the run's `max_cost` is spent.

    meter = Meter(most=5.0, spent=1.2)              # what the journal says was spent before
    engine = Metered(engine, meter, price, places=64)
    print(meter.spent, meter.tokens)                # at any time: the command line shows it while a run goes on

What was in flight at that moment is answered, recorded and paid, and nothing beyond: a call is admitted when a place is
free for it, not when it gets into line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from pilotfish.engine.base import Completion, Engine, Refused, Wrapped, accounted
from pilotfish.team import Price, Usage


class MaxCostReached(Refused):
    """The run has spent what it may."""


class Meter:
    """Counts money, and the tokens of everybody.

    Args:
        most: where it stops, in the recipe's currency; None for nowhere.
        spent: before it was opened.
        recorded: whether the run's record holds what is spent from here on, as it does not of a server without
            `serve.record`.
    """

    def __init__(self, most: float | None = None, spent: float = 0.0, *, recorded: bool = True) -> None:
        self.begin(most, spent)
        self._recorded = recorded
        self.priced = most is not None
        """Whether anybody has a price."""
        self.tokens = 0
        """Of prompts and answers; set to what was used before it was opened, as `spent` is."""
        self._flying = 0
        self._landed = asyncio.Event()

    def begin(self, most: float | None, spent: float, processes: int = 1) -> None:
        """Count from here on.

        Args:
            most: where all processes together stop.
            spent: by all of them, so far.
            processes: that spend beside one another: none sees what the others spend, so each has its part of what is
                left.
        """
        self.most, self.spent, self._processes = most, spent, processes
        self._end = None if most is None else spent + max(0.0, most - spent) / processes

    async def admit(self) -> None:
        """Let a call pass; `settle` must follow.

        Raises:
            MaxCostReached: all is spent. Raised when no call is in flight any more, so that none is lost unrecorded.
        """
        if self._end is not None and self.spent >= self._end:
            while self._flying:
                await self._landed.wait()
            raise MaxCostReached(self._why())
        self._flying += 1
        self._landed.clear()

    def _why(self) -> str:
        if not self._recorded:
            return (
                f"max_cost is {self.most:g}, and this run and this server have spent {self.spent:.4g}: no further call "
                "is made. Nothing of the server's part is recorded, and the next one counts from the run's record; "
                f"--record counts it for good, --set max_cost=… above {self.spent:.4g} goes on"
            )
        kept = "no further call is made. What was answered is recorded and is not paid again; the same command"
        if self.spent < (self.most or 0.0):
            return (
                f"max_cost is {self.most:g}, and one of {self._processes} processes has spent its part of it: {kept} "
                "divides what is left anew, with --set max_cost=… there is more"
            )
        return (
            f"max_cost is {self.most:g}, and this run has spent {self.spent:.4g}: {kept} goes on with --set max_cost=… "
            f"above {self.spent:.4g}"
        )

    def settle(self, money: float) -> None:
        """Charge a call that was let pass; 0 for one that nobody will bill."""
        self.spent += money
        self._flying -= 1
        if not self._flying:
            self._landed.set()


class Metered(Wrapped):
    """An engine behind a meter.

    Args:
        engine: that is asked.
        meter: shared by all engines of a run.
        price: of the member that asks; who has none may go on when all is spent.
        places: most calls in flight; None where the engine takes all at once.
    """

    def __init__(self, engine: Engine, meter: Meter, price: Price, places: int | None = None) -> None:
        super().__init__(engine)
        self.meter = meter
        self.price = price
        self._places: AbstractAsyncContextManager[None] = asyncio.Semaphore(places) if places else nullcontext()

    async def around(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        async with self._places if self.price.paid else nullcontext():
            if self.price.paid:
                await self.meter.admit()
            return await accounted(ask, self._settle)

    def _settle(self, used: Usage | None) -> None:
        used = used or Usage()
        self.meter.tokens += used.total
        if self.price.paid:
            self.meter.settle(used.cost(self.price))
