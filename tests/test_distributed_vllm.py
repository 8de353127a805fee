"""Two processes ask the servers of one, which `fake_vllm.py` stands in for: the main process starts and ends them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fake_vllm import as_command
from launching import FSDP, ended, launch
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.run import Run
from test_distributed import asked, logged, weights
from test_distributed_eval import TASKS, exact, results
from test_engine_vllm import all_gone
from test_evaluate_recorded import trained
from tiny import save_tiny
from training import vowels_recipe

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(3000)]

STEPS = 2
KILLED_AT = 2 + 8 + 4
"""In process 1, in step 2: a checkpoint is there of step 1, and half of a step is played that was not learned from."""
ENDED = "vllm serve has ended with code"


class Jobs(list[dict[str, Any]]):
    """Launches to come, each with a command `vllm` of its own.

    Args:
        folder: holds the runs, what each launch has said, and its servers' records.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def add(self, name: str, do: list[str], processes: int = 2, *, fake: dict[str, str], **more: Any) -> None:
        place = self.folder / "fake" / name
        place.mkdir(parents=True)
        env = {**as_command(place), **fake}
        out = str(self.folder / "out" / name)
        self.append({"do": do, "out": out, "processes": processes, "env": env, **more})

    def train(self, name: str, recipe: Recipe, processes: int = 2, **more: Any) -> None:
        file = self.folder / f"{name}.yaml"
        file.write_text(recipe.dump())
        self.add(name, ["train", str(file), "--run", str(self.folder / name)], processes, **more)


def started(scene: Path, name: str) -> list[dict[str, Any]]:
    """What each server of a launch was started with."""
    return [json.loads(file.read_text()) for file in (scene / "fake" / name / "servers").glob("*.json")]


def heard(scene: Path, name: str) -> list[dict[str, Any]]:
    """What the servers of a launch were asked, in the order of their answers."""
    lines = (scene / "fake" / name / "servers" / "asked.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_main_says_once(scene: Path, name: str, words: str) -> None:
    """Both processes ended, and the main one alone said why."""
    codes, (main, other) = ended(scene / "out" / name)
    assert codes[0] == 2
    assert -9 not in codes
    assert main.count(words) == 1
    assert "Traceback" not in main
    assert other == ""


# A frozen member at a server


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trainee in process and an actor at a server: runs of `one` and `two` processes; `killed`, gone on with `again`;
    `headless`, whose main process is killed; `crashed` and `unready` servers."""
    jobs = Jobs(tmp_path_factory.mktemp("frozen"))
    made = repeated_recipe(jobs.folder)
    echo = {"FAKE_VLLM_ECHO": "1"}
    jobs.train("one", made, 1, fake=echo)
    jobs.train("two", made, fake=echo)
    jobs.train("killed", made, fake=echo, rank=1, at=KILLED_AT)
    again, killed = str(jobs.folder / "again"), str(jobs.folder / "killed")
    jobs.add("again", ["train", again], fake=echo, moved=[killed, again])
    jobs.train("headless", made, fake=echo, rank=0, at=KILLED_AT)
    jobs.train("crashed", made, fake=echo | {"FAKE_VLLM_CRASHES_AT": "SAID:"})
    jobs.train("unready", made, fake={"FAKE_VLLM_DIES": "no memory"})
    launch(jobs.folder, jobs)
    return jobs.folder


def repeated_recipe(folder: Path) -> Recipe:
    """The team is right where an actor repeats a word of the trainee's that begins with a vowel."""
    every = {"evaluate_every": 2, "save_every": 1}
    made = vowels_recipe(folder, micro_batch=4, updates_per_step=1, steps=STEPS, learning_rate=1e-2, **every)
    data = made.model_dump(mode="json")
    data["team"]["actor"] = {"model": "org/small", "engine": "vllm", "retries": 0, "sampling": {"temperature": 1.0}}
    data["topology"] = f"{Path(__file__).with_name('vowels.py')}:repeated"
    return parse_recipe(data)


def test_two_processes_learn_beside_one_server_what_one_learns(frozen: Path) -> None:
    codes, (main, other) = ended(frozen / "out" / "two")
    assert codes == [0, 0]
    assert main.count("actor: starting vllm serve org/small") == 1
    assert other == ""
    assert len(started(frozen, "two")) == 1
    for ours, theirs in zip(logged(frozen / "two"), logged(frozen / "one"), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6, rel=1e-6)
    assert any(row["grad_norm"] > 0 for row in logged(frozen / "one") if "grad_norm" in row), "nothing was learned"
    assert_same_weights(frozen / "two", frozen / "one")
    assert all_gone(started(frozen, "two"))


def assert_same_weights(one: Path, other: Path) -> None:
    """To 1e-4, of steps of 1e-2: in which order a server answers the rows of a group is chance."""
    ours = weights(one, STEPS)
    for name, weight in weights(other, STEPS).items():
        assert ours[name].sub(weight).abs().max() < 1e-4


def test_both_ask_it_and_nothing_twice(frozen: Path) -> None:
    (alone,), (first, second) = asked(frozen / "one"), asked(frozen / "two")
    assert first + second == alone
    assert len(first) == len(second)
    assert len(heard(frozen, "two")) == len(heard(frozen, "one")) > 0


def test_a_killed_run_goes_on(frozen: Path) -> None:
    assert ended(frozen / "out" / "killed")[0] == [2, -9]
    assert all_gone(started(frozen, "killed"))
    assert ended(frozen / "out" / "again")[0] == [0, 0]
    assert_same_weights(frozen / "again", frozen / "one")
    assert sum(asked(frozen / "again"), Counter()) == asked(frozen / "one")[0], "a call was asked twice, or is missing"


def test_a_main_process_that_is_killed_leaves_no_server(frozen: Path) -> None:
    assert ended(frozen / "out" / "headless")[0] == [-9, 1]
    assert all_gone(started(frozen, "headless"))


def test_a_server_that_crashes_ends_both_and_the_main_process_says_how(frozen: Path) -> None:
    assert_main_says_once(frozen, "crashed", f"actor: {ENDED} 7; the end of ")
    assert len(started(frozen, "crashed")) == 1
    assert all_gone(started(frozen, "crashed"))


def test_a_server_that_does_not_start_ends_both(frozen: Path) -> None:
    assert_main_says_once(frozen, "unready", f"actor: {ENDED} 1; the end of ")
    assert len(started(frozen, "unready")) == 1


# A trainee at a server


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server that speaks for the trainee, and takes its time to take weights: `one` and `two` processes, and two that
    are `sharded`; a `lora`, and a `sharded-lora`; a `stubborn` one."""
    jobs = Jobs(tmp_path_factory.mktemp("spoken"))
    slow = {"FAKE_VLLM_DRAWS": "1", "FAKE_VLLM_LOAD_S": "0.3"}
    for name, processes in (("one", 1), ("two", 2)):
        jobs.train(name, served_recipe(jobs.folder), processes, fake=slow, gap=100.0)
    jobs.train("sharded", served_recipe(jobs.folder), fake=slow | FSDP, gap=100.0)
    for name, fsdp in (("lora", {}), ("sharded-lora", FSDP)):
        jobs.train(name, served_recipe(jobs.folder, lora={"rank": 4}), fake=slow | fsdp, gap=100.0)
    jobs.train("stubborn", served_recipe(jobs.folder), fake={"FAKE_VLLM_STUBBORN": "1"})
    launch(jobs.folder, jobs)
    return jobs.folder


def served_recipe(folder: Path, **more: Any) -> Recipe:
    every = {"evaluate_every": 2, "save_every": 2}
    made = vowels_recipe(folder, micro_batch=4, updates_per_step=1, steps=STEPS, learning_rate=1e-2, **every, **more)
    data = made.model_dump(mode="json", exclude_unset=True)
    data["team"]["collaborator"] |= {"engine": "vllm", "device": "cpu", "retries": 0}
    return parse_recipe(data)


def turns(scene: Path, name: str) -> list[list[dict[str, Any]]]:
    """What a server was asked, by the weights that it had."""
    found: list[list[dict[str, Any]]] = []
    for one in heard(scene, name):
        if "sum" in one:
            found.append([one])
        elif one["path"] == "/v1/completions":
            found[-1].append(one)
    return found


@pytest.mark.parametrize("name", ["two", "sharded"])
def test_a_server_gets_the_weights_once_a_step_and_nobody_asks_before_it_has_them(name: str, spoken: Path) -> None:
    assert ended(spoken / "out" / name)[0] == [0, 0]
    assert len(started(spoken, name)) == 1
    ours, theirs = turns(spoken, name), turns(spoken, "one")
    assert [len(calls) - 1 for calls in theirs] == [4, 16, 16, 4]  # holdout, two steps, holdout
    assert [len(calls) for calls in ours] == [len(calls) for calls in theirs]
    sums = [calls[0]["sum"] for calls in theirs]
    assert [calls[0]["sum"] for calls in ours] == pytest.approx(sums, rel=1e-3)
    assert len(set(sums)) == 3, "the weights did not change"
    assert all_gone(started(spoken, name))


@pytest.mark.parametrize("name", ["two", "sharded"])
def test_two_processes_learn_from_what_one_server_says_what_one_learns(name: str, spoken: Path) -> None:
    assert_same_weights(spoken / name, spoken / "one")
    for ours, theirs in zip(logged(spoken / name), logged(spoken / "one"), strict=True):
        assert "engine/logprob_gap" not in ours or ours.pop("engine/logprob_gap") > 0  # of the first rows of a process
        theirs.pop("engine/logprob_gap", None)
        assert ours == pytest.approx(theirs, abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("name", ["lora", "sharded-lora"])
def test_all_processes_ask_for_the_adapter_of_the_step(name: str, spoken: Path) -> None:
    assert ended(spoken / "out" / name)[0] == [0, 0]
    names = [[one["asked"].get("lora_name") or one["asked"]["model"] for one in calls] for calls in turns(spoken, name)]
    assert [len(calls) - 1 for calls in names] == [4, 16, 16, 4]
    assert [len(set(calls)) for calls in names] == [1] * 4
    assert len({calls[0] for calls in names}) == 4


def test_a_server_that_does_not_take_the_weights_ends_both(spoken: Path) -> None:
    assert_main_says_once(spoken, "stubborn", "collaborator: vllm serve did not take the trained weights")
    assert all_gone(started(spoken, "stubborn"))


# An evaluation


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained weights, and two teams, everyone at a server: measured by `one` and `two` processes; `crashed`."""
    jobs = Jobs(tmp_path_factory.mktemp("measured"))
    data = trained(jobs.folder)
    for member in data["team"].values():
        member |= {"engine": "vllm", "retries": 0}
    data["tasks"]["train"] = exact(jobs.folder / "train.jsonl", TASKS + 6)
    data["evaluate"] |= {"benchmarks": [exact(jobs.folder / "test.jsonl", TASKS)], "samples": 2}
    run = Run(jobs.folder / "trained", parse_recipe(data))
    save_tiny(run.best, 4)
    run.mark_best(run.best, 1)

    def measure(name: str, processes: int, **fake: str) -> None:
        place = jobs.folder / name
        moved = [str(run.folder), str(place)]
        jobs.add(name, ["eval", str(place)], processes, fake={"FAKE_VLLM_ECHO": "1", **fake}, moved=moved)

    measure("one", 1)
    measure("two", 2)
    measure("crashed", 2, FAKE_VLLM_CRASHES_AT="What is 1 + 1?")  # which process 1 plays
    launch(jobs.folder, jobs)
    return jobs.folder


def test_two_processes_measure_at_the_servers_of_one_what_one_measures(measured: Path) -> None:
    codes, (main, other) = ended(measured / "out" / "two")
    assert codes == [0, 0]
    assert main.count("starting vllm serve") == 5
    assert other == ""
    assert results(measured / "two") == results(measured / "one")
    names = [one["arguments"][1] for one in started(measured, "two")]
    models = [str(measured / name) for name in ("mind", "small", "big", "elsewhere", "two/best")]
    assert sorted(names) == sorted(models)
    assert all_gone(started(measured, "two"))


def test_both_processes_ask_the_servers_that_they_measure_at(measured: Path) -> None:
    (alone,), (one, other) = asked(measured / "one"), asked(measured / "two")
    assert max((one + other).values()) == 1, "a call was asked twice"
    assert len(one) + len(other) == len(alone), "the names of calls to trained weights hold the run's folder"
    assert min(len(one), len(other)) > len(alone) / 4
    assert len(heard(measured, "two")) == len(heard(measured, "one"))


def test_an_evaluation_whose_server_crashes_while_the_main_process_waits_ends(measured: Path) -> None:
    assert_main_says_once(measured, "crashed", f"{ENDED} 7; the end of ")
    assert ended(measured / "out" / "crashed")[0] == [2, 0]
    assert all_gone(started(measured, "crashed"))
