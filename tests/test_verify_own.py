"""Verifiers and topologies of the user's own: by file, by entry point, in workers that can be killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from pilotfish import own
from pilotfish.cli import main
from pilotfish.collect.manifest import question
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.run import Run, RunError
from pilotfish.task import Task, TaskError, load_tasks
from pilotfish.topology.find import digest, find
from pilotfish.verify import Verdict, VerifierPool

LIMIT = 3.0
CODE = """
from pilotfish.topology import topology
from pilotfish.verify import Verdict

def short(gold, text):
    return len(text) < 20

def long(gold, text):
    import numpy

    return numpy.float64(len(text)) > 20

def share(gold, text, task, form):
    return sum(word in text for word in task.meta["words"]) / len(task.meta["words"])

def told(gold, text):
    return Verdict(0.5, text[:3], "half of it")

def breaks(gold, text):
    return {}[text]

def hangs(gold, text):
    while True:
        pass

def hoards(gold, text):
    return len("x" * (1 << 40))

def twice(gold, text):
    return 2.0

def words(gold, text):
    return "yes"

def says(gold, text):
    print("not a verdict")
    return text == "Out." or text

RATE = 1

@topology
async def mine(task, room):
    return await room.ask("actor", task.question, final=True)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("own") / "mine.py"
    file.write_text(CODE)
    return file


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=1, time_limit=LIMIT) as pool:
        yield pool


def verdict(pool: VerifierPool, file: Path, function: str, text: str, form: str = "free", **meta: Any) -> Verdict:
    return pool.submit(Task("t", "", "", f"{file}:{function}", meta=meta), text, form).result()


def test_a_function_of_ones_own_judges_in_a_worker(pool: VerifierPool, file: Path) -> None:
    assert verdict(pool, file, "short", "A short one.").reward == 1.0
    assert verdict(pool, file, "short", "One that is longer than twenty.").reward == 0.0
    assert verdict(pool, file, "long", "A short one.").reward == 0.0
    assert verdict(pool, file, "long", "One that is longer than twenty.").reward == 1.0
    assert verdict(pool, file, "share", "tea and milk", words=["tea", "cake"]).reward == 0.5
    assert verdict(pool, file, "told", "half") == Verdict(0.5, "hal", "half of it")


def test_it_is_given_the_answer_without_thinking_or_tag(pool: VerifierPool, file: Path) -> None:
    assert verdict(pool, file, "says", "<think>In.</think>\nOut.").reward == 1.0
    assert verdict(pool, file, "says", "Hm. <answer>Out.</answer>", "answer_tag").reward == 1.0
    untagged = verdict(pool, file, "says", "Out.", "answer_tag")
    assert (untagged.reward, untagged.why) == (0.0, "no <answer> tag")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("breaks", "the verifier failed: KeyError: 'x'"),
        ("twice", "gave 2.0; a reward lies between 0 and 1"),
        ("words", "gave 'yes'; return True, False, a number from 0 to 1, or a Verdict"),
        ("hangs", "mine.py:hangs met the time limit of 3 s"),
        ("hoards", "mine.py:hoards met the memory limit"),
    ],
)
def test_what_goes_wrong_inside_is_no_verdict_and_never_a_0(
    pool: VerifierPool, file: Path, function: str, why: str
) -> None:
    found = verdict(pool, file, function, "x")
    assert found.reward is None
    assert why in found.why
    assert verdict(pool, file, "short", "The pool lives on.").reward == 1.0


def test_a_file_that_breaks_after_the_run_began_is_no_verdict(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text("def yes(gold, text):\n    return True\n")
    with VerifierPool(workers=1) as pool:
        task = Task("t", "", "", f"{file}:yes")
        from pilotfish.verify import own as loaded

        loaded.check(task.verifier)
        file.write_text("import nothing_of_this_name\n")
        found = pool.submit(task, "x").result()
    assert found.reward is None
    assert "does not load: ModuleNotFoundError" in found.why


# By name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere.py:short", "no file nowhere.py"),
        ("{file}:missing", "no such function there"),
        ("{file}:RATE", "no such function there"),
        ("exacct", "'exacct': not one of maths, choice, exact, reasoning_gym, judge, reward_model"),
    ],
)
def test_a_verifier_that_is_not_there_is_named_before_anything_runs(file: Path, name: str, why: str) -> None:
    with pytest.raises(TaskError, match=why):
        load_tasks({"source": "rows.jsonl", "verifier": name.format(file=file)})


def test_a_recipe_may_name_a_verifier_of_ones_own(file: Path) -> None:
    data = {"team": {"actor": {"model": "smollm2"}}, "topology": f"{file}:mine"}
    source = {"source": "rows.jsonl", "verifier": f"{file}:short"}
    recipe = parse_recipe(data | {"evaluate": {"benchmarks": [source]}})
    assert recipe.evaluate.benchmarks[0].own_verifier == f"{file}:short"
    with pytest.raises(RecipeError, match="others have no settings"):
        parse_recipe(data | {"evaluate": {"benchmarks": [{"source": "rows.jsonl", "verifier": {"name": "exact"}}]}})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A package that declares a topology and a verifier."""
    (tmp_path / "a_package_of_theirs.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    declared = EntryPoints(
        [
            EntryPoint("theirs", "a_package_of_theirs:mine", own.GROUPS["topology"]),
            EntryPoint("brief", "a_package_of_theirs:short", own.GROUPS["verifier"]),
            EntryPoint("broken", "a_package_of_theirs:nothing", own.GROUPS["verifier"]),
        ]
    )
    monkeypatch.setattr(own, "entry_points", declared.select)
    own._entry.cache_clear()
    yield tmp_path / "a_package_of_theirs.py"
    own._entry.cache_clear()


def test_an_installed_package_declares_topologies_and_verifiers(installed: Path) -> None:
    assert find("theirs").name == "mine"
    assert own.find("verifier", "brief")("", "short") is True
    assert digest("theirs") == own.digest("verifier", "brief") == own.digest("verifier", f"{installed}:short")
    with pytest.raises(ValueError, match=r"broken: a_package_of_theirs:nothing does not load: AttributeError"):
        own.find("verifier", "broken")
    with pytest.raises(ValueError, match=r"'breif': not one of exact, brief, broken; your own is named"):
        own.find("verifier", "breif", ["exact"])
    with pytest.raises(ValueError, match=r"'thiers': not one of solo, .*theirs; your own"):
        find("thiers")


# What a run remembers


def test_a_run_holds_on_to_the_text_of_its_verifier(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(CODE)
    team = {"actor": {"model": "smollm2", "train": "lora"}}
    source = {"source": "rows.jsonl", "verifier": f"{file}:short"}
    recipe = parse_recipe({"team": team, "topology": "solo", "tasks": {"train": source}})
    run = Run(tmp_path / "run", recipe)
    run.hold_code()
    run.hold_code()
    file.write_text(CODE.replace("< 20", "< 30"))
    with pytest.raises(RunError, match=r"mine\.py:short: the file has changed since"):
        run.hold_code()


def test_stored_answers_know_by_what_they_were_judged(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(CODE)
    task = Task("t", "Say it.", "", f"{file}:short")
    before = question(task)
    file.write_text(CODE.replace("< 20", "< 30"))
    assert question(task) != before


# Commands


def test_the_command_verify_takes_it(file: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"gold": "-", "pred": pred}) + "\n" for pred in ("half", "no")))
    assert main(["verify", str(rows), "--verifier", f"{file}:told"]) == 0
    first, _ = (json.loads(line) for line in capfdbinary.readouterr().out.splitlines())
    assert first == {"correct": False, "reward": 0.5, "extracted": "hal", "why": "half of it"}
    assert main(["verify", str(rows), "--verifier", "judge"]) != 0
    assert b"--verifier judge: it asks a member of a team" in capfdbinary.readouterr().err


def test_the_command_tasks_takes_it(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "Say it."}\n')
    assert main(["tasks", str(rows), "--set", f"verifier={file}:short"]) == 0
    assert "mine.py:short" in "".join(capsys.readouterr().out.split())
