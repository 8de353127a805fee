"""The garbage collector while rows are played: it looks seldom, and as usual again afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish import Journal
from pilotfish.engine.base import Refused
from pilotfish.topology import hint
from pilotfish.train.rollout import COLLECTED_AFTER
from scene import Scene


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield gc.get_threshold()
    gc.set_threshold(*before)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    journal = Journal(tmp_path / "journal")
    yield Scene(journal, hint)
    journal.close()


def test_the_collector_looks_seldom_while_rows_are_played(scene: Scene, usual: tuple[int, int, int]) -> None:
    seen: list[tuple[int, int, int]] = []
    judge = scene.rollout.judge

    async def looking(*asked: object) -> object:
        seen.append(gc.get_threshold())
        return await judge(*asked)  # type: ignore[arg-type]

    scene.rollout.judge = looking  # type: ignore[assignment]
    scene.step()
    assert set(seen) == {(COLLECTED_AFTER, 11, 12)}
    assert gc.get_threshold() == usual


def test_it_is_as_usual_again_after_an_error(scene: Scene, usual: tuple[int, int, int]) -> None:
    def refuse(*asked: object) -> str:
        raise Refused("no such model")

    scene.actor._reply = refuse  # type: ignore[assignment]
    with pytest.raises(Refused):
        scene.step()
    assert gc.get_threshold() == usual


def test_a_collector_that_is_off_stays_off(scene: Scene, usual: tuple[int, int, int]) -> None:
    gc.set_threshold(0, 11, 12)
    scene.step()
    assert gc.get_threshold() == (0, 11, 12)
