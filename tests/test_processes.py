"""What is refused before several processes begin, and what each has of what they share; none is started here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pilotfish.processes import Processes, _take_gpu, joined
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.seats import Seats
from pilotfish.train.main import check_division, train
from pilotfish.train.order import check_shares
from pilotfish.train.profile import TrainConfig, passes
from pilotfish.train.row import RowId
from training import vowels_recipe

SERVED = {"engine": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1", "concurrency": 9}
ONE: dict[str, Any] = {"updates_per_step": 1}


def recipe(**actor: Any) -> Recipe:
    team = {"collaborator": {"model": "tiny", "train": "full"}, "actor": {**SERVED, **actor}}
    return parse_recipe({"team": team, "topology": "hint", "train": {}})


@pytest.mark.parametrize("variable", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_a_launch_that_divides_the_weights_is_refused(variable: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(RecipeError, match=rf"\${variable} is set: .* divides the weights .* `train: lora`"):
        train(vowels_recipe(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_launch_on_several_machines_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with pytest.raises(RecipeError, match="16 processes, 8 of them on this machine"), joined():
        pass


def test_a_limit_on_money_that_processes_cannot_keep_together_is_refused() -> None:
    limited = recipe().model_copy(update={"max_cost": 5.0})
    check_division(limited, 1)
    with pytest.raises(RecipeError, match="max_cost is 5, and 2 processes cannot see what the others spend"):
        check_division(limited, 2)


def test_a_server_that_each_process_would_start_is_refused() -> None:
    team = {"collaborator": {"model": "tiny", "train": "full"}, "actor": {"engine": "vllm", "model": "owner/name"}}
    served = parse_recipe({"team": team, "topology": "hint", "train": {}})
    with pytest.raises(RecipeError, match=r"team\.actor: 2 processes .* `vllm serve owner/name` .* engine: openai"):
        check_division(served, 2)


def test_a_stage_that_does_not_divide_is_refused_before_the_first_one_begins() -> None:
    staged = {"answers": {"method": "collect"}, "mlpo": {"prefix": "stored", "tasks_per_step": 3}}
    team = {"leader": {"model": "tiny", "train": "full"}, "ann": SERVED}
    made = parse_recipe({"team": team, "topology": "leader", "stages": staged})
    with pytest.raises(RecipeError, match="tasks_per_step is 3 and there are 2 processes"):
        check_division(made, 2)


def test_each_process_keeps_to_its_part_of_a_servers_limits() -> None:
    paced = recipe(requests_per_minute=100, tokens_per_minute=9000)
    for count, expected in ((1, (9, 100, 9000)), (4, (2, 25, 2250))):
        engine: Any = Seats(paced, processes=count).engine("actor")
        assert (engine.concurrency, engine.requests_per_minute, engine.tokens_per_minute) == expected


def test_a_process_takes_fewer_rows_at_once_where_a_micro_batch_is_more_than_its_share() -> None:
    config = TrainConfig(micro_batch=32)
    assert [passes(config, processes) for processes in (1, 2, 4)] == [(32, 6), (32, 3), (16, 3)]


def test_no_two_processes_play_one_episode() -> None:
    laid, config = [RowId(task, decision=at) for task in "abcd" for at in (0, 1)], TrainConfig(tasks_per_step=8, **ONE)
    check_shares(laid, config, 2)
    check_shares(laid, config, 4)
    with pytest.raises(ValueError, match="8 processes with 1 groups each divide the decisions of an episode on task a"):
        check_shares(laid, config, 8)


@pytest.mark.parametrize(("seen", "own"), [("4,6", "6"), ("", "1")])
def test_a_process_sees_its_own_gpu_as_the_first(seen: str, own: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert _take_gpu()
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["LOCAL_RANK"]) == (own, "0")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(RecipeError, match="process 2 has no GPU of its own"):
        _take_gpu()


def test_one_process_has_all_to_itself() -> None:
    alone = Processes()
    assert alone.main
    assert (alone.gathered("mine"), alone.of_main("mine"), "abc"[alone.part]) == (["mine"], "mine", "abc")
