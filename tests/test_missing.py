"""An error about a file that is not there says where it was looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish import own
from pilotfish.cli import main
from pilotfish.engine.base import Refused
from pilotfish.engine.loading import load
from pilotfish.lab.data import read_rows
from pilotfish.missing import here, looked_in
from pilotfish.preflight.doctor import recipe_findings
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.start.members import trainee
from pilotfish.task import TaskError, load_tasks

WAY_OUT = "run from the folder that it is relative to, or give an absolute path"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_path_from_the_home_folder_is_not_looked_for_elsewhere() -> None:
    assert (here("~/mine.py"), looked_in("~/mine.py")) == ("", "")


@pytest.mark.parametrize("kind", ["verifier", "topology"])
def test_a_file_of_code(kind: own.Kind, folder: Path) -> None:
    with pytest.raises(ValueError, match="no file") as error:
        own.find(kind, "mine.py:colour")
    assert str(error.value) == f"{kind} mine.py:colour: no file mine.py in {folder}; {WAY_OUT}"
    with pytest.raises(ValueError, match="no file") as error:
        own.find(kind, "/away/mine.py:colour")
    assert str(error.value) == f"{kind} /away/mine.py:colour: no file /away/mine.py"


def test_a_recipe_says_it_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.yaml").write_text(
        "{team: {actor: {model: m}}, topology: solo, tasks: {train: {source: a.jsonl, verifier: 'mine.py:colour'}}}"
    )
    assert main(["doctor", "own.yaml"]) == 2
    assert f"verifier mine.py:colour: no file mine.py in {folder}; {WAY_OUT}" in capsys.readouterr().err


def test_rows(folder: Path) -> None:
    with pytest.raises(TaskError) as error:
        load_tasks("mine.jsonl")
    assert str(error.value) == f"mine.jsonl: no such file in {folder}; {WAY_OUT}"
    with pytest.raises(ValueError, match="no such file") as chats:
        read_rows("chats.jsonl", 1, 0)
    assert str(chats.value) == f"chats.jsonl: no such file in {folder}; {WAY_OUT}"


def test_models(folder: Path) -> None:
    with pytest.raises(Refused, match="no such folder") as error:
        load("./base")
    assert str(error.value) == (
        f"./base: no such folder in {folder}; name a folder, a .gguf file or OWNER/NAME of the hub"
    )
    with pytest.raises(Refused) as error:
        load("base.gguf")
    assert str(error.value) == f"there is no file base.gguf in {folder}; {WAY_OUT}"
    recipe = parse_recipe({"team": {"actor": {"model": "./base"}}, "topology": "solo"})
    assert f"./base: no such folder in {folder}" in [found.what for found in recipe_findings(recipe)]
    with pytest.raises(RecipeError, match=rf"^\./base: no such folder in {folder} and no OWNER/NAME"):
        trainee("./base", "lora")


def test_stored_answers(folder: Path) -> None:
    team = {"leader": {"model": "smollm2", "train": "lora"}, "ann": {"model": "smollm2"}}
    stages = {"answers": {"method": "collect"}, "mlpo": {"prefix": "stored", "steps": 1}}
    topology = {"name": "leader", "options": {"agents": ["ann"]}}
    Path("rows.jsonl").write_text("".join(f'{{"question": "{n}?", "answer": "{n}"}}\n' for n in range(9)))
    tasks = {"tasks": {"train": "rows.jsonl", "holdout": 0}, "collect": {"answers": "a.jsonl"}}
    recipe = parse_recipe({"team": team, "topology": topology, "stages": stages, **tasks})
    assert f"a.jsonl: no such file in {folder}; {WAY_OUT}" in [found.what for found in recipe_findings(recipe)]


def test_a_folder_that_may_be_a_name_of_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(Refused, match=rf"^cannot load the model 'out/base': .*; no such folder in {folder} either$"):
        load("out/base")
