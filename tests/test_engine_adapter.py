"""An adapter's folder as a member's model: what speaks is the sum that was trained and measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from exporting import IDS, name_base, recipe, trained
from pilotfish.engine import loading
from pilotfish.engine.adapter import cast, merged
from pilotfish.engine.base import Refused
from pilotfish.engine.loading import load
from pilotfish.export import export_model
from pilotfish.preflight.memory import measure
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.train.main import train

torch.set_num_threads(1)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An export whose base is a folder here."""
    out = export_model(trained(tmp_path), tmp_path / "out", adapter=True).folder
    name_base(out, str(tmp_path / "model"))
    return out


def said(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_added_to_its_base_as_a_runs_own_weights_are(adapter: Path, tmp_path: Path, dtype: str) -> None:
    base = load(str(tmp_path / "model"), dtype=dtype, device="cpu")[0]
    before = said(base)
    evaluated = said(cast(merged(base, adapter), getattr(torch, dtype)))
    member = load(str(adapter), dtype=dtype, device="cpu")[0]
    assert torch.equal(said(member), evaluated)
    assert not torch.allclose(said(member), before)


def test_it_is_as_large_as_its_base_and_can_be_fine_tuned(adapter: Path, tmp_path: Path) -> None:
    assert measure(str(adapter)).parameters == measure(str(tmp_path / "model")).parameters
    assert all(weight.requires_grad for weight in load(str(adapter), device="cpu")[0].parameters())
    name_base(adapter, "model")
    assert measure(str(adapter)).parameters is None


def test_no_training_of_a_team_begins_with_one(adapter: Path, tmp_path: Path) -> None:
    """What it leaves would be told from the base that the weights name."""
    data = recipe(tmp_path).model_dump(mode="json", exclude_unset=True)
    data["team"]["collaborator"]["model"] = str(adapter)
    with pytest.raises(RecipeError, match=r"team\.collaborator\.model: .*out is an adapter.*without --adapter"):
        train(parse_recipe(data), tmp_path / "again")


def test_its_own_tokenizer_is_taken_where_it_has_one(adapter: Path) -> None:
    file = adapter / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": 77}))
    assert load(str(adapter), device="cpu")[1].model_max_length == 77
    file.unlink()
    assert load(str(adapter), device="cpu")[1].model_max_length != 77


def test_its_base_may_be_the_embedded_model(adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = said(load(str(adapter), dtype="float32", device="cpu")[0])
    monkeypatch.setattr(loading, "embedded", lambda: tmp_path / "model")
    name_base(adapter, "smollm2")
    assert torch.equal(said(load(str(adapter), dtype="float32", device="cpu")[0]), wanted)


def test_a_base_that_is_not_to_be_found_is_refused_with_the_place_to_mend(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_base(adapter, "model")
    with pytest.raises(Refused, match=r"base_model_name_or_path is 'model', which is no folder here"):
        load(str(adapter))
    name_base(adapter, "nobody/has-this")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Refused, match=r"out: an adapter: cannot load the model 'nobody/has-this'.*write where its"):
        load(str(adapter))
