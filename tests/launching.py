"""Launches of several processes, as torchrun makes them, from one that has imported what they need: seconds each.

    python tests/launching.py JOBS.json

A job is `{"do": ["train", RECIPE, "--run", FOLDER], "out": FOLDER, "processes": 2}`; with `"moved": [OLD, NEW]` a
folder is copied first, and `"env"` is added to the environment. With `"at": 12` process `"rank"` comes to harm as its
12th call begins: it is killed, or with `"fault"` refused in these words. With `"gap": 100` an engine may be so many
nats from the weights. Each process says what it has to say in `out/RANK`; `out/codes.json` holds how they ended, and
`out/held-RANK.json` what a process held of a training before its last update. The cache of each job is empty, as on
another machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pilotfish.engine.vllm_command import free_port

FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
"""What `accelerate launch --use_fsdp --fsdp_version 2` sets, as far as it matters: an `"env"`."""
LIMIT_S = 600
"""A process that has not ended by then hangs, and is killed."""


def launch(folder: Path, jobs: Sequence[dict[str, Any]]) -> None:
    """Run jobs, one after the other, in a process of their own."""
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs))
    command = [sys.executable, __file__, str(file)]
    # Where the main process keeps the store, torch warns that it is gone: under torchrun that does not happen.
    env = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2500, env=env)
    assert done.returncode == 0, done.stderr


def ended(out: Path) -> tuple[list[int], list[str]]:
    """How the processes of a job ended, and what each said, on standard output or error."""
    codes = json.loads((out / "codes.json").read_text())
    return codes, [(out / str(rank)).read_text() for rank in range(len(codes))]


def assert_one_says_why(out: Path, why: str) -> None:
    """The second of two processes has failed: both ended, and it alone said why."""
    codes, (main, other) = ended(out)
    assert codes == [1, 2]
    assert other == f"{why}\n"
    assert "Error" not in main
    assert "Traceback" not in main


def assert_loss_is_told(out: Path) -> None:
    """The second of two processes was killed: the first ended too, and said so."""
    codes, (main, _) = ended(out)
    assert codes == [2, -9]
    assert main.splitlines()[-1].startswith("a process of this launch has ended without a word")


def _launch(job: dict[str, Any]) -> None:
    out, count = Path(job["out"]), job["processes"]
    out.mkdir(parents=True)
    if "moved" in job:
        shutil.copytree(*job["moved"])
    launched = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    deadline = time.monotonic() + LIMIT_S
    children = [_child(job, rank, launched if count > 1 else {}) for rank in range(count)]
    (out / "codes.json").write_text(json.dumps([_code(child, deadline) for child in children]))


def _child(job: dict[str, Any], rank: int, launched: dict[str, str]) -> int:
    if child := os.fork():
        return child
    out = Path(job["out"])
    for stream in (1, 2):
        os.dup2(os.open(out / str(rank), os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
    os.environ |= {"PILOTFISH_CACHE": str(out / "cache"), **launched, **job.get("env", {})}
    if launched:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    if job.get("rank") == rank:
        _come_to_harm(job["at"], job.get("fault"))
    if "gap" in job:
        from pilotfish.train import gap

        gap.LIMIT = job["gap"]
    _weigh(out / f"held-{rank}.json")
    from pilotfish.cli import main

    try:
        code = main(job["do"])
    except SystemExit as end:
        code = int(end.code or 0)
    sys.stdout.flush()
    os._exit(code)


def _weigh(file: Path) -> None:
    """Write down, before each update, how many numbers of weights, gradients and moments this process holds."""
    from pilotfish.train.updates import Finite

    look = Finite.on_pre_optimizer_step

    def weighed(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        weights = [weight for weight in more["model"].parameters() if weight.requires_grad]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        moments = [
            value for kept in more["optimizer"].optimizer.state.values() for value in kept.values() if value.ndim
        ]
        held = [sum(getattr(one, "_local_tensor", one).numel() for one in of) for of in (weights, gradients, moments)]
        file.write_text(json.dumps(held))
        look(self, args, state, control, **more)

    Finite.on_pre_optimizer_step = weighed  # type: ignore[method-assign]


def _come_to_harm(at: int, fault: str | None) -> None:
    from counting import count_calls
    from pilotfish.engine.base import Refused
    from pilotfish.engine.transformers import TransformersEngine

    calls = count_calls(kill_at=0 if fault else at)
    if fault:
        complete = TransformersEngine.complete

        async def refused(self: Any, messages: Any, sampling: Any, seed: int) -> Any:
            if len(calls) + 1 == at:
                raise Refused(fault)
            return await complete(self, messages, sampling, seed)

        TransformersEngine.complete = refused  # type: ignore[method-assign]


def _code(child: int, deadline: float) -> int:
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"process {child} hangs")


if __name__ == "__main__":
    import torch

    import pilotfish.cli.progress
    import pilotfish.train.grpo  # noqa: F401

    torch.set_num_threads(1)
    for job in json.loads(Path(sys.argv[1]).read_text()):
        _launch(job)
