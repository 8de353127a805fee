"""The benchmarks of mathematics: rows of the hub, local files in their place, and what they say of themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pilotfish.benchmarks import BENCHMARKS
from pilotfish.benchmarks.benchmark import last_boxed
from pilotfish.task import Task, TaskError, load_tasks

DATA = Path(__file__).parents[1] / "../shared/data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the public benchmarks are not beside this checkout")

HUB_ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "aime24": (
        {"id": 60, "problem": "Find m.", "solution": "So 25.", "answer": "025", "year": "2024"},
        {"id": "aime24-60", "question": "Find m.", "answer": "25"},
    ),
    "amc23": ({"id": 3, "question": "How far?", "answer": 27.0}, {"id": "amc23-3", "answer": "27"}),
    "math500": (
        {"problem": "Find p.", "answer": "p - q", "subject": "Algebra", "level": 5, "unique_id": "test/algebra/1.json"},
        {"id": "test/algebra/1.json", "question": "Find p.", "answer": "p - q"},
    ),
    "minerva": ({"question": "How bright?", "answer": "4.5e33"}, {"id": "minerva-0", "answer": "4.5e33"}),
    "olympiadbench": (
        {"id": 1606, "question": "How many?", "context": "Turbo.", "final_answer": ["2", "3"], "image_1": None},
        {"id": "olympiadbench-1606", "question": "Turbo.\nHow many?", "answer": "2, 3"},
    ),
    "gsm8k": (
        {"question": "How many clips?", "answer": "She sold 2000/2 = 1000.\n#### 1,000"},
        {"id": "gsm8k-test-0", "answer": "1000"},
    ),
    "math": (
        {"problem": "Find a.", "solution": "So $\\boxed{\\frac{1}{2}}$.", "level": "Level 5", "type": "Algebra"},
        {"id": "math-train-0", "question": "Find a.", "answer": "\\frac{1}{2}"},
    ),
    "math8k": (
        {"prompt": [{"role": "user", "content": "…"}], "extra_info": {"question": "Find b.", "answer": "7"}},
        {"id": "math8k-0", "question": "Find b.", "answer": "7"},
    ),
}


def local(folder: Path, file: str, *rows: dict[str, Any]) -> Path:
    path = folder / file
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.mark.parametrize("name", HUB_ROWS)
def test_a_row_as_the_hub_has_it_becomes_a_task(name: str, tmp_path: Path) -> None:
    row, expected = HUB_ROWS[name]
    (task,) = load_tasks(name, path=local(tmp_path, "release.jsonl", row))
    assert {key: getattr(task, key) for key in expected} == expected
    assert task.verifier == "maths"
    assert "\\boxed{}" in task.instruction


@pytest.mark.parametrize("name", HUB_ROWS)
def test_a_row_in_the_projects_own_form_is_left_as_it_is(name: str, tmp_path: Path) -> None:
    row = {"id": f"{name}-own-1", "question": "Of {what}?", "answer": "\\text{42}", "level": 4}
    (task,) = load_tasks(name, path=local(tmp_path, "own.jsonl", row))
    assert (task.id, task.question, task.answer, task.meta) == (
        *[row[k] for k in ("id", "question", "answer")],
        {"level": 4},
    )


def test_the_hub_is_asked_for_the_place_that_the_benchmark_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def load_dataset(name: str, config: str | None, **how: Any) -> list[dict[str, Any]]:
        asked.append((name, config, how["split"], how["revision"], how["data_files"]))
        return [row for row, _ in HUB_ROWS.values() if "final_answer" in row]

    monkeypatch.delenv("PILOTFISH_DATA", raising=False)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    (task,) = load_tasks({"source": "olympiadbench", "revision": "abc"})
    assert task.answer == "2, 3"
    assert asked == [("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train", "abc", None)]


def test_without_the_hub_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: Any, **__: Any) -> None:
        raise ConnectionError("cannot reach the hub\nmore lines")

    monkeypatch.delenv("PILOTFISH_DATA", raising=False)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(
        TaskError, match=r"math500: .*cannot reach the hub\).*path.*math500_test\.jsonl .*PILOTFISH_DATA"
    ):
        load_tasks("math500")


def test_a_folder_stands_in_by_the_benchmarks_name_and_split(tmp_path: Path) -> None:
    local(tmp_path, "gsm8k_train.jsonl", {"question": "train?", "answer": "#### 1"})
    local(tmp_path, "gsm8k.jsonl", {"question": "test?", "answer": "#### 2"})
    assert load_tasks("gsm8k", path=tmp_path)[0].question == "test?"
    assert load_tasks("gsm8k", path=tmp_path, split="train")[0].question == "train?"


def test_a_file_without_its_split_in_the_name_never_passes_for_another_split(tmp_path: Path) -> None:
    local(tmp_path, "gsm8k.jsonl", {"question": "test?", "answer": "2"})
    with pytest.raises(TaskError, match=r"gsm8k: .* holds none of gsm8k_train\.jsonl"):
        load_tasks("gsm8k", path=tmp_path, split="train")


def test_the_data_folder_of_the_environment_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local(tmp_path, "amc23.jsonl", {"question": "How far?", "answer": "27.0"})
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path))
    assert load_tasks("amc23") == [
        Task("amc23-0", "How far?", "27", instruction=BENCHMARKS["amc23"].instruction),
    ]


def test_a_data_folder_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path / "gone"))
    with pytest.raises(TaskError, match=r"\$PILOTFISH_DATA: .*gone is not a folder"):
        load_tasks("amc23")


def test_levels_are_kept_from_numbers_and_from_words(tmp_path: Path) -> None:
    levels = ["Level 2", "Level 3", 4, "Level ?", None]
    rows = [{"question": f"q{i}?", "answer": "1", "level": level} for i, level in enumerate(levels)]
    path = local(tmp_path, "math.jsonl", *rows)
    found = load_tasks({"source": "math", "path": path, "levels": [3, 4, 5]})
    assert [task.question for task in found] == ["q1?", "q2?"]
    with pytest.raises(TaskError, match=r"math: no tasks of levels \[1\]"):
        load_tasks({"source": "math", "path": path, "levels": [1]})


def test_as_many_rows_as_a_release_lacks_answers_for_are_left_out_and_no_more(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}?", "answer": answer} for i, answer in enumerate(["1", "", "2", None, ""])]
    path = local(tmp_path, "some.jsonl", *rows[:4])
    assert [task.id for task in load_tasks("math8k", path=path)] == ["math8k-0", "math8k-2"]
    with pytest.raises(TaskError, match=r"all\.jsonl:5: 'answer' is empty"):
        load_tasks("math8k", path=local(tmp_path, "all.jsonl", *rows))
    with pytest.raises(TaskError, match=r"some\.jsonl:2: 'answer' is empty"):
        load_tasks("math500", path=path)


def test_an_unknown_split_is_refused_with_those_there_are() -> None:
    with pytest.raises(TaskError, match="gsm8k: no split 'validation'; it has train, test"):
        load_tasks("gsm8k", split="validation")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{1} and \\boxed{\\frac{a}{b^{2}}}.", "\\frac{a}{b^{2}}"),
        ("so $\\boxed 12$.", "12"),
        ("so \\fbox{no}", "no"),
        ("so \\boxed{never closed", None),
        ("so \\boxed{}", ""),
        ("ends in \\boxed", None),
        ("no box", None),
    ],
)
def test_the_answer_of_a_solution_is_its_last_box(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


@needs_data
@pytest.mark.filterwarnings("ignore:.*repeat an earlier question")
@pytest.mark.parametrize("name", HUB_ROWS)
def test_the_copies_at_hand_have_the_size_that_the_benchmark_states(name: str) -> None:
    benchmark = BENCHMARKS[name]
    found = load_tasks(name, path=DATA)
    assert len(found) == benchmark.size - benchmark.without_answer
    assert all(task.verifier == "maths" for task in found)


@needs_data
@pytest.mark.filterwarnings("ignore:.*repeat an earlier question")
def test_the_first_500_of_math8k_and_the_levels_of_math_are_as_in_the_release() -> None:
    first = load_tasks("math8k", path=DATA, limit=500)
    assert [first[0].id, len(first)] == ["simplerl8k-0", 500]
    hard = load_tasks({"source": "math", "path": DATA, "levels": [3, 4, 5], "limit": 7000})
    assert len(hard) == 1592 + 1690 + 2302
    assert len(load_tasks("gsm8k", path=DATA, split="train")) == 7473
