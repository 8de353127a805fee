"""What `vllm serve` is started with for a member: the command, its environment, a port; and whether it answers.

served = command(find_vllm() or "vllm", member, free_port())
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import shutil
import socket
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from pilotfish.engine.adapter import adapter_in, base_of
from pilotfish.engine.base import Refused
from pilotfish.engine.embedded import NAME as EMBEDDED
from pilotfish.engine.embedded import embedded
from pilotfish.member import MemberConfig

HOST = "127.0.0.1"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks servers of this machine, whatever proxies the environment names."""
LEFT_OUT = {
    *("VLLM_API_KEY", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
}
"""Variables of the run that its servers do not get, beside those of torchrun's agent."""
PORTS = range(20_000, 32_000)
"""Where a free port is looked for: below those that systems give to outgoing connections."""
NOT_INSTALLED = "there is no command `vllm` on the PATH"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What `--max-lora-rank` may be."""
WAY_OUT = "pip install vllm, or use engine openai with the base_url of a server that runs"


def command(executable: str, member: MemberConfig, port: int, more: Sequence[str] = ()) -> list[str]:
    """What is run. Defaults of sampling are vLLM's neutral ones: a member is sampled as its recipe says, whatever the
    model's `generation_config.json` would add. `vllm.args` come last, so they may say otherwise.

    Args:
        executable: the command `vllm`.
        member: which model, and how it is served.
        port: where it listens.
        more: arguments that the member's part in the run adds.

    Raises:
        Refused: the model is an adapter whose base is not to be found.
    """
    served = member.served
    options: dict[str, object] = {
        "--host": HOST,
        "--port": port,
        "--gpu-memory-utilization": served.memory,
        "--tensor-parallel-size": served.tensor_parallel,
        "--data-parallel-size": served.data_parallel,
        "--dtype": member.dtype,
        "--generation-config": "vllm",
    }
    if member.revision:
        options["--revision"] = member.revision
    pairs = [str(part) for pair in options.items() for part in pair]
    trust = ["--trust-remote-code"] if member.trust_remote_code else []
    base, named = _named(member.model)
    return [executable, "serve", base, *pairs, *trust, *named, *more, *served.args]


def _named(model: str) -> tuple[str, list[str]]:
    """What is served for a member's model, and the arguments that give it the name that the member's calls ask for.

    Under the name of an adapter's base the base would answer.
    """
    if model == EMBEDDED:
        return str(embedded()), ["--served-model-name", model]
    file = adapter_in(model)
    if file is None:
        return model, []
    rank = max_rank(int(json.loads(file.read_text(encoding="utf-8"))["r"]))
    if (base := base_of(file)) == EMBEDDED:
        base = str(embedded())
    named = json.dumps({"name": model, "path": str(file.parent), "base_model_name": base})
    return base, ["--enable-lora", "--max-lora-rank", str(rank), "--lora-modules", named]


def max_rank(rank: int) -> int:
    """The smallest `--max-lora-rank` that holds an adapter."""
    return next((most for most in RANKS if most >= rank), rank)


def stamp(model: str) -> str:
    """Tells the weights in a folder from others that stood there before; empty for a model of the hub."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return ""
    files = sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in folder.iterdir())
    return hashlib.sha256(repr(files).encode()).hexdigest()[:12]


def environment(name: str, gpus: Sequence[int], env: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: the run's, without a key that the server would ask for and without what a launcher told
    the run's processes (the server's own would look for one another there), and with its GPUs.

    Args:
        name: of the member.
        gpus: counted as `device: cuda:N` counts them, among those that the run may see; all of them when empty.
        env: the run's environment.

    Raises:
        Refused: a GPU that the run may not see.
    """
    kept = {key: value for key, value in env.items() if key not in LEFT_OUT and not key.startswith("TORCHELASTIC_")}
    if not gpus:
        return kept
    if "CUDA_VISIBLE_DEVICES" not in env:
        return {**kept, "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
    visible = [part.strip() for part in env["CUDA_VISIBLE_DEVICES"].split(",") if part.strip()]
    if hidden := [gpu for gpu in gpus if gpu >= len(visible)]:
        raise Refused(
            f"{name}: vllm.gpus names GPU {hidden[0]}, and CUDA_VISIBLE_DEVICES={env['CUDA_VISIBLE_DEVICES']} leaves "
            f"{len(visible)}, counted from 0; name one of them or export more"
        )
    return {**kept, "CUDA_VISIBLE_DEVICES": ",".join(visible[gpu] for gpu in gpus)}


def find_vllm() -> str | None:
    """The command `vllm`: on the PATH, or beside this interpreter where its environment is not activated."""
    return shutil.which("vllm") or shutil.which("vllm", path=str(Path(sys.executable).parent))


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    draw = random.SystemRandom()  # runs that start together must not meet; training seeds the global generator
    return next(port for port in iter(lambda: draw.choice(PORTS), None) if is_free(port))


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError:
            return False
    return True


def is_healthy(port: int) -> bool:
    try:
        with DIRECT.open(f"http://{HOST}:{port}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, http.client.HTTPException):
        return False
