"""Stored answers as files: what is exported comes back as it was, and a file that does not fit is refused by name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collecting import Led, answer, collect_led, recipe, step
from mock_server import MockServer
from pilotfish import Run, collect
from pilotfish.collect.exchange import export, read
from pilotfish.collect.store import Store
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.task import TaskError

TRAIN = {"group_size": 2, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 4}
NAMES = ["answers.jsonl", "answers.jsonl.gz", "answers.parquet"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=answer) as opened:
        yield opened


@pytest.fixture
def whole(server: MockServer, tmp_path: Path) -> Recipe:
    return recipe(tmp_path, server.base_url, train={**TRAIN, "prefix": "stored"})


def exported(whole: Recipe, folder: Path, name: str = "answers.jsonl") -> Path:
    """Answers of round 0, collected and written to a file."""
    collect(whole, folder / "first")
    export(Run(folder / "first"), folder / name)
    return folder / name


def rewritten(file: Path, **fields: Any) -> None:
    """Set fields of every row of a JSON lines file."""
    rows = [{**json.loads(line), **fields} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def changed(whole: Recipe, **fields: Any) -> Recipe:
    return parse_recipe({**whole.model_dump(mode="json"), **fields})


@pytest.mark.parametrize("name", NAMES)
def test_training_on_imported_answers_asks_no_agent(
    name: str, whole: Recipe, server: MockServer, tmp_path: Path
) -> None:
    file = exported(whole, tmp_path, name)
    calls = server.calls
    found = collect(whole, tmp_path / "second", answers=file)
    rows = step(whole, tmp_path / "second")
    assert server.calls == calls
    assert (found.sets, found.answers) == (8, 16)
    assert Store(tmp_path / "second").verdicts() == Store(tmp_path / "first").verdicts()
    assert all(row.trained for row in rows)
    assert collect(whole, tmp_path / "second").answers == 16
    assert server.calls == calls, "nothing lacks"


@pytest.mark.parametrize("name", NAMES)
def test_a_second_export_holds_the_same_rows(name: str, whole: Recipe, tmp_path: Path) -> None:
    file = exported(whole, tmp_path, name)
    collect(whole, tmp_path / "second", answers=file)
    assert export(Run(tmp_path / "second"), tmp_path / "again" / name) == 16
    assert list(read(tmp_path / "again" / name)) == list(read(file))


def test_a_row_says_what_was_asked_of_whom_and_how_right_it_is(whole: Recipe, tmp_path: Path) -> None:
    row = json.loads(exported(whole, tmp_path).read_text().splitlines()[1])
    assert (row["task"], row["set"], row["round"], row["agent"], row["copy"]) == ("t0", 0, 0, "bob", 0)
    assert (row["model"], row["revision"], row["sampling"]["temperature"]) == ("model-bob", None, 0.7)
    assert row["messages"][-1]["content"].startswith("What is 0 + 7?")
    assert row["reward"] == float("boxed{7}" in row["text"])
    assert (row["finish_reason"], row["tokens"]["completion"], row["leader"]) == ("stop", 3, None)


@pytest.mark.parametrize("name", NAMES)
def test_shaped_answers_come_back_with_the_words_of_their_leader(name: str, server: MockServer, tmp_path: Path) -> None:
    shaped = recipe(tmp_path, server.base_url, train={**TRAIN, "prefix": "shaped", "decision": 1})
    collect_led(shaped, tmp_path / "first", (1,), Led())
    assert export(Run(tmp_path / "first"), tmp_path / name) == 8 * (2 + 1 + 2)
    calls = server.calls
    collect(shaped, tmp_path / "second", rounds=(1,), answers=tmp_path / name)
    stores = [Store(tmp_path / folder) for folder in ("first", "second")]
    assert stores[0].shaped == stores[1].shaped
    assert stores[0].verdicts() == stores[1].verdicts()
    rows = step(shaped, tmp_path / "second", 1)
    assert server.calls == calls
    assert all("leader-1" in row.episodes[0].decisions(0)[0].turn.text for row in rows)


def test_absent_answers_stay_absent(server: MockServer, whole: Recipe, tmp_path: Path) -> None:
    server.fault = lambda call: "500" if call.body["model"] == "model-bob" else None
    file = exported(whole, tmp_path)
    server.fault = None
    found = collect(whole, tmp_path / "second", answers=file)
    assert (found.answers, found.absent) == (8, 8)
    assert Store(tmp_path / "second").verdicts() == Store(tmp_path / "first").verdicts()


def test_copies_keep_their_places(server: MockServer, tmp_path: Path) -> None:
    copies = {"name": "leader", "options": {"agents": ["ann", "ann", "ann", "bob"]}}
    whole = recipe(tmp_path, server.base_url, topology=copies)
    file = exported(whole, tmp_path)
    assert [row.copy for row in read(file)][:4] == [0, 1, 2, 0]
    collect(whole, tmp_path / "second", answers=file)
    export(Run(tmp_path / "second"), tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_text() == file.read_text()


def test_greedy_answers_are_found_under_the_name_of_their_deployment(server: MockServer, tmp_path: Path) -> None:
    greedy = recipe(tmp_path, server.base_url, temperature=0.0, train={**TRAIN, "prefix": "stored"})
    file = exported(greedy, tmp_path)
    (tmp_path / "cache" / "answers" / "answers.db").unlink()
    calls = server.calls
    collect(greedy, tmp_path / "second", answers=file)
    step(greedy, tmp_path / "second")
    assert server.calls == calls


def test_who_is_absent_in_the_file_that_a_recipe_names_is_not_asked(
    server: MockServer, whole: Recipe, tmp_path: Path
) -> None:
    server.fault = lambda call: "500" if call.body["model"] == "model-bob" else None
    file = exported(whole, tmp_path)
    server.fault, calls = None, server.calls
    named = changed(whole, collect={"sets": 2, "answers": str(file)})
    for _ in range(2):
        assert collect(named, tmp_path / "second").absent == 8
    assert server.calls == calls


def test_the_recipe_can_name_the_file(whole: Recipe, server: MockServer, tmp_path: Path) -> None:
    file = exported(whole, tmp_path)
    calls = server.calls
    named = changed(whole, collect={"sets": 2, "answers": str(file)})
    collect(named, tmp_path / "second")
    assert server.calls == calls
    leader = Led()
    collect_led(named, tmp_path / "third", (1,), leader)
    assert (server.calls, leader.calls) == (calls + 8 * 2, 8), "round 0 is read, round 1 is asked"


def test_a_file_of_other_tasks_is_refused_by_name(whole: Recipe, tmp_path: Path) -> None:
    file = exported(whole, tmp_path)
    tasks = tmp_path / "tasks.jsonl"
    text = tasks.read_text()
    tasks.write_text(text.replace("What is 3", "What is 2 +1"))
    with pytest.raises(RecipeError, match=r"answers.jsonl: .*1 tasks ask something else .*'t3' is the first"):
        collect(whole, tmp_path / "second", answers=file)
    tasks.write_text(text + '{"id": "t9", "question": "What is 9 + 7?", "answer": "16"}\n')
    with pytest.raises(RecipeError, match=r"answers.jsonl: .*1 of 5 tasks are not among them \('t9'"):
        collect(whole, tmp_path / "third", answers=file)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "other"}, "agent ann: model 'other' was collected, the recipe's is 'model-ann'"),
        ({"revision": "v2"}, "agent ann: revision 'v2' was collected"),
        ({"sampling": {"temperature": 0.1}}, "agent ann: sampling .*0.1"),
        ({"agent": "eve"}, "agent eve is not in the recipe"),
    ],
)
def test_a_file_of_another_model_or_sampling_is_refused_by_name(
    fields: dict[str, Any], said: str, whole: Recipe, tmp_path: Path
) -> None:
    file = exported(whole, tmp_path)
    rewritten(file, **fields)
    with pytest.raises(RecipeError, match=said):
        collect(whole, tmp_path / "second", answers=file)


def test_a_file_of_another_prompt_version_is_refused_with_the_words(whole: Recipe, tmp_path: Path) -> None:
    file = exported(whole, tmp_path)
    prompts = {"name": "leader", "prompts": {"solve": {"user": "{question} Be brief. {instruction}"}}}
    with pytest.raises(RecipeError, match=r"another version of the prompts .*'What is 0 .*Be brief.* here"):
        collect(changed(whole, topology=prompts), tmp_path / "second", answers=file)


def test_a_file_that_lacks_answers_says_how_many(whole: Recipe, tmp_path: Path) -> None:
    file = exported(whole, tmp_path)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-3]))
    with pytest.raises(RecipeError, match=r"lacks 1 of 8 sets of answers \(t3 set 1\)"):
        collect(whole, tmp_path / "second", answers=file)
    assert not (tmp_path / "second" / "store.json").exists()
    file.write_text("".join(lines[1:]))
    with pytest.raises(RecipeError, match=r"ann: .*task t0, set 0: no answer is there"):
        collect(whole, tmp_path / "third", answers=file)
    with pytest.raises(RecipeError, match=r"has rounds 0 of answers, and 1 is wanted"):
        collect(whole, tmp_path / "fourth", rounds=(1,), answers=file)


def test_files_that_are_none_are_refused_by_name(whole: Recipe, tmp_path: Path) -> None:
    for name, text, error, said in (
        ("a.csv", "", RecipeError, "read and written as .jsonl, .jsonl.gz, .parquet"),
        ("b.jsonl", "{\n", TaskError, "b.jsonl:1: not JSON"),
        ("c.jsonl", '{"task": "t0"}\n', RecipeError, "c.jsonl: row 1 is no stored answer"),
        ("d.parquet", "no", RecipeError, "d.parquet: not a Parquet file"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(error, match=said):
            collect(whole, tmp_path / "second", answers=tmp_path / name)
    with pytest.raises(TaskError, match="no such file"):
        collect(whole, tmp_path / "second", answers=tmp_path / "nowhere.jsonl")
    with pytest.raises(RecipeError, match="no answers are collected there"):
        export(Run(tmp_path / "second"), tmp_path / "out.jsonl")


def test_a_packed_file_is_plain_json_lines(whole: Recipe, tmp_path: Path) -> None:
    file = exported(whole, tmp_path, "answers.jsonl.gz")
    with gzip.open(file, "rt") as lines:
        assert len([json.loads(line) for line in lines]) == 16
    assert [path.name for path in tmp_path.glob("*.part")] == []
