"""Who sits behind each member: engines for a recipe's team, each set of weights loaded once.

In process, members on the same model share one engine. Under a LoRA the base weights do not change, so a frozen member
on the trainee's model sits on the very same tensors: one set of weights in two seats.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.engine.base import Engine
from pilotfish.engine.lease import Device, Leased
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.recipe import MemberConfig, Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pilotfish.engine.policy import PolicyEngine


class Seats:
    """Engines by member. Loads on first use; `close` ends them all."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._engines: dict[tuple[Any, ...], Engine] = {}
        self._devices: dict[str, Device] = {}
        self._trainee: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None

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
            self._engines[key] = self._api(member) if member.engine == "openai" else self._in_process(member)
        return self._engines[key]

    def trainee(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The trainee's weights to train: float32 where all of them are trained."""
        if self._trainee is None:
            member = self.recipe.team[self.recipe.trainee or ""]
            dtype = "float32" if member.train == "full" else member.dtype
            self._trainee = _load(member, dtype)
        return self._trainee

    def trained(self, best: Path, version: int) -> Engine:
        """The trainee's engine with trained weights: an adapter's folder, or a whole model's."""
        member = self.recipe.team[self.recipe.trainee or ""]
        key = ("trained", str(best), version)
        if key not in self._engines:
            self._engines[key] = self._leased(member, _trained(member, best, version))
        return self._engines[key]

    def leased(self, policy: PolicyEngine) -> Engine:
        """The policy, taking turns with the frozen members on its device."""
        return self._leased(self.recipe.team[self.recipe.trainee or ""], policy)

    async def close(self) -> None:
        for engine in self._engines.values():
            await engine.close()

    def _leased(self, member: MemberConfig, engine: Engine) -> Engine:
        return Leased(engine, self._devices.setdefault(member.device, Device()))

    def _api(self, member: MemberConfig) -> Engine:
        assert member.base_url is not None
        return OpenAIEngine(
            model=member.model,
            base_url=member.base_url,
            key_env=member.key_env,
            revision=member.revision,
            timeout_s=member.timeout_s,
            retries=member.retries,
            concurrency=member.concurrency,
            extra=member.extra,
        )

    def _in_process(self, member: MemberConfig) -> Engine:
        from pilotfish.engine.transformers import TransformersEngine
        from pilotfish.engine.weights import shared_copy

        trainee = self.recipe.team.get(self.recipe.trainee or "")
        seated = [other for other in self.recipe.team.values() if _deployment(other) == _deployment(member)]
        nucleus = any(other.sampling.top_p < 1 for other in seated)
        if trainee is not None and trainee.lora and _deployment(trainee) == _deployment(member):
            model, tokenizer = self.trainee()
            return self._leased(
                member, TransformersEngine(shared_copy(model), tokenizer, nucleus=nucleus, memory=member.memory)
            )
        return self._leased(
            member, TransformersEngine(*_load(member, member.dtype), nucleus=nucleus, memory=member.memory)
        )


def _deployment(member: MemberConfig) -> tuple[Any, ...]:
    """Members of one deployment share one engine."""
    if member.engine == "openai":
        place = (member.base_url, member.key_env, member.timeout_s, member.retries, member.concurrency)
        return (member.model, member.revision, *place, json.dumps(member.extra, sort_keys=True))
    return (member.model, member.revision, member.dtype, member.device)


def _load(member: MemberConfig, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from pilotfish.engine.loading import load

    return load(
        member.model,
        revision=member.revision,
        dtype=dtype,
        device=member.device,
        trust_remote_code=member.trust_remote_code,
    )


def _trained(member: MemberConfig, best: Path, version: int) -> Engine:
    from pilotfish.engine.transformers import TransformersEngine

    nucleus = member.sampling.top_p < 1
    if not (best / "adapter_config.json").exists():
        model, tokenizer = _load(member.model_copy(update={"model": str(best), "revision": None}), member.dtype)
        return TransformersEngine(model, tokenizer, version=version, nucleus=nucleus, memory=member.memory)
    from pilotfish.train.lora import merged

    model, tokenizer = _load(member, member.dtype)
    dtype: Any = model.dtype  # `merged` leaves the sum in float32; it is rounded once, here
    return TransformersEngine(
        merged(model, best).to(dtype), tokenizer, version=version, nucleus=nucleus, memory=member.memory
    )
