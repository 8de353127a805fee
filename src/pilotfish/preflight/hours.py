"""How long a run waits for answers, where the seconds of a call were measured.

    for stage, seconds in waiting(estimate.lines).items(): ...

The members of a stage are counted one behind the other, and the updates of the weights come on top. What runs in
process is as slow as it was in the sample, where few calls were in flight: with more of them it is faster.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilotfish.member import MemberConfig
from pilotfish.preflight.estimate import Line
from pilotfish.preflight.filler import Tally
from pilotfish.preflight.measured import Measured

Seconds = tuple[float, float]
"""At least, at most."""


def waiting(lines: Iterable[Line]) -> dict[str, Seconds]:
    """Seconds by stage, of the members that were measured."""
    found: dict[str, Seconds] = {}
    for line in lines:
        if line.measured is not None:
            seconds, before = _seconds(line, line.measured), found.get(line.stage, (0.0, 0.0))
            found[line.stage] = (before[0] + seconds[0], before[1] + seconds[1])
    return found


def _seconds(line: Line, measured: Measured) -> Seconds:
    """Each step waits for the slowest of its last calls: at most as long as the slowest that was measured."""
    calls = line.likely.calls / line.goes
    waves = max(1.0, calls / _places(line.seat, measured))
    least = max(line.goes * waves * measured.seconds.low, _pace(line.seat, line.least))
    most = line.goes * ((waves - 1) * measured.seconds.high + measured.seconds.most)
    return least, max(least, most, _pace(line.seat, line.most))


def _places(seat: MemberConfig, measured: Measured) -> float:
    """How many calls are in flight."""
    if seat.engine == "transformers":
        return measured.together or seat.concurrency
    return seat.concurrency * max(1, len(seat.addresses))


def _pace(seat: MemberConfig, tally: Tally) -> float:
    """Seconds that the server's own limits make of it."""
    calls = 60 * tally.calls / seat.requests_per_minute if seat.requests_per_minute else 0.0
    tokens = 60 * (tally.prompt + tally.completion) / seat.tokens_per_minute if seat.tokens_per_minute else 0.0
    return max(calls, tokens)
