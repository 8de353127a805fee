"""A trainee with `engine: vllm`: its server gets the trained weights at each sync, and answers with token ids."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import peft
import pytest
import torch

from fake_vllm import as_command
from pilotfish import train
from pilotfish.engine.base import Completion, Refused
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.engine.vllm import VllmServer
from pilotfish.engine.vllm_policy import ENVIRONMENT, VllmPolicy, arguments, scratch
from pilotfish.evaluate.bench import evaluate
from pilotfish.member import MemberConfig
from pilotfish.processes import Processes
from pilotfish.recipe import parse_recipe
from pilotfish.run import Run
from pilotfish.team import Sampling
from pilotfish.train import gap
from pilotfish.train.lora import peft_config
from tiny import save_tiny, tiny_model, tiny_tokenizer

torch.set_num_threads(1)
Asked = Callable[[], list[dict[str, Any]]]
LORA = {"rank": 4, "alpha": 8}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the fake on the PATH; the folder that it writes to."""
    for name, value in (variables := as_command(tmp_path)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    return Path(variables["FAKE_VLLM"])


def asked(fake: Path) -> list[dict[str, Any]]:
    file = fake / "asked.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def policy(tmp_path: Path, trained: Any, train: Any, processes: Processes | None = None) -> VllmPolicy:
    member = MemberConfig.model_validate({"model": "org/small", "engine": "vllm", "train": train, "retries": 0})
    log = tmp_path / "logs" / "leader.log"
    server = VllmServer("leader", member, log, more=arguments(member), env=ENVIRONMENT, scratch=scratch())
    openai = partial(OpenAIEngine, model=member.model, base_url=server.base_url, retries=0)
    return VllmPolicy(server, trained, tiny_tokenizer(), openai, processes=processes)


async def ask(policy: VllmPolicy, top_p: float = 1.0) -> Completion:
    sampling = Sampling(max_tokens=4, temperature=0.7, top_p=top_p)
    return await policy.complete([{"role": "user", "content": "2 + 2?"}], sampling, seed=3)


def test_a_server_of_full_weights_gets_them_in_place_and_forgets_prompts(tmp_path: Path, fake: Path) -> None:
    model = tiny_model(0)
    first = min(name for name, _ in model.named_parameters())

    async def play() -> list[float]:
        leader, sums = policy(tmp_path, model, "full"), []
        for updates in range(2):
            await leader.sync(updates)
            assert leader.version == updates
            said = await ask(leader)
            sums.append(float(model.get_parameter(first).detach().bfloat16().float().sum()))
            model.get_parameter(first).data += 1.0
        assert said.completion_ids is not None
        assert said.logprobs == (-1.5,) * len(said.completion_ids)
        assert said.prompt_ids == tuple(asked(fake)[-1]["asked"]["prompt"])
        assert leader.identity is None
        await leader.close()
        return sums

    sums = asyncio.run(play())
    paths = ["/collective_rpc", "/reset_prefix_cache", "/v1/completions"]
    found = asked(fake)
    assert [one["path"] for one in found] == 2 * paths
    assert [one["sum"] for one in found if "sum" in one] == pytest.approx(sums, rel=1e-4)
    assert sums[0] != pytest.approx(sums[1], rel=1e-2)


def test_an_adapter_comes_under_a_new_name_and_the_old_one_goes(tmp_path: Path, fake: Path) -> None:
    member = MemberConfig.model_validate({"model": "m", "train": LORA})
    base = tiny_model(0)
    assert member.lora is not None
    model = peft.get_peft_model(base, peft_config(member.lora, base))

    async def play() -> None:
        leader = policy(tmp_path, model, LORA)
        for updates in range(3):
            await leader.sync(updates)
            await ask(leader)
        await leader.close()

    asyncio.run(play())
    found = asked(fake)
    loaded = [one["asked"]["lora_name"] for one in found if one["path"] == "/v1/load_lora_adapter"]
    dropped = [one["asked"]["lora_name"] for one in found if one["path"] == "/v1/unload_lora_adapter"]
    spoke = [one["asked"]["model"] for one in found if one["path"] == "/v1/completions"]
    assert len(set(loaded)) == 3
    assert spoke == loaded
    assert dropped == loaded[:2]
    [started] = [json.loads(file.read_text())["arguments"] for file in fake.glob("*.json")]
    assert "--enable-lora" in started
    assert started[started.index("--max-lora-rank") + 1] == "8"


def test_no_seed_is_sent_and_log_probabilities_only_where_they_are_those_of_the_whole_distribution(
    tmp_path: Path, fake: Path
) -> None:
    async def play() -> Completion:
        leader = policy(tmp_path, tiny_model(0), "full")
        await leader.sync(0)
        await ask(leader)
        said = await ask(leader, top_p=0.9)
        await leader.close()
        return said

    assert asyncio.run(play()).logprobs is None
    whole, nucleus = (one["asked"] for one in asked(fake) if one["path"] == "/v1/completions")
    assert "seed" not in whole
    assert whole["logprobs"] == 0
    assert whole["stop_token_ids"]
    assert "logprobs" not in nucleus


def test_weights_wait_for_calls_that_have_begun(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM_ANSWER_S", "0.5")

    async def play() -> None:
        leader = policy(tmp_path, tiny_model(0), "full")
        await leader.sync(0)
        calls = [asyncio.create_task(ask(leader)) for _ in range(3)]
        await asyncio.sleep(0)  # they have begun
        await leader.sync(1)
        await asyncio.gather(*calls)
        await leader.close()

    asyncio.run(play())
    change = ["/collective_rpc", "/reset_prefix_cache"]
    assert [one["path"] for one in asked(fake)] == [*change, *["/v1/completions"] * 3, *change]


class Paired(Processes):
    """One of two processes that are threads of this one."""

    def __init__(self, rank: int, both: threading.Barrier, said: list[Any]) -> None:
        super().__init__(rank, count=2)
        self.both = both
        self.said = said

    def gathered(self, mine: Any) -> list[Any]:
        self.both.wait(60)
        return []

    def of_main(self, value: Any) -> Any:
        if self.main:
            self.said.append(value)
        self.both.wait(60)
        return self.said[-1]


def test_weights_wait_for_the_calls_of_all_processes(
    tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_ANSWER_S", "0.5")
    both, said, model = threading.Barrier(2), list[Any](), tiny_model(0)

    async def play() -> None:
        main = policy(tmp_path, model, "full", Paired(0, both, said))
        openai = partial(OpenAIEngine, model="org/small", base_url=main.server.base_url, retries=0)
        elsewhere = cast(VllmServer, main.server).elsewhere()
        other = VllmPolicy(elsewhere, model, tiny_tokenizer(), openai, processes=Paired(1, both, said))
        await asyncio.gather(main.sync(0), other.sync(0))
        calls = [asyncio.create_task(ask(other)) for _ in range(3)]
        await asyncio.sleep(0)  # they have begun
        await asyncio.gather(main.sync(1), other.sync(1))
        await asyncio.gather(*calls)
        assert other.version == 1
        await other.close()
        await main.close()

    asyncio.run(play())
    change = ["/collective_rpc", "/reset_prefix_cache"]
    assert [one["path"] for one in asked(fake)] == [*change, *["/v1/completions"] * 3, *change]


def test_weights_that_a_server_does_not_take_stop_the_run_with_its_words(
    tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_STUBBORN", "1")

    async def play() -> None:
        leader = policy(tmp_path, tiny_model(0), "full")
        try:
            await leader.sync(0)
        finally:
            await leader.close()

    with pytest.raises(Refused, match=r"leader: vllm serve did not take.*shapes do not match.*leader\.log"):
        asyncio.run(play())


KILLED = """
import sys, time
from pathlib import Path
from pilotfish.engine.vllm import VllmServer
from pilotfish.member import MemberConfig
place = Path(sys.argv[1])
member = MemberConfig(engine="vllm", model="org/small")
VllmServer("actor", member, place / "log", grace_s=0.3, scratch=place / "scratch").start()
(place / "scratch").mkdir()
print("ready", flush=True)
time.sleep(600)
"""


def test_weights_in_memory_go_with_a_run_that_is_killed(tmp_path: Path, fake: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert run.stdout.readline() == "ready\n"
        os.kill(run.pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while (tmp_path / "scratch").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not (tmp_path / "scratch").exists()


def test_a_run_trains_and_is_evaluated_through_servers_of_its_trainee(
    tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap, "LIMIT", 100.0)  # the stand-in makes up what it reports
    save_tiny(tmp_path / "model")
    rows = [{"id": str(n), "question": f"{n} + 2?", "answer": str(n % 5)} for n in range(12)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"source": str(tmp_path / "sums.jsonl"), "verifier": "maths"}
    sampling = {"temperature": 0, "max_tokens": 4}
    actor = {"model": str(tmp_path / "model"), "engine": "vllm", "train": "full", "dtype": "float32"}
    recipe = parse_recipe(
        {
            "tasks": {"train": source, "holdout": 2},
            "team": {"actor": actor | {"device": "cpu", "sampling": sampling, "retries": 0}},
            "topology": "solo",
            "train": {
                "group_size": 2, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 4, "steps": 2,
                "evaluate_every": 2, "save_every": 2,
            },
            "evaluate": {"benchmarks": [source | {"limit": 4}], "against": []},
        }
    )  # fmt: skip
    train(recipe, tmp_path / "run")
    learned = asked(fake)
    with Run(tmp_path / "run", recipe) as run:
        [result] = evaluate(recipe, run)
    loads = [at for at, one in enumerate(learned) if one["path"] == "/collective_rpc"]
    calls = [
        sum(one["path"] == "/v1/completions" for one in learned[at:then])
        for at, then in zip(loads, [*loads[1:], None], strict=True)
    ]
    assert calls == [2, 4, 4, 2]  # holdout, two steps of four rows, holdout
    assert [row.accuracy is not None for row in result.rows] == [True, True]  # untrained and trained
    served = [json.loads(file.read_text())["arguments"][1] for file in fake.glob("*.json")]
    assert str(run.best) in served
