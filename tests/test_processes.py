"""What is refused before several processes begin, and what each has of what they share; none is started here."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from pilotfish.engine import loading
from pilotfish.engine.base import Completion
from pilotfish.engine.meter import MaxCostReached, Meter
from pilotfish.episode import Journal, Turn
from pilotfish.processes import LAUNCHED, Processes, _gpus, _take_gpu, joined
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.seats import Seats
from pilotfish.team import Sampling, Usage
from pilotfish.train.main import check_division, train
from pilotfish.train.order import check_shares
from pilotfish.train.profile import TrainConfig, passes
from pilotfish.train.row import RowId
from tiny import tiny_model, tiny_tokenizer
from training import vowels_recipe

SERVED = {"engine": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1", "concurrency": 9}
ONE: dict[str, Any] = {"updates_per_step": 1}


def recipe(**actor: Any) -> Recipe:
    team = {"collaborator": {"model": "tiny", "train": "full"}, "actor": {**SERVED, **actor}}
    return parse_recipe({"team": team, "topology": "hint", "train": {}})


def launch_with(monkeypatch: Any, processes: int = 2, **variables: str) -> None:
    for name in LAUNCHED:
        monkeypatch.setenv(name, "0")
    for name, value in {"WORLD_SIZE": str(processes), **variables}.items():
        monkeypatch.setenv(name, value)


FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, r"\$ACCELERATE_USE_DEEPSPEED is set.* `accelerate launch --use_fsdp "),
        ({"ACCELERATE_USE_FSDP": "true"}, "FSDP of version 1; only 2 is built: add `--fsdp_version 2`"),
        ({"ACCELERATE_USE_FSDP": "1"}, "FSDP of version 1; only 2 is built: add `--fsdp_version 2`"),
        ({**FSDP2, "FSDP_VERSION": "1"}, "FSDP of version 1; only 2 is built"),
        ({**FSDP2, "FSDP_OFFLOAD_PARAMS": "true"}, r"\$FSDP_OFFLOAD_PARAMS is true, .* start more processes"),
        ({**FSDP2, "FSDP_RESHARD_AFTER_FORWARD": "false"}, "FSDP_RESHARD_AFTER_FORWARD is false, .* at true"),
        ({**FSDP2, "FSDP_ACTIVATION_CHECKPOINTING": "True"}, "set train.gradient_checkpointing in the recipe"),
        ({**FSDP2, "WORLD_SIZE": "1"}, "one process has nobody to divide weights with; start several"),
    ],
)
def test_a_launch_that_divides_weights_in_a_way_that_is_not_built_is_refused(
    variables: dict[str, str], why: str, tmp_path: Path, monkeypatch: Any
) -> None:
    launch_with(monkeypatch, **variables)
    with pytest.raises(RecipeError, match=f"^train: .*{why}"):
        train(vowels_recipe(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_launch_says_that_weights_are_divided_and_models_are_loaded_whole(monkeypatch: Any) -> None:
    """accelerate sets the last, and transformers would then load weights in the first process only."""
    launch_with(monkeypatch, **FSDP2, FSDP_RESHARD_AFTER_FORWARD="true", FSDP_CPU_RAM_EFFICIENT_LOADING="true")
    asked = []

    def join(sharing: bool, sharded: bool) -> Any:
        asked.append((sharing, sharded))
        return Processes(sharded=sharded), None, False

    monkeypatch.setattr("pilotfish.processes._join", join)
    monkeypatch.setattr(distributed, "destroy_process_group", lambda group: None)
    for sharing in (False, True):
        with joined(sharing=sharing):
            assert "ACCELERATE_USE_FSDP" not in os.environ
        assert os.environ["ACCELERATE_USE_FSDP"] == "true"
    assert asked == [(False, True), (True, False)]


def test_a_launch_on_several_machines_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    for name in LAUNCHED:
        monkeypatch.setenv(name, "0")
    for sharing in (False, True):
        with pytest.raises(RecipeError, match=r"^16 processes, 8 of them on this machine"), joined(sharing=sharing):
            pass
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(SystemExit) as end, joined():
        pass
    assert end.value.code == 0, "at another one's error torchrun ends the main process, which may not have spoken yet"


def test_a_launch_that_lacks_what_a_launcher_tells_is_refused(monkeypatch: Any) -> None:
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    lacking = r"\$LOCAL_RANK, \$MASTER_ADDR, \$MASTER_PORT; start with torchrun"
    with pytest.raises(RecipeError, match=rf"\$WORLD_SIZE is 2 without {lacking}"), joined(sharing=True):
        pass


def test_an_evaluation_does_not_ask_how_weights_in_training_are_divided(monkeypatch: Any) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with joined(sharing=True) as processes:
        assert processes.count == 1


def test_a_stage_that_does_not_divide_is_refused_before_the_first_one_begins() -> None:
    staged = {"answers": {"method": "collect"}, "mlpo": {"prefix": "stored", "tasks_per_step": 3}}
    team = {"leader": {"model": "tiny", "train": "full"}, "ann": SERVED}
    made = parse_recipe({"team": team, "topology": "leader", "stages": staged})
    with pytest.raises(RecipeError, match="tasks_per_step is 3 and there are 2 processes"):
        check_division(made, 2)


def test_each_process_keeps_to_its_part_of_a_servers_limits() -> None:
    paced = recipe(requests_per_minute=100, tokens_per_minute=9000)
    for count, expected in ((1, (9, 100, 9000)), (4, (2, 25, 2250))):
        engine: Any = Seats(paced, processes=Processes(count=count)).engine("actor")
        assert (engine.concurrency, engine.requests_per_minute, engine.tokens_per_minute) == expected


def test_each_process_keeps_to_its_part_of_the_calls_to_a_server_of_the_runs_own() -> None:
    served = recipe(engine="vllm", base_url=None)
    for count, expected in ((1, 9), (4, 2)):
        engine: Any = Seats(served, processes=Processes(count=count)).engine("actor")
        assert engine.engine.concurrency == expected


def test_no_more_calls_are_let_through_than_a_process_makes_at_once() -> None:
    capped = recipe(price={"output": 1}).model_copy(update={"max_cost": 5.0})
    for count, expected in ((1, 9), (4, 2)):
        engine: Any = Seats(capped, meter=Meter(5.0), processes=Processes(count=count)).engine("actor")
        assert engine._places._value == expected


def test_processes_share_what_is_left_while_they_play_together(tmp_path: Path) -> None:
    capped = recipe(price={"output": 1}).model_copy(update={"max_cost": 5.0})
    journal, meter = Journal(tmp_path), Meter()
    seats = Seats(capped, journal, meter, Processes(count=4))
    assert room(meter) == 5
    bill(journal, "before", 1)
    with seats.sharing():
        assert (meter.spent, room(meter)) == (1, 1)
        bill(Journal(tmp_path), "by another", 2)
    assert (meter.spent, room(meter)) == (3, 2), "one alone has the whole of it"


def room(meter: Meter) -> float:
    """Money until a meter stops, spent in calls of 1; what was in flight goes beyond."""

    async def spend() -> float:
        before, spent = meter.spent, 0.0
        while True:
            try:
                await meter.admit()
            except MaxCostReached:
                meter.spent = before
                return spent
            meter.settle(1.0)
            spent += 1.0

    return asyncio.run(spend())


def bill(journal: Journal, key: str, money: int) -> None:
    done = Completion("words", "stop", Usage(0, money * 1_000_000), 0.1)
    messages = [{"role": "user", "content": "?"}]
    journal.record(Turn(key, "s", "actor", 0, messages, Sampling(), "answered", done, asker="eval/x|solo"))


def test_who_has_spent_its_part_says_that_the_same_command_divides_the_rest() -> None:
    meter = Meter()
    meter.begin(10.0, 4.0, processes=3)
    assert room(meter) == 2
    meter.spent = 6.0
    with pytest.raises(MaxCostReached, match=r"^max_cost is 10, and one of 3 processes has spent its part of it"):
        asyncio.run(meter.admit())


def test_a_process_takes_fewer_rows_at_once_where_a_micro_batch_is_more_than_its_share() -> None:
    config = TrainConfig(micro_batch=32)
    assert [passes(config, processes) for processes in (1, 2, 4)] == [(32, 6), (32, 3), (16, 3)]


@pytest.mark.parametrize(("processes", "tasks"), [(3, 18), (5, 15), (6, 18), (8, 24), (12, 36)])
def test_the_refusal_names_the_next_tasks_per_step_that_divides(processes: int, tasks: int) -> None:
    with pytest.raises(ValueError, match=rf"; set (train\.)?tasks_per_step to {tasks}\b"):
        passes(TrainConfig(), processes)
    passes(TrainConfig(tasks_per_step=tasks), processes)
    for fewer in range(13, tasks):
        with pytest.raises(ValueError, match=r"divide|straddle"):
            passes(TrainConfig(tasks_per_step=fewer), processes)


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
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert _gpus()[1] == own
    assert _take_gpu(_gpus(), sharing=False) == 1
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["LOCAL_RANK"]) == (own, "0")
    for name, value in (("WORLD_SIZE", "3"), ("CUDA_VISIBLE_DEVICES", seen)):
        monkeypatch.setenv(name, value)
    with pytest.raises(RecipeError, match="3 processes, and 2 of them have a GPU; start 2"):
        _take_gpu(_gpus(), sharing=False)


@pytest.mark.parametrize(("rank", "own", "on_it"), [(0, "4", 3), (3, "6", 2), (4, "4", 3)])
def test_processes_of_an_evaluation_share_gpus(rank: int, own: str, on_it: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for name, value in (("WORLD_SIZE", "5"), ("LOCAL_RANK", str(rank)), ("CUDA_VISIBLE_DEVICES", "4,6")):
        monkeypatch.setenv(name, value)
    assert _take_gpu(_gpus(), sharing=True) == on_it
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["LOCAL_RANK"]) == (own, "0")


def test_processes_on_one_gpu_share_the_memory_that_a_member_may_have(monkeypatch: Any) -> None:
    taken = []
    monkeypatch.setattr("pilotfish.seats._load", lambda member, dtype: (member.model, None))
    monkeypatch.setattr(
        "pilotfish.engine.transformers.TransformersEngine", lambda *_, memory, **more: taken.append(memory)
    )
    team = {"collaborator": {"model": "tiny", "train": "full"}, "actor": {"model": "small", "memory": 0.6}}
    seats = Seats(parse_recipe({"team": team, "topology": "hint"}), processes=Processes(count=4, on_gpu=3))
    seats.engine("actor")
    seats.trained(Path("best"), 1)
    assert taken == pytest.approx([0.2, 0.1])


def test_one_process_has_all_to_itself() -> None:
    alone = Processes()
    assert alone.main
    assert (alone.gathered("mine"), alone.of_main("mine"), "abc"[alone.part]) == (["mine"], "mine", "abc")


@pytest.mark.parametrize("items", ["", "a", "abcdefg"])
def test_what_was_divided_is_put_together_in_its_order(items: str, monkeypatch: Any) -> None:
    every = [Processes(rank, count=3) for rank in range(3)]
    monkeypatch.setattr(Processes, "gathered", lambda *_: [items[one.part] for one in every])
    assert every[1].whole(items[every[1].part]) == list(items)


def test_a_process_that_does_not_lead_writes_a_converted_model_whole(tmp_path: Path, monkeypatch: Any) -> None:
    """Any of them may be the one whose conversion the others load."""
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", lambda *_, **options: tiny_tokenizer())
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", lambda *_, **options: tiny_model(0))
    distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        loading.convert_gguf(tmp_path / "model.gguf", tmp_path / "model")
    finally:
        distributed.destroy_process_group()
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        file.name for file in (tmp_path / "model").iterdir()
    }
