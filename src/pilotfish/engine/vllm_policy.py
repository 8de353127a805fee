"""The `vllm` engine of the weights that are being trained: a server speaks for them, and gets them after each step.

    server = VllmServer("leader", member, log, more=arguments(member), env=ENVIRONMENT, scratch=scratch())
    policy = VllmPolicy(server, trained, tokenizer, openai)
    await policy.sync(1)                        # the server answers with the weights after the first update
    completion = await policy.complete(messages, sampling, seed)

The weights go through files in memory (`/dev/shm`, where there is one): a LoRA as an adapter of a new name, full
weights into the place of the old ones. The server may sit on the trainer's GPU, with its share of the memory, or on
another. Of several processes, whose weights are equal or parts of the same, the main one gives them while the others
wait.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from pilotfish.engine.base import Completion, Refused
from pilotfish.engine.chat import render, stop_ids
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.engine.policy import refuse_sharded
from pilotfish.engine.tokens import Gate
from pilotfish.engine.vllm import Server, VllmEngine
from pilotfish.engine.vllm_command import DIRECT, max_rank
from pilotfish.engine.weights import gathered
from pilotfish.engine.wire import clean
from pilotfish.member import MemberConfig
from pilotfish.processes import Processes

ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
"""Lets a server take weights while it runs."""
LOAD_S = 600.0
"""Seconds that a server may take to load weights."""


def arguments(member: MemberConfig) -> list[str]:
    """What `vllm serve` is given beside a frozen member's arguments: log-probabilities at the call's temperature, and
    room for a trainee's adapter."""
    lora = member.lora
    adapters = ["--enable-lora", "--max-lora-rank", str(max_rank(lora.rank))] if lora else []
    return ["--logprobs-mode", "processed_logprobs", *adapters]


class VllmPolicy(VllmEngine):
    """Asks a server that holds the weights of a module in training.

    Args:
        server: with `arguments`, `ENVIRONMENT` and a `scratch`; nobody else's.
        trained: a transformers model or a PEFT model with LoRA, not wrapped for several processes.
        tokenizer: the model's own.
        openai: makes the engine in front of the server, given what makes token ids of messages and the fields to add
            to each request.
        first_version: of the weights as they are; those of later stages of a run count on from it.
        processes: that train these weights together, and ask one server; this one alone when None.

    Raises:
        Refused: weights that are sharded.
        ValueError: the server has no `scratch`.
    """

    def __init__(
        self,
        server: Server,
        trained: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        openai: Callable[..., OpenAIEngine],
        first_version: int = 0,
        processes: Processes | None = None,
    ) -> None:
        refuse_sharded(trained)
        base: Any = trained
        ends = sorted(stop_ids(base, tokenizer))
        # No seed: vLLM then draws row by row, and a batch is answered otherwise in another company all the same.
        extra = {**server.member.extra, "seed": None, "stop_token_ids": ends}
        self._openai = openai(render=lambda messages: render(tokenizer, messages), extra=extra)
        super().__init__(server, self._openai)
        if server.scratch is None:
            raise ValueError(f"{server.name}: its server has no `scratch`, through which it is given weights")
        self._place = server.scratch
        self._trained = trained
        self._first = self._version = first_version
        self._gate = Gate()
        self._processes = processes or Processes()
        self._names = (f"{server.member.model}+{number}" for number in itertools.count())

    @property
    def identity(self) -> str | None:  # type: ignore[override]
        """None: answers of weights in training never outlive a run."""
        return None

    async def around(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        async with self._gate.inside():
            return await super().around(ask)

    async def sync(self, updates: int) -> None:
        """Wait for the calls that have begun, give the server the trained weights, go on as the version after
        `updates`. All processes call it, and none goes on before the server has the weights.

        Raises:
            Refused: the server does not run, or does not take them; with its own words.
        """
        async with self._gate.drained():
            await asyncio.to_thread(self._give_together)
            self._version = self._first + updates

    def _give_together(self) -> None:
        self._processes.gathered(None)  # no process has a call under way
        state = gathered(self._trained, keep=self._processes.main, dtype=self._kind)
        if self._processes.main:
            self._give(state)
        self._openai.model = self._processes.of_main(self._openai.model)

    @property
    def _kind(self) -> torch.dtype | None:
        """The type in which the server is given weights; adapters in their own."""
        if hasattr(self._trained, "peft_config"):
            return None
        return torch.float32 if self.server.member.dtype == "float32" else torch.bfloat16

    def _give(self, state: dict[str, torch.Tensor]) -> None:
        self.server.start()
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir(mode=0o700)
        if hasattr(self._trained, "peft_config"):
            self._give_adapter(self._place, state)
        else:
            self._give_all(self._place, state)

    def _give_adapter(self, place: Path, state: dict[str, torch.Tensor]) -> None:
        """Under a name that was never used: what the server keeps of a prompt, it keeps by adapter."""
        trained: Any = self._trained
        trained.save_pretrained(place, state_dict=state)
        name, before = next(self._names), self._openai.model
        self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(place)})
        self._openai.model = name
        if before != self.server.member.model:
            self._post("/v1/unload_lora_adapter", {"lora_name": before})

    def _give_all(self, place: Path, state: dict[str, torch.Tensor]) -> None:
        trained: Any = self._trained
        trained.save_pretrained(place, state_dict=state)
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(place)}})
        self._post("/reset_prefix_cache", {})

    def _post(self, path: str, body: Mapping[str, Any]) -> None:
        url = self.server.base_url.removesuffix("/v1") + path
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with DIRECT.open(request, timeout=LOAD_S):
                return
        except urllib.error.HTTPError as error:
            words = f"{error.code}: {clean(error.read().decode(errors='replace'))[:400]}"
        except OSError as error:
            words = str(error)
        raise Refused(
            f"{self.server.name}: vllm serve did not take the trained weights ({path}: {words}); see {self.server.log}"
        )


def scratch() -> Path:
    """A folder that is not there yet, in memory where the system has a place for it."""
    shared = Path("/dev/shm")
    above = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return above / f"pilotfish-{secrets.token_hex(8)}"
