"""The card of an export: what was measured, how the team is seated, and nothing of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from exporting import KEY, recipe, trained
from mock_server import MockServer
from pilotfish.evaluate.bench import evaluate
from pilotfish.export import export_model
from pilotfish.export.card import front
from pilotfish.export.measured import Measured
from pilotfish.export.sections import team
from pilotfish.run import Run

torch.set_num_threads(1)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """A run that was trained and evaluated."""
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(KEY, "sk-do-not-tell")

    def made() -> Path:
        with MockServer(reply=lambda body: "\\boxed{4}") as server:
            folder = trained(tmp_path, address=server.base_url)
            with Run(folder) as run:
                evaluate(run.recipe, run)
        return folder

    return made


def test_the_card_carries_the_evaluation_and_nothing_of_this_machine(
    tmp_path: Path, measured: Callable[[], Path]
) -> None:
    run = measured()
    export_model(run, tmp_path / "out")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    results = card.data.eval_results
    assert results is not None
    assert [(one.dataset_name, one.metric_type, one.metric_value) for one in results] == [("sums", "accuracy", 100.0)]
    assert results[0].metric_name == "accuracy of the team (hint, trained), %"
    assert card.data.base_model is None  # it is on no hub
    assert card.data.library_name == "transformers"
    for told in (
        "This is the local model `model`, trained as the `collaborator` of a team in the topology hint",
        "| hint, trained | 100.0 | [",
        "| hint, trained | collaborator | 1 |",
        "Give one short, concrete hint.",
        "in 25.0 % before and 50.0 % with them",
        "base_url: https://HOST/v1",
        "| tensors changed | 14 of 21 |",
        "vllm serve out",
    ):
        assert told in card.content
    texts = "".join(file.read_text() for file in (tmp_path / "out").iterdir() if file.suffix != ".safetensors")
    assert not [secret for secret in (str(tmp_path), "127.0.0.1", KEY, "sk-do-not-tell") if secret in texts]


def test_an_evaluation_of_other_weights_is_left_out(tmp_path: Path, measured: Callable[[], Path]) -> None:
    run = measured()
    Run(run).mark_best(run / "best", 6)
    export_model(run, tmp_path / "out")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.eval_results is None
    assert "The run's last evaluation was of other weights" in card.content


def test_a_base_of_the_hub_is_named_and_prompts_cannot_end_their_block(tmp_path: Path) -> None:
    given = recipe(tmp_path, topology={"name": "hint", "prompts": {"advise": {"system": "```\n# Not a heading\n```"}}})
    seats = given.team | {"collaborator": given.team["collaborator"].model_copy(update={"model": "org/small"})}
    named = given.model_copy(update={"team": seats})
    told = front(named, Measured(), name="x", adapter=True)
    assert (told.base_model, told.base_model_relation, told.library_name) == ("org/small", "adapter", "peft")
    assert told.license is None
    [block] = [part for part in team(named) if "Not a heading" in part]
    assert block.startswith("````yaml\n")
