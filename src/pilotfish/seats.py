"""Who sits behind each member: engines for a recipe's team, each set of weights loaded once.

In process, members on the same model share one engine. Under a LoRA the base weights do not change, so a frozen member
on the trainee's model sits on the very same tensors: one set of weights in two seats.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.engine.adapter import adapter_in, cast, merged
from pilotfish.engine.base import Engine, Refused
from pilotfish.engine.lease import Device, Leased
from pilotfish.engine.meter import Meter, Metered
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.engine.vllm import Server, VllmEngine, VllmServer
from pilotfish.episode import Journal
from pilotfish.member import MemberConfig
from pilotfish.processes import Processes, lost
from pilotfish.recipe import Recipe
from pilotfish.spending import set_meter
from pilotfish.team import Price

TRAINED = object()
"""Marks the engines of trained weights: no deployment of a recipe."""

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pilotfish.engine.policy import Policy

    Speaker = Callable[[nn.Module, "PreTrainedTokenizerBase", int], Policy]


class Seats:
    """Engines by member. Loads on first use; `close` ends them all.

    Args:
        recipe: whose team is seated.
        journal: of the run, which says what is spent; needed where the recipe has a `max_cost`. Logs of servers are
            written beside it.
        meter: counts what is spent, for whoever shows it; set by the journal.
        processes: that seat this team at the same time: each keeps to its part of a server's limits, and of the memory
            of a GPU that several are on. The main one has the servers of the run's own.
    """

    def __init__(
        self,
        recipe: Recipe,
        journal: Journal | None = None,
        meter: Meter | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.recipe = recipe
        self._processes = processes or Processes()
        self._engines: dict[tuple[Any, ...], Engine] = {}
        self._metered: dict[tuple[int, Price], Metered] = {}
        self._meter = meter or (Meter() if recipe.max_cost and journal else None)
        self._bill = (recipe, journal) if journal else None
        self._count()
        self._devices: dict[str, Device] = {}
        self._servers: dict[tuple[Any, ...], Server] = {}
        self._logs = journal.folder.parent / "logs" if journal else Path("logs")
        self._trainee: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None

    def _count(self, processes: int = 1) -> None:
        if self._meter and self._bill:
            set_meter(self._meter, *self._bill, processes)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """While all processes play: each may spend its part of what `max_cost` leaves. All of them enter."""
        together = self._processes.count > 1
        if together:
            self._count(self._processes.count)
        yield
        if together:
            self._count()

    def move_to(self, recipe: Recipe) -> None:
        """Seat the team of a recipe's next stage: frozen members stay, the trainee starts from other weights."""
        self.recipe, self._trainee = recipe, None

    def frozen(self) -> dict[str, Engine]:
        """Engines of all frozen members."""
        return {name: self.engine(name) for name, member in self.recipe.team.items() if not member.train}

    def engine(self, name: str) -> Engine:
        """A member's engine with its weights as they are on disk; the trainee's are those before training."""
        member = self.recipe.team[name]
        key = _deployment(member)
        if key not in self._engines:
            self._engines[key] = self._made(name, member)
        return self._behind_meter(member, self._engines[key])

    def trainee(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The trainee's weights to train: float32 where all of them are trained. Servers of the run's own are started
        first: each takes a share of a whole GPU, and what is in process takes a share of what is left."""
        self.start_servers()
        self.frozen()
        return self._weights()

    def start_servers(self) -> None:
        """Start the servers of the run's own: those of frozen members, and what else is seated by now. All processes
        call it: the main one starts them, and the others, which seat nobody at a server before, hear where they are."""
        if self._processes.main:
            for name, member in self.recipe.team.items():
                if member.engine == "vllm" and not member.train:
                    self.engine(name)
            for server in self._servers.values():
                if server.engines:
                    server.start()
        self._share_servers()

    def _share_servers(self) -> None:
        own = {key: server.elsewhere() for key, server in self._servers.items() if isinstance(server, VllmServer)}
        shared = self._processes.of_main(own)
        if not self._processes.main:
            self._servers |= shared

    @contextmanager
    def answerable(self) -> Iterator[None]:
        """A process whose call fails since a server has ended ends without a word: here is said how the server ended.

        Raises:
            Refused: with the end of the server's log.
        """
        try:
            yield
        except RuntimeError as error:
            died = (server.died() for server in self._servers.values() if isinstance(server, VllmServer))
            if self._processes.count > 1 and lost(error) and (why := next(filter(None, died), "")):
                raise Refused(why) from error
            raise

    def speaker(self) -> Speaker | None:
        """What makes the policy engine of the trainee's module, its tokenizer and the version of its weights, where a
        server of the run's own speaks for it; it is started here. All processes call it."""
        name = self.recipe.trainee or ""
        member = self.recipe.team[name]
        if member.engine != "vllm":
            return None
        from pilotfish.engine.vllm_policy import ENVIRONMENT, VllmPolicy, arguments, scratch

        key, processes = ("trained", name), self._processes
        if processes.main:
            self._servers[key] = self._own_server(name, member, arguments(member), scratch(), **ENVIRONMENT)
            self._servers[key].start()
        self._share_servers()
        server = self._servers[key]
        openai = partial(_api, self._part(member), (server.base_url,))
        return lambda module, tokenizer, version: VllmPolicy(server, module, tokenizer, openai, version, processes)

    def _weights(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        if self._trainee is None:
            member = self.recipe.team[self.recipe.trainee or ""]
            dtype = "float32" if member.train == "full" else member.dtype
            self._trainee = _load(member, dtype)
        return self._trainee

    def trained(self, best: Path, version: int) -> Engine:
        """The trainee's engine with trained weights: an adapter's folder, or a whole model's."""
        member = self.recipe.team[self.recipe.trainee or ""]
        key = (TRAINED, str(best), version)
        if key not in self._engines:
            self._engines[key] = self._trained(member, best, version)
        return self._behind_meter(member, self._engines[key])

    def _trained(self, member: MemberConfig, best: Path, version: int) -> Engine:
        if member.in_process:
            return self._leased(member, _trained(self._part(member), best, version))
        whole = {} if adapter_in(best) else {"revision": None}  # it names a version of the base
        served = member.served.model_copy(update={"port": None})  # that is for the untrained weights
        seated = member.changed({"model": str(best), **whole}).model_copy(update={"vllm": served})
        return self._vllm(self.recipe.trainee or "", seated, version)

    def leased(self, policy: Policy) -> Engine:
        """The policy, in process taking turns with the frozen members on its device."""
        member = self.recipe.team[self.recipe.trainee or ""]
        return self._behind_meter(member, self._leased(member, policy) if member.in_process else policy)

    async def release(self) -> None:
        """Close the engines of deployments that the recipe does not seat."""
        seated = {_deployment(member) for member in self.recipe.team.values()}
        self._metered.clear()
        for key in [key for key in self._engines if key not in seated and key[0] != TRAINED]:
            await self._engines.pop(key).close()

    async def vacate(self) -> None:
        """Close the engine on the trainee's weights as they are on disk, before these are trained; it stays where a
        frozen member sits on them too."""
        trainee = self.recipe.team[self.recipe.trainee or ""]
        frozen = {_deployment(member) for member in self.recipe.team.values() if not member.train}
        key = _deployment(trainee)
        if key in self._engines and key not in frozen:
            left = self._engines.pop(key)
            self._metered = {place: metered for place, metered in self._metered.items() if metered.engine is not left}
            await left.close()

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))

    def _behind_meter(self, member: MemberConfig, engine: Engine) -> Engine:
        if self._meter is None:
            return engine
        places = None if member.in_process else self._part(member).concurrency * max(1, len(member.addresses))
        # The engine is held by its wrapper, so its id stays its own.
        return self._metered.setdefault((id(engine), member.price), Metered(engine, self._meter, member.price, places))

    def _leased(self, member: MemberConfig, engine: Engine) -> Engine:
        return Leased(engine, self._devices.setdefault(member.device, Device()))

    def _made(self, name: str, member: MemberConfig) -> Engine:
        if member.engine == "reward":
            return self._leased(member, _scorer(member))
        if member.engine == "transformers":
            return self._in_process(self._part(member))
        if member.engine == "vllm":
            return self._vllm(name, member)
        try:
            return _api(self._part(member), member.addresses)
        except Refused as error:  # no key, or none that can be sent
            raise Refused(f"{name}: {error}") from None

    def _part(self, member: MemberConfig) -> MemberConfig:
        paces = ("requests_per_minute", "tokens_per_minute")
        count = self._processes.count
        parts = {name: pace / count for name in paces if (pace := getattr(member, name))}
        memory = member.memory / self._processes.on_gpu
        return member.model_copy(update={**parts, "memory": memory, "concurrency": max(1, member.concurrency // count)})

    def _vllm(self, name: str, member: MemberConfig, version: int = 0) -> Engine:
        if member.server not in self._servers and self._processes.main:
            self._servers[member.server] = self._own_server(name, member)
        server = self._servers[member.server]
        return VllmEngine(server, _api(self._part(member), (server.base_url,)), version)

    def _own_server(
        self, name: str, member: MemberConfig, more: Sequence[str] = (), scratch: Path | None = None, **env: str
    ) -> VllmServer:
        gpus = self._processes.gpus
        seen = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        return VllmServer(name, member, self._logs / f"{name}.log", more=more, env={**seen, **env}, scratch=scratch)

    def _in_process(self, member: MemberConfig) -> Engine:
        from pilotfish.engine.transformers import TransformersEngine
        from pilotfish.engine.weights import shared_copy

        trainee = self.recipe.team.get(self.recipe.trainee or "")
        teams = self.recipe.teams().values()
        seated = [o for team in teams for o in team.team.values() if _deployment(o) == _deployment(member)]
        nucleus = any(other.sampling.top_p < 1 for other in seated)
        if trainee is not None and trainee.lora and _deployment(trainee) == _deployment(member):
            model, tokenizer = self._weights()
            return self._leased(
                member, TransformersEngine(shared_copy(model), tokenizer, nucleus=nucleus, memory=member.memory)
            )
        return self._leased(
            member, TransformersEngine(*_load(member, member.dtype), nucleus=nucleus, memory=member.memory)
        )


def _api(member: MemberConfig, addresses: tuple[str, ...], **more: Any) -> OpenAIEngine:
    fields: dict[str, Any] = {"extra": member.extra, **more}
    return OpenAIEngine(
        model=member.model,
        base_url=addresses,
        key_env=member.key_env,
        revision=member.revision,
        form=member.form,
        timeout_s=member.timeout_s,
        retries=member.retries,
        concurrency=member.concurrency,
        requests_per_minute=member.requests_per_minute,
        tokens_per_minute=member.tokens_per_minute,
        hedge_after_s=member.hedge_after_s,
        **fields,
    )


def _deployment(member: MemberConfig) -> tuple[Any, ...]:
    """Members of one deployment share one engine."""
    if not member.in_process:
        server = member.server if member.engine == "vllm" else ()
        place = (*server, member.addresses, member.key_env, member.timeout_s, member.retries, member.concurrency)
        pace = (member.requests_per_minute, member.tokens_per_minute, member.hedge_after_s)
        asked = (member.form, json.dumps(member.extra, sort_keys=True))
        return (member.model, member.revision, *place, *pace, *asked)
    return (member.engine, member.model, member.revision, member.dtype, member.device)


def _load(member: MemberConfig, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from pilotfish.engine.loading import load

    return load(
        member.model,
        revision=member.revision,
        dtype=dtype,
        device=member.device,
        trust_remote_code=member.trust_remote_code,
    )


def _scorer(member: MemberConfig) -> Engine:
    from pilotfish.engine.reward import RewardEngine

    return RewardEngine.load(
        member.model,
        revision=member.revision,
        dtype=member.dtype,
        device=member.device,
        trust_remote_code=member.trust_remote_code,
    )


def _trained(member: MemberConfig, best: Path, version: int) -> Engine:
    from pilotfish.engine.transformers import TransformersEngine

    nucleus = member.sampling.top_p < 1
    if not adapter_in(best):
        model, tokenizer = _load(member.model_copy(update={"model": str(best), "revision": None}), member.dtype)
        return TransformersEngine(model, tokenizer, version=version, nucleus=nucleus, memory=member.memory)
    model, tokenizer = _load(member, member.dtype)
    dtype: Any = model.dtype  # `merged` leaves the sum in float32; it is rounded once, here
    return TransformersEngine(
        cast(merged(model, best), dtype), tokenizer, version=version, nucleus=nucleus, memory=member.memory
    )
