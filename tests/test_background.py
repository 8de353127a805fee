"""The loop beside synchronous code: an error ends its own episode, and `close` whatever else is still under way."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator

import pytest

from pilotfish.background import Background
from pilotfish.engine.base import CallFailed, Completion
from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.episode import Journal, Scopes, Team, play
from pilotfish.task import Task
from pilotfish.team import Member
from pilotfish.topology import topology
from stage import journal, judge


class Slow:
    """Answers nobody; its calls fail when it is closed, as those of an engine in process do."""

    identity, version = None, 0

    def __init__(self) -> None:
        self.asked = 0
        self.closed = asyncio.Event()

    async def complete(self, messages, sampling, seed) -> Completion:
        self.asked += 1
        await self.closed.wait()
        raise CallFailed("the engine was closed before this call was answered")

    async def close(self) -> None:
        self.closed.set()
        for _ in range(9):  # what waits for it goes on
            await asyncio.sleep(0)


@topology
async def three_at_once(task: Task, room):
    await room.ask("quick", task.id)
    if task.id == "broken":
        raise ValueError("a mistake in the topology")
    return (await room.gather(*(room.ask("slow", str(number)) for number in range(3))))[0]


def begun(background: Background, slow: Slow, record: Journal, ids: list[str]) -> None:
    """Plays of which the last one raises an error."""
    engines = {"slow": slow, "quick": ScriptedEngine(lambda messages, sampling, seed: "at once")}
    team = Team({name: Member(name, "none") for name in engines}, engines)

    async def plays() -> None:
        each = (play(Task(id, "?", "4"), three_at_once, team, record, Scopes(id), judge=judge) for id in ids)
        await asyncio.gather(*each)

    with pytest.raises(ValueError, match="a mistake in the topology"):
        background.run(plays())


@pytest.fixture
def record() -> Iterator[Journal]:
    with journal() as opened:
        yield opened


def test_calls_that_an_error_beside_them_took_along_are_not_recorded_as_outages(record: Journal) -> None:
    slow, background = Slow(), Background()
    begun(background, slow, record, ["t1", "t2", "broken"])
    background.cancel()
    background.run(slow.close())
    background.close()
    assert slow.asked > 0
    assert {turn.member for turn in record.turns()} == {"quick"}
    assert list(record.episodes()) == []


def test_nothing_is_left_of_episodes_that_had_just_begun(caplog: pytest.LogCaptureFixture) -> None:
    """Else Python says of a call that had not begun that it was never awaited, and of others that they are pending."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with journal() as record:
            background = Background()
            begun(background, Slow(), record, [*(f"t{number}" for number in range(20)), "broken"])
            background.close()
        del record, background
        gc.collect()
    assert [str(warning.message) for warning in said] == []
    assert caplog.messages == []
