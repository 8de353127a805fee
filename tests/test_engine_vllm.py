"""`engine: vllm`: a server is started with what the recipe says, shared, shown when it fails, and never left behind."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fake_vllm import as_command
from pilotfish.engine.base import Completion, Engine, Refused, SaidElsewhere
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.engine.vllm import Server, VllmEngine, VllmServer
from pilotfish.engine.vllm_command import environment
from pilotfish.episode import Journal
from pilotfish.evaluate.bench import evaluate
from pilotfish.member import MemberConfig
from pilotfish.preflight.doctor import recipe_findings
from pilotfish.preflight.estimate import estimate_recipe
from pilotfish.preflight.memory import memory
from pilotfish.processes import Processes
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.team import Sampling

GREEDY = Sampling(temperature=0.0)
ACTOR = {"engine": "vllm", "model": "org/small"}


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Puts the fake on the PATH; gives what each server was started with."""
    variables = as_command(tmp_path)
    records = Path(variables["FAKE_VLLM"])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda: [json.loads(file.read_text()) for file in records.glob("*.json")]


def recipe(tmp_path: Path, **team: dict[str, Any]) -> Recipe:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "question": "2 + 2?", "answer": "4", "verifier": "maths"}\n')
    evaluated = {"benchmarks": [{"source": str(tasks)}], "against": []}
    return parse_recipe({"team": team or {"actor": ACTOR}, "topology": "solo", "evaluate": evaluated})


def server(tmp_path: Path, grace_s: float = 5.0, told: Callable[[str], None] = print, **served: Any) -> VllmServer:
    member = MemberConfig.model_validate({**ACTOR, "vllm": served})
    return VllmServer("actor", member, tmp_path / "logs" / "actor.log", grace_s=grace_s, told=told)


def engine(of: Server) -> VllmEngine:
    return VllmEngine(of, OpenAIEngine(model=of.member.model, base_url=of.base_url, retries=0))


async def ask(engine: Engine) -> Completion:
    return await engine.complete([{"role": "user", "content": "2 + 2?"}], GREEDY, 1)


def is_gone(process: int) -> bool:
    """Whether a process has ended; one that nobody has waited for is gone too."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def all_gone(found: list[dict[str, Any]]) -> bool:
    """Whether servers and their workers end long before they would by themselves."""
    processes = [process for one in found for process in one["processes"]]
    until = time.monotonic() + 60
    while time.monotonic() < until and not all(map(is_gone, processes)):
        time.sleep(0.005)
    return bool(processes) and all(map(is_gone, processes))


def test_a_server_is_started_with_what_the_recipe_says(tmp_path: Path, started: Any) -> None:
    served = {
        "gpus": [2, 3],
        "memory": 0.4,
        "tensor_parallel": 2,
        "args": ["--max-model-len", 4096],
        "startup_s": 30,
    }
    actor = {**ACTOR, "revision": "r1", "dtype": "bfloat16", "trust_remote_code": True, "vllm": served}

    async def play() -> Completion:
        seats = Seats(recipe(tmp_path, actor=actor), Journal(tmp_path / "run" / "journal"))
        try:
            return await ask(seats.engine("actor"))
        finally:
            await seats.close()

    assert asyncio.run(play()).text == "org/small says 4"
    [found] = started()
    arguments = found["arguments"]
    port = arguments[arguments.index("--port") + 1]
    assert arguments == (
        f"serve org/small --host 127.0.0.1 --port {port} --gpu-memory-utilization 0.4 --tensor-parallel-size 2 "
        "--data-parallel-size 1 --dtype bfloat16 --generation-config vllm --revision r1 --trust-remote-code "
        "--max-model-len 4096"
    ).split(" ")
    assert found["gpus"] == "2,3"
    assert all_gone([found])
    assert "fake vllm at work" in (tmp_path / "run" / "logs" / "actor.log").read_text()


def test_calls_wait_for_one_server_that_is_slow_to_start(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    monkeypatch.setenv("FAKE_VLLM_AFTER", str(ready))
    monkeypatch.setattr("pilotfish.engine.vllm.SAY_EVERY_S", 0.0)
    said: list[str] = []

    def told(line: str) -> None:
        """It is ready once it was said that it is not yet."""
        said.append(line)
        if "at work" in line:
            ready.touch()

    async def play() -> list[Completion]:
        asked = engine(server(tmp_path, told=told))
        try:
            return await asyncio.gather(*(ask(asked) for _ in range(50)))
        finally:
            await asked.close()

    assert {completion.text for completion in asyncio.run(play())} == {"org/small says 4"}
    assert len(started()) == 1
    assert said[0].startswith("actor: starting vllm serve org/small, port ")
    assert any("fake vllm at work: [1morg/small" in line for line in said[1:-1])
    assert said[-1].startswith("actor: vllm serve is ready after ")
    assert not any("\x1b" in line for line in said)


def test_a_server_that_dies_shows_the_end_of_its_log_and_leaves_no_worker(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_DIES", "ValueError: No available memory for the cache blocks")
    log = tmp_path / "logs" / "actor.log"
    log.parent.mkdir()
    log.write_text("an earlier run\n")
    with pytest.raises(Refused, match=r"(?s)actor: vllm serve has ended with code 1; .*No available memory") as error:
        server(tmp_path).start()
    assert str(log) in str(error.value)
    assert "an earlier run" not in str(error.value)
    assert log.read_text().startswith("an earlier run\n")
    assert all_gone(started())


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = server(tmp_path, startup_s=30)

    def now() -> float:
        """An hour has passed by the time that the server speaks."""
        return 3600.0 * ("at work" in begun.log.read_text())

    monkeypatch.setenv("FAKE_VLLM_AFTER", str(tmp_path / "never"))
    monkeypatch.setattr("pilotfish.engine.vllm.time", SimpleNamespace(monotonic=now))
    with pytest.raises(Refused, match=r"(?s)not ready after 30 s; raise vllm.startup_s .*fake vllm at work"):
        begun.start()
    assert all_gone(started())


def test_a_server_that_takes_no_sigterm_is_killed_with_its_worker(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_DEAF", "1")
    begun = server(tmp_path, grace_s=0.3)
    begun.start()
    assert not any(map(is_gone, started()[0]["processes"]))
    begun.stop()
    assert all_gone(started())


def test_a_server_that_crashes_stops_the_run_with_its_log(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_CRASHES", "1")

    async def play() -> None:
        asked = engine(server(tmp_path))
        try:
            for asks in (True, False):
                with pytest.raises(Refused, match=r"(?s)ended with code 7; .*illegal memory access") as error:
                    await ask(asked)
                assert (error.value.__cause__ is not None) is asks
        finally:
            await asked.close()

    asyncio.run(play())
    assert all_gone(started())


def test_members_of_one_deployment_share_a_server_until_the_last_is_closed(tmp_path: Path, started: Any) -> None:
    team = {
        "actor": ACTOR,
        "critic": {**ACTOR, "sampling": {"temperature": 1.0}},
        "judge": {**ACTOR, "timeout_s": 5},
        "other": {**ACTOR, "revision": "r2"},
    }

    async def play() -> None:
        seats = Seats(recipe(tmp_path, **team), Journal(tmp_path / "run" / "journal"))
        try:
            assert seats.engine("actor") is seats.engine("critic")
            await asyncio.gather(*(ask(seats.engine(name)) for name in ("actor", "critic", "judge")))
            assert len(started()) == 1
            seats.move_to(recipe(tmp_path, judge=team["judge"]))
            await seats.release()
            assert (await ask(seats.engine("judge"))).text == "org/small says 4"
            assert len(started()) == 1
            seats.move_to(recipe(tmp_path, other=team["other"]))
            await seats.release()
            assert all_gone(started())
            await ask(seats.engine("other"))
            assert len(started()) == 2
        finally:
            await seats.close()

    asyncio.run(play())
    assert all_gone(started())


def test_answers_are_kept_under_the_name_that_any_endpoint_of_the_model_has(tmp_path: Path) -> None:
    actor = {**ACTOR, "revision": "r1", "extra": {"top_k": 1}}
    elsewhere = {**actor, "engine": "openai", "base_url": "http://localhost:1/v1"}
    seats = Seats(recipe(tmp_path, actor=actor, elsewhere=elsewhere))
    assert seats.engine("actor").identity == seats.engine("elsewhere").identity
    assert str(seats.engine("actor").identity).startswith("org/small@r1#")


def test_an_evaluation_starts_a_server_and_one_that_is_recorded_starts_none(tmp_path: Path, started: Any) -> None:
    for _ in range(2):
        with Run(tmp_path / "run", recipe(tmp_path)) as run:
            [result] = evaluate(run.recipe, run)
        assert [row.accuracy for row in result.rows] == [1.0]
        assert len(started()) == 1
    assert all_gone(started())


def test_training_starts_servers_before_it_loads_weights(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_DIES", "no memory")
    team = {"collaborator": {"model": "/no/such/folder", "train": "lora"}, "actor": ACTOR}
    seats = Seats(recipe(tmp_path, **team), Journal(tmp_path / "run" / "journal"))
    with pytest.raises(Refused, match=r"(?s)actor: vllm serve has ended.*no memory"):
        seats.trainee()
    assert all_gone(started())


def test_an_evaluation_of_several_processes_starts_servers_before_it_loads_weights(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_DIES", "no memory")
    made = recipe(tmp_path, critic={"model": "/no/such/folder"}, actor=ACTOR)
    with (
        Run(tmp_path / "run", made) as run,
        pytest.raises(Refused, match=r"(?s)actor: vllm serve has ended.*no memory"),
    ):
        evaluate(made, run, processes=Processes(count=2))
    assert all_gone(started())


def test_servers_that_nobody_has_open_any_more_are_not_started_again(tmp_path: Path, started: Any) -> None:
    async def play() -> None:
        leader = {**ACTOR, "model": "org/large", "train": "full"}
        seats = Seats(recipe(tmp_path, actor=ACTOR, leader=leader), Journal(tmp_path / "run" / "journal"))
        try:
            await ask(seats.engine("leader"))
            await seats.vacate()
            seats.start_servers()
        finally:
            await seats.close()

    asyncio.run(play())
    assert sorted(one["arguments"][1] for one in started()) == ["org/large", "org/small"]


def test_trained_weights_are_served_beside_the_untrained_ones_whose_port_is_set(tmp_path: Path) -> None:
    leader = {**ACTOR, "train": "full", "vllm": {"port": 29_991}}
    seats = Seats(recipe(tmp_path, leader=leader), Journal(tmp_path / "run" / "journal"))
    (tmp_path / "best").mkdir()
    before, after = (
        cast(Any, one).server.port for one in (seats.engine("leader"), seats.trained(tmp_path / "best", 1))
    )
    assert before == 29_991 != after


def test_another_process_asks_a_server_and_neither_ends_it_nor_says_how_it_ended(tmp_path: Path, started: Any) -> None:
    own = server(tmp_path)
    own.start()

    async def play() -> None:
        one, two = (engine(pickle.loads(pickle.dumps(own.elsewhere()))) for _ in range(2))
        assert (await ask(one)).text == "org/small says 4"
        await one.close()
        assert (await ask(two)).text == "org/small says 4"
        own.stop()
        with pytest.raises(SaidElsewhere):
            await ask(two)
        await two.close()

    asyncio.run(play())
    assert len(started()) == 1
    assert all_gone(started())


RUN = """
import os, sys, time
from pathlib import Path
from pilotfish.engine.vllm import VllmServer
from pilotfish.member import MemberConfig
server = VllmServer("actor", MemberConfig(engine="vllm", model="org/small"), Path(sys.argv[1]), grace_s=0.3)
server.start()
holder = os.fork() if sys.argv[2] == "SIGKILL" else None
if holder == 0:
    time.sleep(600)  # holds what the run had open, as a worker would
    os._exit(0)
print(server._watcher.pid, holder or "", flush=True)
if sys.argv[2] == "raises":
    raise ValueError("a fault of the run")
time.sleep(600)
"""


@pytest.mark.parametrize("deaf", ["", "1"], ids=["", "deaf"])
@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "raises"])
def test_a_run_that_ends_in_any_way_leaves_no_server(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch, end: str, deaf: str
) -> None:
    monkeypatch.setenv("FAKE_VLLM_DEAF", deaf)
    with a_run(tmp_path / "log", end) as run:
        assert run.stdout
        _, *holders = map(int, run.stdout.readline().split())
        if end != "raises":
            run.send_signal(signal.Signals[end])
        run.wait(100)
    assert all_gone(started())
    for holder in holders:
        os.kill(holder, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_run_that_is_killed_together_with_its_watcher_leaves_no_server(tmp_path: Path, started: Any) -> None:
    with a_run(tmp_path / "log", "waits") as run:
        assert run.stdout
        watcher = int(run.stdout.readline())
        os.kill(watcher, signal.SIGKILL)
        run.kill()
        run.wait(100)
    [found] = started()
    assert all_gone([{"processes": found["processes"][:1]}])
    os.kill(found["processes"][1], signal.SIGKILL)  # the fake does not end its worker, as a real one does


def a_run(log: Path, end: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(log), end]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_ctrl_c_while_a_server_starts_ends_it(tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM_AFTER", str(tmp_path / "never"))
    (tmp_path / "recipe.yaml").write_text(recipe(tmp_path).dump())
    code = "import sys; from pilotfish.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "eval", str(tmp_path / "recipe.yaml"), "--run", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        while not started() and run.poll() is None:
            time.sleep(0.005)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=100)
    assert run.returncode == 130, errors
    assert "the same command goes on" in errors
    assert all_gone(started())


def test_without_vllm_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(Refused, match="no command `vllm` on the PATH; pip install vllm, or use engine openai"):
        server(tmp_path).start()
    found = [finding for finding in recipe_findings(recipe(tmp_path)) if finding.name == "actor"]
    assert [(one.status, one.way_out[:16]) for one in found if "engine vllm" in one.what] == [
        ("fail", "pip install vllm")
    ]


def test_a_port_that_is_taken_is_refused_before_anything_is_started(tmp_path: Path, started: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Refused, match=f"actor: port {port} is taken; leave vllm.port out"):
            server(tmp_path, port=port).start()
        found = list(recipe_findings(recipe(tmp_path, actor={**ACTOR, "vllm": {"port": port}})))
    assert started() == []
    assert any(one.status == "fail" and one.what == f"port {port} is taken" for one in found)


def test_servers_start_one_after_the_other_and_a_stop_ends_the_wait(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    monkeypatch.setenv("FAKE_VLLM_AFTER", str(ready))
    said: list[str] = []
    one, two, three = (server(tmp_path, told=said.append) for _ in range(3))
    coming = [one.starting()]
    while not said:
        time.sleep(0.005)
    coming += [two.starting(), three.starting()]
    three.stop()
    assert len(said) == 1
    ready.touch()
    assert [future.result() for future in coming] == ["", "", "actor: stopped before vllm serve was started"]
    assert [" is ready" in line for line in said] == [False, True, False, True]
    one.stop()
    two.stop()
    assert all_gone(started())


def test_a_server_that_was_stopped_can_be_started_again(tmp_path: Path, started: Any) -> None:
    begun = server(tmp_path)
    for count in (1, 2):
        begun.start()
        assert len(started()) == count
        begun.stop()
        assert all_gone(started())


@pytest.mark.parametrize(("visible", "expected"), [(None, "1,0"), ("4, 6", "6,4"), ("GPU-a,GPU-b", "GPU-b,GPU-a")])
def test_gpus_are_counted_among_those_that_the_run_may_see(visible: str | None, expected: str) -> None:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert environment("actor", (1, 0), env)["CUDA_VISIBLE_DEVICES"] == expected
    assert environment("actor", (), env) == env


@pytest.mark.parametrize(("gpus", "expected"), [([2], "7"), ([], "4,6,7")])
def test_gpus_are_those_of_the_launch_where_a_process_sees_one(
    gpus: list[int], expected: str, tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6")
    made = recipe(tmp_path, actor={**ACTOR, "vllm": {"gpus": gpus}})
    seats = Seats(made, Journal(tmp_path / "run" / "journal"), processes=Processes(gpus=("4", "6", "7")))
    seats.start_servers()
    asyncio.run(seats.close())
    assert [one["gpus"] for one in started()] == [expected]


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "RANK", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"])
def test_a_key_and_the_words_of_a_launcher_are_not_passed_on_to_the_server(name: str) -> None:
    assert environment("actor", (), {name: "1", "HF_TOKEN": "hf"}) == {"HF_TOKEN": "hf"}


@pytest.mark.parametrize(
    ("visible", "leaves"), [("4,6", "GPU 2, and CUDA_VISIBLE_DEVICES=4,6 leaves 2"), ("", "leaves 0")]
)
def test_a_gpu_that_the_run_may_not_see_stops_it(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch, visible: str, leaves: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(Refused, match=leaves):
        server(tmp_path, gpus=[0, 2], data_parallel=2).start()
    assert started() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "transformers", "vllm": {}}, "engine transformers: vllm is given; add `engine: vllm`"),
        ({"base_url": "http://localhost:8000/v1"}, "leave base_url out, or use engine openai"),
        ({"key_env": "KEY"}, "leave key_env out, or use engine openai"),
        ({"memory": 0.5}, "memory is for a member in process; set vllm.memory"),
        ({"device": "cuda:1"}, "device is for a member in process; set vllm.gpus"),
        ({"model": "small.gguf"}, "small.gguf is for engine transformers"),
        ({"vllm": {"gpus": [0, 1]}}, r"gpus \[0, 1\] are 2, and tensor_parallel x data_parallel is 1"),
        ({"vllm": {"gpus": [0, 0], "data_parallel": 2}}, r"gpus \[0, 0\] names one twice"),
        ({"vllm": {"args": ["--port", 8000]}}, "args: --port is set by vllm.port"),
        ({"vllm": {"args": ["--tensor_parallel_size=2"]}}, "is set by vllm.tensor_parallel"),
        ({"vllm": {"memory": 1.5}}, "less than 1"),
        ({"vllm": {"gpu": [0]}}, "gpu"),
    ],
)
def test_a_recipe_that_cannot_be_served_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        recipe(tmp_path, actor={**ACTOR, **changes})


def test_doctor_and_estimate_look_at_servers_without_starting_one(tmp_path: Path, started: Any) -> None:
    big = {**ACTOR, "vllm": {"memory": 0.7}}
    made = recipe(tmp_path, actor=big, critic=big, judge={**big, "revision": "r2"})
    found = list(recipe_findings(made))
    assert [one.what.partition("; ")[2] for one in found if "will be started" in one.what] == [
        "it takes 0.7 of GPU 0"
    ] * 3
    [share] = [one for one in found if one.name == "gpu 0"]
    assert share.status == "fail"
    assert share.what.endswith("ask for 1.40 of it")
    assert [line.member for line in estimate_recipe(made, {}).lines] == ["actor"]
    assert memory(made) == []
    assert started() == []
