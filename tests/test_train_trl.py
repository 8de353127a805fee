"""What this project relies on in TRL beyond its documentation. A failure names what an update of TRL has changed."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from pilotfish.engine.policy import PolicyEngine
from tiny import save_tiny
from training import PROMPTS, learn, recipe


def test_the_pinned_version_is_installed() -> None:
    assert version("trl").startswith("1.16."), "trl was updated: read the tests of this file before the pin is moved"


@pytest.mark.parametrize(
    "field",
    [
        "steps_per_generation",
        "num_generations",
        "shuffle_dataset",
        "max_completion_length",
        "loss_type",
        "epsilon",
        "epsilon_high",
        "delta",
        "beta",
        "use_bias_correction_kl",
        "scale_rewards",
        "model_init_kwargs",
    ],
)
def test_the_fields_of_the_mapping_exist(field: str) -> None:
    assert field in GRPOConfig.__dataclass_fields__, f"GRPOConfig.{field} is gone: train.grpo.arguments sets it"


def test_the_methods_that_tests_look_into_exist() -> None:
    assert list(inspect.signature(GRPOTrainer._compute_loss).parameters) == ["self", "model", "inputs"]
    assert hasattr(GRPOTrainer, "_get_per_token_logps_and_entropies")
    assert list(inspect.signature(GRPOTrainer._prepare_inputs).parameters) == ["self", "generation_batch"]
    assert "rollout_func" in inspect.signature(GRPOTrainer.__init__).parameters


def test_rollout_func_gets_each_group_in_a_row_and_its_extra_lists_reach_the_reward(tmp_path: Path) -> None:
    learned = learn(recipe(save_tiny(tmp_path / "model"), "solo", steps=1), PROMPTS["solo"], tmp_path)
    groups = [learned.rows[0][start : start + 16] for start in range(0, 64, 16)]
    assert all(len({row.id for row in group}) == 1 for group in groups), "rows of a group are no longer neighbours"
    judged = [row.reward for row in learned.rows[0] if row.reward is not None]
    found = learned.logged[0]["reward"]
    assert found == pytest.approx(sum(judged) / 64), "rewards no longer come from `episode_reward`"
    assert learned.logged[0]["team/no_verdict"] == 0, "`log_metric` no longer reaches the log"


def test_rollout_func_may_be_set_after_the_trainer_was_made(tmp_path: Path) -> None:
    learned = learn(
        recipe(save_tiny(tmp_path / "model"), "solo", steps=1),
        PROMPTS["solo"],
        tmp_path,
        at_step=lambda step, learned: True,
    )
    assert type(learned.trainer.rollout_func).__name__ == "Player"


def test_the_kl_of_a_lora_is_to_the_weights_without_it(tmp_path: Path) -> None:
    made = recipe(save_tiny(tmp_path / "model"), "solo", lora={"rank": 4}, profile="paper", steps=3)
    learned = learn(made, PROMPTS["solo"], tmp_path)
    assert learned.trainer.ref_model is None
    assert learned.logged[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert learned.logged[2]["kl"] > 1e-6


def test_the_kl_of_all_weights_is_to_those_in_the_trainees_folder(tmp_path: Path) -> None:
    made = recipe(save_tiny(tmp_path / "model"), "solo", profile="paper", steps=2)
    learned = learn(made, PROMPTS["solo"], tmp_path)
    assert learned.logged[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert learned.logged[1]["kl"] > 1e-5
    reference = learned.trainer.ref_model.state_dict()
    from safetensors.torch import load_file

    for name, weight in load_file(tmp_path / "model" / "model.safetensors").items():
        assert torch.equal(reference[name], weight), name


def test_a_checkpoints_state_is_written_last(tmp_path: Path) -> None:
    learn(recipe(save_tiny(tmp_path / "model"), "solo", steps=1, save_every=1), PROMPTS["solo"], tmp_path)
    (checkpoint,) = (tmp_path / "checkpoints").glob("checkpoint-*")
    written = {file.name: file.stat().st_mtime_ns for file in checkpoint.iterdir()}
    needed = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]
    assert written.keys() >= {*needed, "trainer_state.json"}
    assert all(written[name] <= written["trainer_state.json"] for name in needed)


def test_the_policys_copy_follows_the_trained_weights(tmp_path: Path) -> None:
    """TRL trains the module it was given, in place: the policy engine copies from it."""
    seen: list[torch.Tensor] = []

    def look(step: int, learned: Any) -> bool:
        policy: PolicyEngine = learned.policy
        trained = learned.trainer.accelerator.unwrap_model(learned.trainer.model)
        assert policy._trained is trained
        seen.append(next(iter(trained.parameters())).detach().clone())
        return False

    learn(recipe(save_tiny(tmp_path / "model"), "solo", steps=2), PROMPTS["solo"], tmp_path, at_step=look)
    assert not torch.equal(seen[0], seen[2])
