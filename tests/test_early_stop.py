"""Early stop: what is best, when patience runs out, and that a resumed run decides the same."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.train.early_stop import Decision, EarlyStop

values = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=20)


def decisions(stop: EarlyStop, series: list[float | None], first: int = 0) -> list[Decision]:
    return [stop.update(10 * step, value) for step, value in enumerate(series, start=first)]


def test_the_first_value_is_the_best_and_a_tie_is_not() -> None:
    found = decisions(EarlyStop(patience=9), [0.0, 0.0, 0.2, 0.1])
    assert [decision.best for decision in found] == [True, False, True, False]


def test_it_stops_when_patience_runs_out_and_not_before() -> None:
    found = decisions(EarlyStop(patience=2), [0.3, 0.4, 0.35, 0.39])
    assert [decision.stop for decision in found] == [False, False, False, True]


def test_progress_restores_patience() -> None:
    found = decisions(EarlyStop(patience=2), [0.3, 0.2, 0.4, 0.3, 0.5, 0.1])
    assert not any(decision.stop for decision in found)


def test_an_evaluation_without_a_value_is_neither_progress_nor_failure() -> None:
    stop = EarlyStop(patience=2)
    assert decisions(stop, [None, 0.3, None, nan, 0.2])[-1] == Decision(best=False, stop=False)
    assert stop.update(50, 0.1).stop
    assert EarlyStop(1).best_step is None


@given(values, st.data())
def test_a_resumed_run_decides_as_if_it_had_never_stopped(series: list[float | None], data: st.DataObject) -> None:
    whole = decisions(EarlyStop(3), series)
    cut = data.draw(st.integers(0, len(series)))
    again_from = data.draw(st.integers(0, cut))
    first, second = EarlyStop(3), EarlyStop(3)
    decisions(first, series[:cut])
    second.restore(first.to_json())
    assert decisions(second, series[again_from:], again_from) == whole[again_from:]


@given(values)
def test_it_has_ended_at_the_step_where_it_stops_and_at_no_other(series: list[float | None]) -> None:
    stop = EarlyStop(patience=2)
    assert not stop.ended(0)
    for step, value in enumerate(series, start=1):
        assert stop.update(step, value).stop == stop.ended(step)
        assert not stop.ended(step - 1)


def test_a_step_that_is_evaluated_again_forgets_what_came_later() -> None:
    before, resumed = EarlyStop(patience=2), EarlyStop(patience=2)
    decisions(before, [0.1, 0.5, 0.3])
    resumed.restore(before.to_json())
    assert resumed.update(10, 0.2) == Decision(best=True, stop=False)
    assert resumed.best_step == 10


@given(values)
def test_the_best_step_holds_the_largest_value(series: list[float | None]) -> None:
    stop = EarlyStop(patience=1)
    decisions(stop, series)
    measured = [value for value in series if value is not None]
    expected = 10 * series.index(max(measured)) if measured else None
    assert stop.best_step == expected


def test_a_patience_that_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="patience is 0"):
        EarlyStop(0)
