"""An evaluation by two processes over gloo is that of one; where one of them fails both end, and it goes on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from board import tasks_file
from launching import assert_loss_is_told, assert_one_says_why, ended, launch
from pilotfish.recipe import parse_recipe
from pilotfish.run import Run
from test_distributed import asked
from test_evaluate_recorded import trained
from tiny import save_tiny

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(3000)]

TASKS = 3
"""An odd number: to divide the episodes of two samples one by one would leave a task in both processes."""
KILLED_AT = 10


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with trained weights, measured by `one` and `two` processes; `refused`; `killed`, gone on with `by1` and
    `by2`; and `two` once more, from its record."""
    folder = tmp_path_factory.mktemp("evaluated")
    data = trained(folder)
    for member in data["team"].values():
        member["dtype"] = "float32"  # in bfloat16 the batch that a call is in can change a token
    data["tasks"]["train"] = exact(folder / "train.jsonl", TASKS + 6)  # those of the benchmark are not trained on
    data["evaluate"]["against"].append("alone")  # nobody leads this team: a warning
    benchmarks = [exact(folder / "test.jsonl", TASKS), backwards(exact(folder / "again.jsonl", 2))]
    data["evaluate"] |= {"benchmarks": benchmarks, "samples": 2, "models": {}, "weights": {}}
    run = Run(folder / "trained", parse_recipe(data))
    save_tiny(run.best, 4)
    run.mark_best(run.best, 1)

    def job(name: str, processes: int, origin: str = "trained", *options: str, **more: Any) -> dict[str, Any]:
        do = ["eval", str(folder / name), *options]
        moved = [str(folder / origin), str(folder / name)]
        return {"do": do, "out": str(folder / "out" / name), "processes": processes, "moved": moved, **more}

    launch(
        folder,
        [
            job("one", 1),
            job("two", 2),
            job("refused", 2, rank=1, at=9, fault="no key in $ACTOR_KEY; export it"),
            job("killed", 2, rank=1, at=KILLED_AT),
            job("by1", 1, "killed"),
            job("by2", 2, "killed"),
            job("recorded", 2, "two", "--recorded"),
        ],
    )
    return folder


def exact(file: Path, tasks: int) -> dict[str, str]:
    """A source whose answers are compared in place: processes for it take a second to start."""
    return {"source": tasks_file(file, tasks), "verifier": "exact"}


def backwards(source: dict[str, str]) -> dict[str, str]:
    """The same tasks from the last to the first: each falls to the other process than in a benchmark before."""
    file = Path(source["source"])
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    return source


def results(run: Path) -> dict[str, Any]:
    """What was measured, without what a clock says, and each episode's score."""
    scores = map(json.loads, (run / "scores.jsonl").read_text().splitlines())
    found = {**json.loads((run / "results.json").read_text()), "scores": list(scores)}
    del found["written"]
    return _untimed(found)


def written(run: Path) -> str:
    """When it was measured, to the second."""
    return str(json.loads((run / "results.json").read_text())["written"])


def _untimed(found: Any) -> Any:
    if isinstance(found, list):
        return [_untimed(one) for one in found]
    if isinstance(found, dict):
        return {name: _untimed(one) for name, one in found.items() if name != "seconds"}
    return found


def test_two_processes_measure_what_one_measures(scene: Path) -> None:
    assert ended(scene / "out" / "two")[0] == [0, 0]
    found = results(scene / "two")
    assert found == results(scene / "one")
    names = [row["name"] for row in found["test"]]
    assert {"best constant words", "empty words", "another task's words", "hint, trained"} <= set(names)


def test_each_process_plays_its_part_and_asks_nothing_that_another_has_asked(scene: Path) -> None:
    (alone,), (less, more) = asked(scene / "one"), sorted(asked(scene / "two"), key=len)
    assert less + more == alone
    assert len(more) > len(less) > len(alone) / 4


def test_only_the_main_process_speaks(scene: Path) -> None:
    _, (main, other) = ended(scene / "out" / "two")
    assert "hint, trained: 2 tasks x 2 samples" in main, "its own share of three"
    assert f"in {scene / 'two'}: results.md" in main
    assert main.count("not compared with, since the team lacks who answers there: alone") == 1
    assert other == ""


def test_a_process_that_fails_ends_both_and_says_why_alone(scene: Path) -> None:
    assert_one_says_why(scene / "out" / "refused", "actor: no key in $ACTOR_KEY; export it")


def test_a_process_that_is_killed_ends_both(scene: Path) -> None:
    assert_loss_is_told(scene / "out" / "killed")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_evaluation_goes_on_with_as_many_processes(processes: int, scene: Path) -> None:
    run = scene / f"by{processes}"
    assert ended(scene / "out" / run.name)[0] == [0] * processes
    assert results(run) == results(scene / "one")
    calls, recorded = asked(scene / "one")[0], asked(scene / "killed")
    assert len(recorded) == 2
    assert KILLED_AT < sum(map(len, recorded)) < len(calls)
    assert sum(asked(run), Counter()) == calls, "a call was asked twice, or one is missing"


def test_the_main_process_measures_a_record_while_the_others_wait(scene: Path) -> None:
    codes, (_, other) = ended(scene / "out" / "recorded")
    assert codes == [0, 0]
    assert other == ""
    assert results(scene / "recorded") == results(scene / "two")
    assert written(scene / "recorded") > written(scene / "two")
    assert asked(scene / "recorded") == asked(scene / "two")
