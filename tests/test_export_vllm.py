"""An export behind `engine: vllm`: whole weights, or an adapter that answers under its own name and not as the base."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from exporting import name_base, trained
from fake_vllm import as_command
from pilotfish.engine.base import Refused
from pilotfish.engine.vllm_command import max_rank
from pilotfish.episode import Journal
from pilotfish.export import export_model
from pilotfish.recipe import parse_recipe
from pilotfish.seats import Seats
from pilotfish.team import Sampling

torch.set_num_threads(1)
Asked = Callable[[str], tuple[str, list[str], str]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Asks a model that the fake serves: its words, what the server was started with, the engine's identity."""
    variables = as_command(tmp_path)
    records = Path(variables["FAKE_VLLM"])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def asked(model: str) -> tuple[str, list[str], str]:
        text, identity = asyncio.run(play(model, tmp_path))
        [record] = records.glob("*.json")
        started = json.loads(record.read_text())["arguments"]
        record.unlink()
        return text, started, identity

    return asked


async def play(model: str, folder: Path) -> tuple[str, str]:
    recipe = parse_recipe({"team": {"actor": {"engine": "vllm", "model": model, "retries": 0}}, "topology": "solo"})
    seats = Seats(recipe, Journal(folder / "journal"))
    engine = seats.engine("actor")
    try:
        said = await engine.complete([{"role": "user", "content": "2 + 2?"}], Sampling(temperature=0.0), 1)
    finally:
        await seats.close()
    return said.text, str(engine.identity)


def test_whole_weights_are_served_from_their_folder(tmp_path: Path, ask: Asked) -> None:
    out = str(export_model(trained(tmp_path), tmp_path / "out").folder)
    text, started, _ = ask(out)
    assert text == f"{out} says 4"
    assert started[:2] == ["serve", out]
    assert "--enable-lora" not in started


def test_an_adapter_is_served_on_its_base_and_the_adapter_answers(tmp_path: Path, ask: Asked) -> None:
    out = export_model(trained(tmp_path), tmp_path / "out", adapter=True).folder
    name_base(out, str(tmp_path / "model"))
    text, started, _ = ask(str(out))
    assert text == f"{out} says 4"
    assert started[:2] == ["serve", str(tmp_path / "model")]
    assert started[started.index("--max-lora-rank") + 1] == "8"
    module = json.loads(started[started.index("--lora-modules") + 1])
    assert module == {"name": str(out), "path": str(out), "base_model_name": str(tmp_path / "model")}


def test_an_adapter_whose_base_is_not_to_be_found_is_refused(tmp_path: Path, ask: Asked) -> None:
    out = export_model(trained(tmp_path), tmp_path / "out", adapter=True).folder
    with pytest.raises(Refused, match="base_model_name_or_path is 'model', which is no folder here"):
        ask(str(out))


def test_answers_are_kept_for_what_stands_in_a_folder_and_not_for_its_name(tmp_path: Path, ask: Asked) -> None:
    run = trained(tmp_path)
    out = str(export_model(run, tmp_path / "out").folder)
    first, again = ask(out)[2], ask(out)[2]
    export_model(run, tmp_path / "out", dtype="bfloat16", force=True)
    assert first == again != ask(out)[2]


@pytest.mark.parametrize(("rank", "most"), [(1, 1), (4, 8), (16, 16), (100, 128)])
def test_the_rank_that_a_server_is_told_is_one_that_it_takes(rank: int, most: int) -> None:
    assert max_rank(rank) == most
