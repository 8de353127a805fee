"""The index of a run: its lines, what they are compared with, and how it follows a run that is at work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pilotfish.episode import JournalError
from pilotfish.run import Run, append
from pilotfish.train.row_record import FILE
from pilotfish.view import index as module
from pilotfish.view.index import Index, Line, mark
from viewing import GROUP, TASKS, Recorder, begun, plain, recorded


def whole(run: Run) -> Index:
    index = Index(run)
    while not index.read():
        pass
    return index


def listed(index: Index) -> list[dict[str, Any]]:
    """The lines with their names, as a page sees them."""
    found = index.columns(index.lines)
    rows = [dict(zip(found["columns"], row, strict=True)) for row in zip(*found["columns"].values(), strict=True)]
    return [row | {name: codes[row[name]] for name, codes in found["names"].items()} for row in rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("view"))


def test_every_episode_has_one_line(run: Run) -> None:
    journal = run.journal(writable=False)
    index = whole(run)
    assert sorted(line.id for line in index.lines) == [episode.id for episode in journal.episodes()]
    assert [index.marked(line.mark) for line in index.lines] == index.lines
    journal.close()


def test_a_group_has_its_rewards_and_advantages(run: Run) -> None:
    rows = [row for row in listed(whole(run)) if (row["kind"], row["step"], row["task"]) == ("train", 1, "t0")]
    assert [row["row"] for row in rows] == list(range(GROUP))
    assert len({row["group"] for row in rows}) == 1
    assert [row["worth"] for row in rows] == [0.0, 1.0, 0.0, None]
    assert [row["advantage"] for row in rows] == pytest.approx([-0.57725, 1.154501, -0.57725, 0.0])


def test_training_and_evaluation_are_compared_with_the_actor_alone(run: Run) -> None:
    rows = [row for row in listed(whole(run)) if row["method"] != "solo"]
    alone = {row["task"]: row["alone"] for row in rows if row["kind"] == "train"}
    assert alone == {"t0": 1.0, "t1": 0.0}
    assert {row["task"]: row["alone"] for row in rows if row["kind"] == "eval"} == {**alone, "t2": 1.0, "t3": 0.0}
    assert {row["alone"] for row in rows if row["kind"] == "holdout"} == {None}


def test_the_steps_of_one_holdout_task_are_a_group(run: Run) -> None:
    rows = [row for row in listed(whole(run)) if row["task"] == "held 1"]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert len({row["group"] for row in rows}) == 1


def test_a_run_at_work_is_followed_and_only_what_changed_has_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", GROUP + 1)
    run = begun(tmp_path)
    recorder, index = Recorder(run, plain), Index(run)
    assert index.read()
    asyncio.run(recorder.step(0, TASKS[:1], float))
    assert index.read()
    first = list(index.versions)
    asyncio.run(recorder.step(1, TASKS[1:2], float))
    assert index.read()
    assert index.versions[:1] == first
    assert len(index.lines) == 2 * (GROUP + 1)
    assert index.read()
    assert index.versions[:1] == first
    recorder.journal.close()


def test_an_actor_that_is_played_later_changes_the_lines_that_are_compared_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 1)
    run = begun(tmp_path)
    recorder, index = Recorder(run, plain), Index(run)
    hinted, alone = (recorder.evaluated(TASKS[0], arm) for arm in ("trained", "solo"))
    asyncio.run(hinted)
    index.read()
    before = index.versions[0]
    assert listed(index)[0]["alone"] is None
    asyncio.run(alone)
    index.read()
    assert listed(index)[0]["alone"] == 1.0
    assert index.versions[0] > before
    recorder.journal.close()


def test_an_episode_that_was_played_again_keeps_its_line(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    index = whole(run)
    before = [line.id for line in index.lines]
    again = Recorder(run, plain)
    asyncio.run(again.evaluated(TASKS[0], "solo"))
    index.read()
    assert [line.id for line in index.lines] == before
    assert sorted(line.id for line in whole(run).lines) == sorted(before)
    again.journal.close()


def test_a_large_run_is_read_piece_by_piece(run: Run) -> None:
    index, lengths = Index(run), []
    while not index.read(10):
        lengths.append(len(index.lines))
    assert lengths[:3] == [10, 20, 30]
    assert {line.id for line in index.lines} == {line.id for line in whole(run).lines}


def test_a_line_that_a_killed_process_left_unfinished_is_read_when_it_is_whole(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    id = next(line.id for line in whole(run).lines if line.place.kind == "train")
    file, index = run.folder / FILE, whole(run)
    with file.open("a") as lines:
        lines.write('{"step": 5, "episodes": ["')
    index.read()
    append(file, [{"step": 6, "decision": 0, "episodes": [id], "rewards": [0.25], "advantages": [2.0]}])
    index.read()
    changed = [row for row in listed(index) if row["worth"] == 0.25]
    assert [row["advantage"] for row in changed] == [2.0]


def test_decisions_of_whole_episodes_each_have_their_reward(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    ids = [line.id for line in whole(run).lines if line.place.kind == "train"][:GROUP]
    worth = {0: ([1.0, 0.0, None, 0.5], [1.0, -1.0, 0.0, 0.0]), 2: ([0.5, 0.0, None, 0.0], [0.8, -0.8, 0.0, 0.1])}
    for decision, (rewards, advantages) in worth.items():
        told = {"step": 0, "decision": decision, "episodes": ids, "rewards": rewards, "advantages": advantages}
        append(run.folder / FILE, [told])
    rows = [row for row in listed(whole(run)) if row["mark"] in map(mark, ids)]
    assert [(row["worth"], row["advantage"]) for row in rows] == list(zip(*worth[0], strict=True))
    assert rows[0]["each"] == [(0, 1.0, 1.0), (2, 0.5, 0.8)]
    assert {row["each"] for row in listed(whole(run)) if row["mark"] not in map(mark, ids)} == {None}


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    run = begun(tmp_path)
    (run.folder / "journal").mkdir()
    (run.folder / "journal" / "1.db").write_text("no database at all, but long enough to be read as one" * 100)
    with pytest.raises(JournalError, match=r"1\.db: not a journal"):
        Index(run).read()


def test_marks_are_numbers_that_javascript_holds(run: Run) -> None:
    def is_held(line: Line) -> bool:
        return line.mark == int(float(line.mark)) < 2**53

    assert all(map(is_held, whole(run).lines))
