"""A run whose episodes may end before the decision that is trained: it goes on, and says so where none ever comes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pilotfish import Verdict
from pilotfish.episode import Episode
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.train.main import train
from pilotfish.train.reach import Reach
from pilotfish.train.row import Row, RowId
from training import vowels_recipe

NEVER = "step {}: no row of {} has come to decision {} of late"
OWN = """
from pilotfish import topology

@topology
async def enough(task, room):
    said = await room.ask("collaborator", task.question)
    if not said.text.startswith("collaborator"):  # as filler does
        return "yes"
    return (await room.ask("collaborator", task.question + said.text)).text
"""


def row(decision: int, *, trained: bool = True, topology: int = 0, answer: str | None = "yes") -> Row:
    episode = Episode("e", "t", "hint", "s", (), answer, Verdict(None if answer is None else 1.0), "collaborator", 0.0)
    return Row(RowId("t", 0, decision, topology), [0], [0], [0.0], 1.0, trained=trained, episodes=(episode,))


def test_a_decision_that_no_row_comes_to_is_told_once_in_so_many_steps() -> None:
    reach = Reach(["hint", "critic"], every=2)
    here, gone = row(0), row(1, trained=False)
    assert list(reach.after(0, [here, gone])) == []
    (told,) = reach.after(1, [here, gone])
    assert told.startswith(NEVER.format(2, "hint", 1))
    assert list(reach.after(2, [row(1)])) == []
    assert list(reach.after(3, [gone])) == [], "one row came to it"
    failed = row(1, trained=False, answer=None)
    assert list(reach.after(4, [failed])) + list(reach.after(5, [failed])) == [], "an outage is no end"
    (told,) = [*reach.after(6, [row(1, trained=False, topology=1), row(1)]), *reach.after(7, [])]
    assert told.startswith(NEVER.format(8, "critic", 1))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Trains decision 1 of a topology that filler leads to it, and the trainee never does."""
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own.py").write_text(OWN)
    data = vowels_recipe(tmp_path, holdout=0, decision=1, steps=4, evaluate_every=2, save_every=1).model_dump(
        mode="json"
    )
    return parse_recipe({**data, "topology": f"{tmp_path / 'own.py'}:enough"})


class Cut(Exception):
    """The machine went down."""


def test_a_run_that_never_comes_to_its_decision_goes_on_is_resumed_and_says_so(
    made: Recipe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[str] = []

    def heard(kind: str, step: int, figures: Any) -> None:
        if kind.startswith("note: step"):
            notes.append(kind.removeprefix("note: "))
        if (kind, step) == ("step", 3) and len(notes) == 1:
            raise Cut

    with caplog.at_level(logging.WARNING), pytest.raises(Cut):
        train(made, tmp_path / "run", told=heard)
    notes.append("cut")
    run = train(made, tmp_path / "run", told=heard)
    assert [note.partition(" of late")[0] + " of late" for note in notes if note != "cut"] == [
        NEVER.format(2, "enough", 1),
        NEVER.format(4, "enough", 1),
    ]
    logged = [figures for figures in run.logged() if figures["kind"] == "step"]
    assert [figures["step"] for figures in logged] == [1, 2, 3, 4]
    for figures in logged:
        assert (figures["group/ended_early"], figures["team/no_verdict"], figures["grad_norm"]) == (1.0, 0.0, 0.0)
        assert figures["completions/clipped_ratio"] == 0.0
    assert "All reward functions returned None" not in caplog.text


def test_what_a_rehearsal_finds_is_told_before_the_first_step(made: Recipe, tmp_path: Path) -> None:
    far = parse_recipe({**made.model_dump(mode="json"), "train": {**made.train.model_dump(mode="json"), "decision": 9}})
    news: list[str] = []
    train(far, tmp_path / "run", told=lambda kind, step, figures: news.append(kind))
    assert news[0].startswith("note: train.decision 9: where everyone says filler, enough comes to 2 of collaborator")
    assert news[1] == "start"
