"""The command line as a whole: exit codes, errors in one line, what is imported."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pilotfish.cli import main
from pilotfish.cli.errors import expected, one_line
from pilotfish.cli.options import open_recipe, settings
from pilotfish.recipe import RecipeError

RECIPE = """
tasks: {train: {source: "gym:chain_sum", size: 20}, holdout: 4}
team:
  collaborator: {model: smollm2, train: lora}
  actor: {model: smollm2}
topology: hint
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(RECIPE)
    return file


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in ("init", "train", "eval", "verify", "estimate", "doctor", "tasks"))


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pilotfish ")


def test_a_terminal_that_has_ascii_only_shows_a_mark_for_the_rest() -> None:
    script = "from pilotfish.cli import main; main(['--version']); print('± 2')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.endswith("? 2\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "see pilotfish --help"),
        (["train"], "RECIPE"),
        (["verify", "rows.jsonl", "--nope"], "see pilotfish verify --help"),
        (["train", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["verify", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["verify", "rows.jsonl", "--verifier", "math"], "one of maths, choice, exact"),
        (["tasks", "math501"], "did you mean math500?"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["train", "estimate", "doctor", "eval"])
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("seed", "write --set FIELD=VALUE"),
        ("team.actor.modl=x", "team.actor.modl: no such field"),
        ("topology=hnit", "not one of solo, cot"),
        ("train=[", "not a YAML value"),
    ],
)
def test_a_wrong_setting_is_named(
    command: str, setting: str, words: str, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(recipe), "--set", setting]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_traceback_is_shown_when_asked_for() -> None:
    with pytest.raises(RecipeError):
        main(["train", "nowhere.yaml", "--traceback"])


def test_neither_help_nor_verify_nor_tasks_imports_torch(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"gold": "1", "pred": "1"}\n')
    script = (
        "import sys; from pilotfish.cli import main\n"
        f"codes = [main(['--help']), main(['tasks']), main(['verify', {str(rows)!r}])]\n"
        "heavy = [name for name in ('torch', 'transformers', 'datasets', 'sympy', 'aiohttp') if name in sys.modules]\n"
        "print(codes, heavy, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "[0, 0, 0] []"


def test_settings_keep_what_stands_behind_the_first_equals_sign() -> None:
    assert settings(["a.b=x=y", "c="]) == {"a.b": "x=y", "c": ""}


@pytest.mark.parametrize(
    ("named", "folder", "found"),
    [("", None, "runs/mine"), ("name: own", None, "runs/own"), ("name: own", Path("there"), "there")],
)
def test_a_runs_folder_is_named_after_the_recipe(named: str, folder: Path | None, found: str, recipe: Path) -> None:
    recipe.write_text(f"{RECIPE}\n{named}\n")
    assert open_recipe(recipe, folder, None)[1] == Path(found)


def test_the_folder_of_a_run_is_its_own(recipe: Path) -> None:
    recipe.rename(recipe.parent / "recipe.yaml")
    assert open_recipe(recipe.parent, None, None)[1] == recipe.parent


def test_an_interrupt_is_code_130_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stopped, one_line(False, interrupted=lambda: "to go on: pilotfish train here"):
        raise KeyboardInterrupt
    assert stopped.value.exit_code == 130
    assert capsys.readouterr().err == "to go on: pilotfish train here\n"


def test_a_value_error_is_a_message_only_where_pilotfish_raised_it() -> None:
    from pilotfish.topology import find

    with pytest.raises(ValueError, match="hnit") as meant:
        find("hnit")
    with pytest.raises(ValueError, match="Expecting") as fault:
        json.loads("[")
    assert expected(meant.value) == str(meant.value)
    assert (expected(fault.value) or "").startswith(f"{Path(__file__)}:"), "this file stands for a user's own"
    assert fault.value.__traceback__ is not None
    assert expected(fault.value.with_traceback(fault.value.__traceback__.tb_next)) is None, "a fault of the program"


def test_a_missing_package_is_named_with_its_extra() -> None:
    assert expected(ModuleNotFoundError("No module named 'trl'", name="trl.trainer")) == (
        "the package trl is missing; pip install 'pilotfish[train]'"
    )


@pytest.mark.parametrize(
    ("faulty", "told"),
    [
        ('said = room.ask("actor", "hello")\n    return said.text', "7: AttributeError: "),
        ("import asyncio\n    raise asyncio.CancelledError", "7: CancelledError; --traceback"),
    ],
)
def test_a_fault_in_a_users_topology_is_one_line_with_its_place(
    faulty: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "mine.py").write_text(
        f"from pilotfish import topology\n\n\n@topology\nasync def mine(task, room):\n    {faulty}\n"
    )
    (tmp_path / "tasks.jsonl").write_text('{"question": "2 + 2?", "answer": "4"}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"team: {{actor: {{engine: openai, model: m, base_url: 'http://127.0.0.1:1/v1'}}}}\n"
        f"topology: {tmp_path / 'mine.py'}:mine\n"
        f"evaluate: {{benchmarks: [{tmp_path / 'tasks.jsonl'}], against: []}}\n"
    )
    assert main(["eval", str(recipe), "--run", str(tmp_path / "run")]) == 2
    gc.collect()  # of the call that is not awaited Python has to say so; else it would in the middle of another test
    said = capsys.readouterr().err
    assert f"{tmp_path / 'mine.py'}:{told}" in said
    assert "Traceback" not in said
