"""When to ask again: how long to wait after a failed try, and what the server's `Retry-After` says.

Waits double from half a second up to a minute and are spread at random, so that calls which failed together do not come
back together. What the server asks for is honoured as a lower bound, up to `LONGEST_WAIT_S`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_WAIT_S = 0.5
LONGEST_BACKOFF_S = 60.0
LONGEST_WAIT_S = 900.0
"""A `Retry-After` beyond this is cut to it: one odd header must not put a run to sleep for a day."""

_spread = random.Random()  # its own generator: training seeds the global one and counts on its state


def wait_before(retry: int, asked_s: float | None = None) -> float:
    """Seconds to wait before a retry.

    Args:
        retry: 1 for the first retry.
        asked_s: what the server asked for, in seconds, when it did.

    Returns:
        Between half of the doubled back-off and all of it; with `asked_s`, that much and up to a tenth of it, or
        `FIRST_WAIT_S`, more.
    """
    if asked_s is not None:
        least = min(asked_s, LONGEST_WAIT_S)
        return least + _spread.uniform(0.0, max(FIRST_WAIT_S, least / 10))
    backoff = min(LONGEST_BACKOFF_S, math.ldexp(FIRST_WAIT_S, min(retry - 1, 32)))
    return _spread.uniform(backoff / 2, backoff)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response's `Retry-After` asks to wait; None when it says nothing that can be read.

    Both forms of the header are read: seconds, and an HTTP date. A date is compared with the response's own `Date`
    where there is one, so that a wrong clock on either side does no harm. `retry-after-ms`, which some servers send for
    short waits, goes first.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("Retry-After")
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    until = _date(value)
    if until is None:
        return None
    now = _date(headers.get("Date")) or datetime.fromtimestamp(time.time(), UTC)
    return max(0.0, (until - now).total_seconds())


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _date(value: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(value or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
