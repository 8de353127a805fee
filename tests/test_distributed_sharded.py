"""Two processes that divide the weights in training (FSDP) over gloo learn what one learns, and any number goes on from
their checkpoints.

Weights agree to 1e-5, rewards and losses to 1e-6, as without dividing: the same float32 gradients in another order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import distributed
from torch.distributed import HashStore
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, MambaConfig, MambaForCausalLM

from launching import FSDP, assert_loss_is_told, assert_one_says_why, ended, launch
from pilotfish.engine.weights import gathered
from pilotfish.processes import Processes
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.run import Run
from pilotfish.train.shards import WholeCheckpoints, _divide
from test_distributed import KILLED_AT, STEPS, assert_same
from test_distributed_long import assert_same_weights
from test_train_stages import data
from tiny import tiny_model
from training import vowels_recipe

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(3000)]


def job(folder: Path, name: str, recipe: Path, processes: int = 2, **more: Any) -> dict[str, Any]:
    do = ["train", str(recipe), "--run", str(folder / name)]
    return {"do": do, "out": str(folder / "out" / name), "processes": processes, **more}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of `one` process and of two that are `sharded`; `refused`, `killed`; the killed one gone on with one process
    (`whole`), with two that divide weights (`again`), and again with two that do not (`copies`)."""
    folder = tmp_path_factory.mktemp("sharded")
    made = vowels_recipe(
        folder, micro_batch=4, updates_per_step=1, steps=STEPS, evaluate_every=2, save_every=2, learning_rate=1e-2
    )
    recipe = folder / "recipe.yaml"
    recipe.write_text(made.dump())

    def moved(name: str, processes: int, **more: Any) -> dict[str, Any]:
        return job(folder, name, folder / name, processes, moved=[str(folder / "killed"), str(folder / name)], **more)

    fault = "no key in $ACTOR_KEY; export it"
    launch(
        folder,
        [
            job(folder, "one", recipe, 1),
            job(folder, "sharded", recipe, env=FSDP),
            job(folder, "refused", recipe, env=FSDP, rank=1, at=9, fault=fault),
            job(folder, "killed", recipe, env=FSDP, rank=1, at=KILLED_AT),
            moved("whole", 1),
            moved("copies", 2),
            moved("again", 2, env=FSDP),
        ],
    )
    return folder


def test_two_processes_with_a_part_of_the_weights_learn_what_one_learns(scene: Path) -> None:
    codes, (main, other) = ended(scene / "out" / "sharded")
    assert codes == [0, 0]
    assert "divided among 2 processes" in main
    assert "step 4/4" in main
    assert other == ""
    assert_same(scene / "sharded", scene / "one")
    assert (scene / "sharded" / "rows.jsonl").read_text() == (scene / "one" / "rows.jsonl").read_text()


def test_each_holds_half_of_weights_gradients_and_moments(scene: Path) -> None:
    (whole,) = held(scene / "out" / "one", 1)
    weights, gradients, moments = whole
    assert weights == gradients == moments / 2 > 0
    assert held(scene / "out" / "copies", 2) == [whole] * 2
    assert held(scene / "out" / "sharded", 2) == [[number / 2 for number in whole]] * 2


def held(out: Path, processes: int) -> list[list[float]]:
    return [json.loads((out / f"held-{rank}.json").read_text()) for rank in range(processes)]


def test_their_best_weights_are_a_models_folder_like_any_other(scene: Path) -> None:
    ours, theirs = (AutoModelForCausalLM.from_pretrained(scene / name / "best") for name in ("sharded", "one"))
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, rtol=0, atol=1e-5)
    assert Run(scene / "sharded").best_step == Run(scene / "one").best_step


@pytest.mark.parametrize("name", ["whole", "copies", "again"])
def test_a_killed_run_goes_on_divided_or_not(name: str, scene: Path) -> None:
    assert_loss_is_told(scene / "out" / "killed")
    codes, _ = ended(scene / "out" / name)
    assert codes == [0] * len(codes)
    assert_same(scene / name, scene / "one")


def test_a_process_that_fails_ends_both_and_says_why_alone(scene: Path) -> None:
    assert_one_says_why(scene / "out" / "refused", "collaborator: no key in $ACTOR_KEY; export it")


@pytest.mark.parametrize("count", [2, 3])
def test_each_process_has_its_part_of_every_weight(count: int) -> None:
    model, whole = tiny_model(0), tiny_model(0)
    distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=count)
    try:
        _divide(model, None)
        parts: dict[str, Any] = dict(model.named_parameters())
        for name, weight in whole.named_parameters():
            assert isinstance(parts[name], DTensor)
            assert torch.equal(parts[name].to_local(), weight.chunk(count)[1])
        model.load_state_dict({name: weight + 1 for name, weight in whole.state_dict().items()})
        assert torch.equal(parts["model.norm.weight"].to_local(), whole.model.norm.weight.chunk(count)[1] + 1)
        assert gathered(model, keep=False) == {}
    finally:
        distributed.destroy_process_group()


@pytest.fixture
def alone() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_a_layer_within_a_layer_is_divided_before_it(alone: None) -> None:
    sizes = {"vocab_size": 32, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "time_step_rank": 2}
    model = MambaForCausalLM(MambaConfig(**sizes, use_mambapy=False)).float()
    ids = torch.arange(8)[None]
    expected = model(ids).logits
    _divide(model, None)
    found = model(ids).logits
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert all(isinstance(weight, DTensor) for weight in model.parameters())


def test_a_reference_is_in_parts_again_after_its_pass(alone: None) -> None:
    ids, model, reference = torch.arange(8)[None], tiny_model(0), tiny_model(0)
    for one, trained in ((model, True), (reference, False)):
        _divide(one, None, backward=trained)
        with torch.no_grad():
            one(ids)
    assert not isinstance(model.lm_head.weight, DTensor), "it is used again in the backward pass"
    assert all(isinstance(weight, DTensor) for weight in reference.parameters())


@pytest.mark.parametrize("what", ["unknown layers", "shared weights"])
def test_what_cannot_be_divided_is_refused_with_the_way_out(alone: None, what: str) -> None:
    model = tiny_model(0)
    if what == "unknown layers":
        model._no_split_modules = None
    else:
        first, second = model.model.layers[:2]
        second.mlp.up_proj.weight = first.mlp.up_proj.weight
    with pytest.raises(RecipeError, match=r"LlamaForCausalLM.*--multi_gpu"):
        _divide(model, None)


def test_all_wait_until_the_main_process_has_written() -> None:
    """Longer than torch would wait for a process that is late."""
    seen = []

    class Writes:
        def save_model(self, *_: Any) -> None:
            seen.append("weights")

        def _save_checkpoint(self, *_: Any) -> None:
            self.save_model()
            seen.append("moments")

    class Group(Processes):
        def gathered(self, mine: Any) -> list[Any]:
            seen.append("wait")
            return [mine]

    class Saves(WholeCheckpoints, Writes):
        model = None
        processes = Group()

    Saves()._save_checkpoint()
    assert seen == ["weights", "wait", "moments", "wait"]


# The long form


def twice(folder: Path, recipe: Any) -> None:
    """Runs `two`, where each process has all weights, and `sharded`."""
    file = folder / "recipe.yaml"
    file.write_text(recipe.dump())
    launch(folder, [job(folder, "two", file), job(folder, "sharded", file, env=FSDP)])
    assert ended(folder / "out" / "sharded")[0] == [0, 0]


@pytest.mark.slow
def test_a_lora_beside_a_frozen_member_on_its_base_and_a_divergence_are_divided_too(tmp_path: Path) -> None:
    lora, every = {"rank": 4, "alpha": 8}, {"evaluate_every": 3, "save_every": 3}
    made = vowels_recipe(tmp_path, lora=lora, micro_batch=4, steps=3, updates_per_step=2, beta=0.1, **every)
    mapping = made.model_dump(mode="json", exclude_unset=True)
    sampling = {"temperature": 1.0, "max_tokens": 3}
    mapping["team"]["actor"] = {**mapping["team"]["collaborator"], "train": None, "sampling": sampling}
    mapping["topology"] = f"{Path(__file__).with_name('vowels.py')}:repeated"
    twice(tmp_path, parse_recipe(mapping))
    place = "checkpoints/checkpoint-6/adapter_model.safetensors"
    learned = load_file(tmp_path / "two" / place)
    assert any(weight.abs().max() > 1e-3 for name, weight in learned.items() if "lora_B" in name), "they begin at 0"
    assert_same_weights(tmp_path / "sharded" / place, tmp_path / "two" / place)


@pytest.mark.slow
def test_a_killed_lora_goes_on(tmp_path: Path) -> None:
    lora, every = {"rank": 4, "alpha": 8}, {"evaluate_every": 2, "save_every": 2}
    made = vowels_recipe(tmp_path, lora=lora, micro_batch=4, steps=STEPS, updates_per_step=1, **every)
    (tmp_path / "recipe.yaml").write_text(made.dump())
    one, killed = (tmp_path / name for name in ("one", "killed"))
    begun = job(tmp_path, "killed", tmp_path / "recipe.yaml", env=FSDP, rank=1, at=KILLED_AT)
    again = job(tmp_path, "again", tmp_path / "again", env=FSDP, moved=[str(killed), str(tmp_path / "again")])
    launch(tmp_path, [job(tmp_path, "one", tmp_path / "recipe.yaml", 1), begun, again])
    assert_loss_is_told(tmp_path / "out" / "killed")
    assert ended(tmp_path / "out" / "again")[0] == [0, 0]
    place = "checkpoints/checkpoint-4/adapter_model.safetensors"
    assert_same_weights(tmp_path / "again" / place, one / place)


@pytest.mark.slow
def test_a_divergence_and_recomputed_activations_of_all_weights_are_the_same(tmp_path: Path) -> None:
    every = {"evaluate_every": 3, "save_every": 3, "learning_rate": 1e-2}
    twice(tmp_path, vowels_recipe(tmp_path, micro_batch=4, steps=3, beta=0.1, gradient_checkpointing=True, **every))
    assert_same(tmp_path / "sharded", tmp_path / "two", 3)


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["full", {"rank": 4, "alpha": 8}], ids=["full", "lora"])
def test_every_kind_of_stage_comes_to_the_same_with_divided_weights(trained: Any, tmp_path: Path) -> None:
    """SFT, collecting, backtracking without a chain, MLPO, MLPO+."""
    mapping = data(tmp_path)
    mapping["team"]["leader"]["train"] = trained
    twice(tmp_path, parse_recipe(mapping))
    for ours, theirs in zip(Run(tmp_path / "sharded").stages(), Run(tmp_path / "two").stages(), strict=True):
        assert ours.best_step == theirs.best_step
        for file in theirs.best.glob("*.safetensors"):
            assert_same_weights(ours.best / file.name, file)
    assert len(list(tmp_path.glob("two/stages/*/best/*.safetensors"))) == 3
