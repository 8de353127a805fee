"""Loading tasks: files, the hub's format, reasoning-gym; selection; and every refusal with its row and way out."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from reasoning_gym.factory import DATASETS

from pilotfish.gym import BY_HASH
from pilotfish.task import Task, TaskError, TaskSource, load_tasks


def written(folder: Path, *rows: Any, name: str = "data.jsonl") -> Path:
    """A file of rows; a string is written as it is."""
    path = folder / name
    text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"r{number}", "question": f"What is {number} + 1?", "answer": number + 1, **more}


def test_a_file_of_json_lines_becomes_tasks(tmp_path: Path) -> None:
    question = "  Is {x} 100% of \\frac{1}{2}? <|im_end|> 答案\n"
    path = written(tmp_path, "", {"id": 7, "question": question, "answer": 3, "level": 2, "none": None}, "")
    (task,) = load_tasks(path)
    assert (task.id, task.question, task.answer, task.verifier) == ("7", question, "3", "maths")
    assert task.meta == {"level": 2}
    assert task.instruction.endswith("\\boxed{}.")


@pytest.mark.parametrize("name", ["data.jsonl", "data.jsonl.gz"])
def test_rows_without_an_id_are_named_after_file_and_position(tmp_path: Path, name: str) -> None:
    rows = [{"question": f"{n}?", "answer": "1"} for n in range(2)]
    path = written(tmp_path, *rows, name=name)
    assert [task.id for task in load_tasks(path)] == ["data-0", "data-1"]
    assert load_tasks({"source": path}) == load_tasks(str(path)) == load_tasks(path)


def test_fields_are_mapped_also_nested_ones(tmp_path: Path) -> None:
    path = written(tmp_path, {"uid": "a", "problem": "p?", "gold": {"value": 4}, "other": "kept"})
    spec = {
        "source": path,
        "id": "uid",
        "question": "problem",
        "answer": "gold.value",
        "verifier": "exact",
        "instruction": "",
    }
    (task,) = load_tasks(spec)
    assert task == Task("a", "p?", "4", "exact", "", meta={"gold": {"value": 4}, "other": "kept"})


@pytest.mark.parametrize("gold", ["B", "(b)", 1, "blue"])
def test_a_choice_may_be_a_letter_a_position_or_the_options_text(tmp_path: Path, gold: Any) -> None:
    path = written(tmp_path, {"question": "Which?", "choices": ["red", "blue"], "answer": gold})
    (task,) = load_tasks({"source": str(path), "verifier": "choice"})
    assert (task.answer, task.choices, task.verifier) == ("B", ("red", "blue"), "choice")
    assert "letter" in task.instruction


@pytest.mark.parametrize("gold", ["E", 2, -1, "green"])
def test_a_choice_outside_the_options_is_refused(tmp_path: Path, gold: Any) -> None:
    path = written(tmp_path, {"question": "Which?", "choices": ["red", "blue"], "answer": gold})
    with pytest.raises(TaskError, match=rf"data\.jsonl:1: the answer '{gold}' is neither .* of the 2 choices"):
        load_tasks({"source": str(path), "verifier": "choice"})


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"question": " ", "answer": "1"}, "'question' is empty"),
        ({"question": "q?", "answer": ""}, "'answer' is empty"),
        ({"question": "q?", "answer": None}, "'answer' is empty"),
        ('{"question": "q?", "answer": NaN}', "'answer' is empty"),
        ('{"question": Infinity, "answer": "1"}', "'question' is empty"),
        ('{"question": "q?", "answer": -1e999}', "'answer' is empty"),
        ('{"question": "q?", "answer": "A", "choices": ["1", NaN]}', "'choices' is no list of options"),
        ({"question": "q?", "solution": "1"}, r"no 'answer' \(its fields: question, solution\); say in the source"),
        ({"problem": "q?", "answer": "1"}, r"no 'question' \(its fields: problem, answer\); say in the source"),
        ({"question": ["q?"], "answer": "1"}, "'question' is list, not text"),
        ({"id": "r0", "question": "q?", "answer": "1"}, r"the id 'r0' was already used at .*data\.jsonl:1"),
        ({"question": "q?", "answer": "1", "choices": "ab"}, "'choices' is no list"),
        ({"question": "q?", "answer": "1", "alt_answers": [1]}, "'alt_answers' is no list of strings"),
        ('{"question": "q?",', "not JSON"),
        ('{"question": "\\ud800?", "answer": "1"}', "'question' holds half of a surrogate pair"),
        ("[" * 100_000, "not JSON"),
        ("9" * 5_000, "not JSON"),
        ("[1, 2]", "a row is a JSON object, here it is list"),
    ],
)
def test_a_bad_row_is_refused_by_file_and_line(tmp_path: Path, line: Any, complaint: str) -> None:
    path = written(tmp_path, row(0), "", line, row(9))
    with pytest.raises(TaskError, match=rf"data\.jsonl:3: {complaint}"):
        load_tasks(path)


def test_rows_beyond_the_limit_are_checked_too(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"data\.jsonl:2"):
        load_tasks(written(tmp_path, row(0), row(0)), limit=1)


def test_a_file_that_is_not_utf8_damaged_missing_or_empty_is_named(tmp_path: Path) -> None:
    latin, cut, bad = (tmp_path / name for name in ("latin.jsonl", "cut.jsonl.gz", "bad.jsonl.gz"))
    latin.write_bytes(json.dumps(row(0)).encode() + b'\n{"question": "caf\xe9"}')
    packed = gzip.compress(json.dumps([row(n) for n in range(999)]).encode())
    cut.write_bytes(packed[:200])
    bad.write_bytes(packed[:100] + bytes(100) + packed[200:])
    with pytest.raises(TaskError, match=r"latin\.jsonl:2: not UTF-8"):
        load_tasks(latin)
    for damaged in (cut, bad):
        with pytest.raises(TaskError, match=rf"{damaged.name}: damaged"):
            load_tasks(damaged)
    with pytest.raises(TaskError, match=r"gone\.jsonl: no such file"):
        load_tasks(tmp_path / "gone.jsonl")
    with pytest.raises(TaskError, match="no tasks"):
        load_tasks(written(tmp_path, ""))


def test_the_limit_takes_the_first_and_a_shuffle_seed_draws_a_sample(tmp_path: Path) -> None:
    path = written(tmp_path, *map(row, range(50)))
    first = [task.id for task in load_tasks(path, limit=5)]
    one, again, other = ([task.id for task in load_tasks(path, limit=5, shuffle_seed=seed)] for seed in (1, 1, 2))
    assert first == [f"r{n}" for n in range(5)]
    assert one == again
    assert len({tuple(first), tuple(one), tuple(other)}) == 3


def test_equal_questions_under_different_ids_are_counted_in_a_warning(tmp_path: Path) -> None:
    same = [{"id": f"s{n}", "question": f"Same{' ' * n}?", "answer": "1"} for n in range(3)]
    with pytest.warns(UserWarning, match=r"data\.jsonl: 1 of 3 tasks repeat an earlier question"):
        assert len(load_tasks(written(tmp_path, same[0], same[0] | {"id": "x"}, row(1)))) == 3


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("math50", "unknown source 'math50'; did you mean math500"),
        ("data.txt", r"unknown source 'data.txt'; a source is one of aime24, .* gym:NAME, hf:OWNER/NAME"),
        ({"source": "math500", "size": 5}, "math500: size is for gym sources only; to take fewer tasks set limit"),
        ({"source": "math500", "seed": 5}, "seed is for gym sources only; to sample from this source set shuffle_seed"),
        ({"source": "a.jsonl", "path": "b.jsonl"}, "path is for benchmark and hub sources only"),
        ({"source": "gym:chain_sum", "levels": [1]}, "levels is for benchmark and hub and file sources only"),
        ({"source": "math500", "limit": 0}, "limit Input should be greater than or equal to 1"),
        ({"source": "math500", "verifier": "jugde"}, "verifier 'jugde': not one of maths, choice"),
        ({"source": "math500", "limt": 5}, "limt Extra inputs are not permitted"),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused_in_one_line(source: Any, complaint: str) -> None:
    with pytest.raises(TaskError, match=complaint) as caught:
        load_tasks(source)
    assert "\n" not in str(caught.value)


def test_in_a_recipe_a_plain_name_is_shorthand_for_a_source() -> None:
    class Recipe(BaseModel):
        train: TaskSource

    assert Recipe.model_validate({"train": "gym:chain_sum"}).train == TaskSource(source="gym:chain_sum")
    assert Recipe.model_validate({"train": {"source": "math8k", "limit": 500}}).train.limit == 500
    with pytest.raises(ValidationError, match="did you mean math8k"):
        Recipe.model_validate({"train": "math9k"})


def test_every_field_of_a_source_has_its_help() -> None:
    assert [name for name, field in TaskSource.model_fields.items() if not field.description] == []


def test_arguments_go_before_what_the_source_says(tmp_path: Path) -> None:
    spec = TaskSource(source=str(written(tmp_path, *map(row, range(9)))), limit=2)
    assert len(load_tasks(spec)) == 2
    assert len(load_tasks(spec, limit=4)) == 4


@pytest.mark.filterwarnings("ignore:.*repeat an earlier question")
def test_gym_tasks_carry_what_their_own_scorer_needs() -> None:
    from reasoning_gym import get_score_answer_fn

    spec = {"source": "gym:chain_sum", "seed": 3, "options": {"min_terms": 2, "max_terms": 2}}
    made = load_tasks(spec, size=20)
    assert len(made) == len({task.id for task in made}) == 20
    for task in made:
        through_json = json.loads(json.dumps(task.meta))
        assert through_json == task.meta
        assert task.verifier == "reasoning_gym"
        score = get_score_answer_fn(task.meta["dataset"])
        assert score(answer=task.answer, entry=through_json["entry"]) == 1.0
        assert score(answer="no idea", entry=through_json["entry"]) < 1.0


@pytest.mark.filterwarnings("ignore:.*repeat an earlier question")
def test_gym_sets_are_told_apart_by_seed_and_options_and_repeat_themselves() -> None:
    def ids(**spec: Any) -> list[str]:
        return [task.id for task in load_tasks({"source": "gym:chain_sum", "size": 3, **spec})]

    assert ids() == ids(seed=0) == ["chain_sum-0-0", "chain_sum-0-1", "chain_sum-0-2"]
    sets = [ids(), ids(seed=1), ids(options={"max_terms": 3}), ids(options={"max_terms": 4})]
    assert len({name for names in sets for name in names}) == 12
    assert load_tasks("gym:chain_sum", limit=7) == load_tasks("gym:chain_sum", size=7)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"source": "gym:chain_sums"}, "gym:chain_sums: reasoning-gym has no 'chain_sums'; near names: chain_sum"),
        ({"source": "gym:chain_sum", "options": {"min_term": 2}}, "no option 'min_term'; its options: .*min_terms"),
        ({"source": "gym:chain_sum", "options": {"seed": 2}}, "no option 'seed'"),
        ({"source": "gym:chain_sum", "options": {"min_terms": 9, "max_terms": 2}}, "not accepted .*max_terms must be"),
        ({"source": "gym:arc_agi", "size": 1}, "arc_agi: its scorer gives the gold answer 1, and 0.05 once"),
        ({"source": "gym:boxnet", "size": 1}, "gym:boxnet item 0: this data set gives no gold answer"),
    ],
)
def test_a_gym_source_that_cannot_work_is_refused_with_the_reason(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TaskError, match=complaint):
        load_tasks(spec)


def test_nearly_every_gym_data_set_makes_tasks() -> None:
    refused = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(DATASETS):
            try:
                assert load_tasks(f"gym:{name}", size=1)[0].answer
            except TaskError:
                refused.add(name)
    assert refused == {"arc_agi", "boxnet", "composite", "rearc", "rush_hour"}


def test_gym_tasks_written_to_a_file_load_again(tmp_path: Path) -> None:
    (made,) = load_tasks("gym:graph_color", size=1)
    path = written(tmp_path, {"id": made.id, "question": made.question, "answer": made.answer, **made.meta})
    assert load_tasks({"source": str(path), "verifier": "reasoning_gym"}) == [made]
    with pytest.raises(TaskError, match="needs the fields 'dataset' and 'entry'"):
        load_tasks({"source": str(written(tmp_path, row(0))), "verifier": "reasoning_gym"})


def test_a_hub_data_set_is_read_from_a_folder_and_from_parquet_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / ".cache")
    datasets.disable_progress_bars()
    rows = [{"problem": f"{n}?", "solution": str(n), "picture": None} for n in range(3)]
    datasets.Dataset.from_list(rows[:2]).to_parquet(tmp_path / "train.parquet")
    datasets.Dataset.from_list(rows[2:]).to_parquet(tmp_path / "test.parquet")
    spec = {"source": "hf:owner/name", "path": tmp_path, "question": "problem", "answer": "solution"}
    assert [task.id for task in load_tasks(spec)] == ["owner/name-0", "owner/name-1"]
    assert [task.question for task in load_tasks(spec, split="test")] == ["2?"]
    assert [task.answer for task in load_tasks(spec, path=tmp_path / "train.parquet")] == ["0", "1"]
    with pytest.raises(TaskError, match=r"no 'question' \(its fields: problem, solution, picture\)"):
        load_tasks({**spec, "question": "question"})
    datasets.Dataset.from_list([{"question": "q?", "answer": float("nan")}]).to_parquet(tmp_path / "lacking.parquet")
    with pytest.raises(TaskError, match=r"lacking.parquet row 0: 'answer' is empty"):
        load_tasks(tmp_path / "lacking.parquet")
    with pytest.raises(TaskError, match=r"cannot be loaded \(ValueError: .*validation"):
        load_tasks(spec, split="validation")


def test_loading_a_file_imports_neither_torch_nor_datasets_nor_the_gym(tmp_path: Path) -> None:
    code = "import sys; from pilotfish.task import load_tasks; import pilotfish.overlap; load_tasks(sys.argv[1])"
    check = "; print([name for name in ('torch', 'datasets', 'reasoning_gym') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code + check, str(written(tmp_path, row(0)))], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


MAKE = """
import sys
from pilotfish.task import TaskError, load_tasks
for name in sys.argv[1:]:
    try:
        print(load_tasks({"source": f"gym:{name}", "size": 2, "seed": 5}))
    except TaskError as error:
        print(error)
"""


def made_under(hash_seed: int, names: Iterable[str]) -> str:
    """Tasks of gym sets, as a process with this order of sets makes them."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", MAKE, *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_gym_set_that_hangs_on_the_order_of_pythons_sets_is_the_same_in_each_process() -> None:
    assert made_under(1, ["word_ladder"]) == made_under(2, ["word_ladder"])


def test_no_other_gym_set_hangs_on_it() -> None:
    others = sorted(set(DATASETS) - BY_HASH)
    assert made_under(1, others) == made_under(2, others)


def test_what_is_wrong_with_such_a_set_is_told_as_with_others() -> None:
    with pytest.raises(TaskError, match=r"^gym:word_ladder: the options .* are not accepted \("):
        load_tasks({"source": "gym:word_ladder", "size": 1, "options": {"min_word_length": -1}})
