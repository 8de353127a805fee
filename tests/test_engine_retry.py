"""How long a retry waits, and what `Retry-After` says in its forms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from pilotfish.engine.retry import LONGEST_BACKOFF_S, LONGEST_WAIT_S, retry_after_s, wait_before

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def in_http(date: datetime) -> str:
    return format_datetime(date, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "9", "retry-after-ms": "250"}, 0.25),
        ({"Retry-After": in_http(NOON + timedelta(seconds=40)), "Date": in_http(NOON)}, 40.0),
        ({"Retry-After": in_http(NOON - timedelta(seconds=40)), "Date": in_http(NOON)}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_date_is_compared_with_this_clock_where_the_server_tells_no_date() -> None:
    seconds = retry_after_s({"Retry-After": in_http(datetime.now(UTC) + timedelta(hours=1))})
    assert seconds is not None
    assert 3500 < seconds <= 3600


def test_waits_double_up_to_a_bound_and_differ() -> None:
    for retry in range(1, 8):
        assert 0.25 * 2 ** (retry - 1) <= wait_before(retry) <= 0.5 * 2 ** (retry - 1)
    assert wait_before(10_000) <= LONGEST_BACKOFF_S
    assert len({wait_before(3) for _ in range(10)}) > 1


def test_what_the_server_asks_is_a_lower_bound_that_is_itself_bounded() -> None:
    assert 7.0 <= wait_before(1, 7.0) <= 7.7
    assert 0.0 <= wait_before(5, 0.0) <= 0.5
    assert LONGEST_WAIT_S <= wait_before(1, 365 * 86400.0) <= 1.1 * LONGEST_WAIT_S
