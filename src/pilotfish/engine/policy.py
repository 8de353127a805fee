"""The engine of the weights that are being trained.

The trained module (float32, or LoRA on frozen weights) is never generated from. A plain copy of it, in bfloat16 where
the device computes in it, answers the calls; after each step `sync` copies the trained weights into it, in place, with
the adapter merged on the way. That is several times faster than generating through an adapter, and it leaves the
trained module's mode, gradients and hooks alone. Where processes divide the trained weights among them, each has a
whole copy, which is filled weight by weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pilotfish.engine.base import Engine, Refused
from pilotfish.engine.loading import fast_dtype
from pilotfish.engine.tokens import TokenEngine
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.engine.weights import plain_copy, whole


class Policy(Engine, Protocol):
    """An engine of weights in training."""

    async def sync(self, updates: int) -> None:
        """Wait for the calls that have begun, take over the trained weights, go on as the version after `updates`."""


class PolicyEngine(TransformersEngine):
    """A `Policy` on a generation copy of a module in training."""

    def __init__(
        self,
        trained: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        *,
        tokens: Callable[[PreTrainedModel], TokenEngine] | None = None,
        dtype: torch.dtype | None = None,
        nucleus: bool = False,
        memory: float = 0.3,
        first_version: int = 0,
    ) -> None:
        """Copy the weights and start the token engine.

        Args:
            trained: a transformers model or a PEFT model with LoRA, not wrapped for several processes; they may divide
                its weights later, in place, and then all of them call `sync` at the same time.
            tokenizer: the model's own.
            tokens: makes the token engine of the generation copy; chosen by device when None.
            dtype: of the copy; bfloat16 where the device computes in it when None.
            nucleus: whether calls have top_p below 1 (in evaluation; training samples the whole distribution).
            memory: share of the free GPU memory for the cache of continuous batching.
            first_version: of the weights as they are; those of later stages of a run count on from it.

        Raises:
            Refused: weights or adapters that cannot be copied: sharded, quantised, DoRA, adapters other than LoRA.
        """
        refuse_sharded(trained)
        device = next(trained.parameters()).device
        kind = dtype or fast_dtype(str(device))
        twin, stands = plain_copy(trained, lambda weight: _frozen(weight, kind))
        self._adapted = _adapted(trained, stands)
        merged = {id(layer.base_layer.weight) for layer, _ in self._adapted}
        self._trained = trained
        named = {source: name for name, source in trained.named_parameters()}
        self._plain = [(named[source], copied) for source, copied in stands.items() if id(source) not in merged]
        with torch.no_grad():
            self._copy()
        self._first = first_version
        made = tokens(twin) if tokens else None
        super().__init__(twin, tokenizer, tokens=made, version=first_version, nucleus=nucleus, memory=memory)

    @property
    def identity(self) -> str | None:
        """None: answers of weights in training never outlive a run."""
        return None

    async def sync(self, updates: int) -> None:
        """See `Policy`."""

        def change() -> None:
            self._copy()
            self._version = self._first + updates

        await self._tokens.update(change)

    def _copy(self) -> None:
        weights = dict(self._trained.named_parameters())  # by name: dividing them puts others in their places
        for name, copied in self._plain:
            if weights[name].requires_grad:
                copied.copy_(whole(weights[name]))
        for layer, copied in self._adapted:
            weight = whole(layer.base_layer.weight).float()
            if not layer.merged and not layer.disable_adapters:
                for name in layer.active_adapters:
                    weight = weight + whole(layer.get_delta_weight(name)).float()
            copied.copy_(weight)


def _frozen(weight: nn.Parameter, kind: torch.dtype) -> nn.Parameter:
    if not weight.is_floating_point():
        raise Refused(f"quantised weights ({weight.dtype}) cannot be copied into an engine; train bfloat16 or float32")
    return nn.Parameter(weight.detach().to(kind, copy=True), requires_grad=False)


def refuse_sharded(trained: nn.Module) -> None:
    """Raise Refused for weights of which this process holds a part."""
    for name, weight in trained.named_parameters():
        if hasattr(weight, "full_tensor") or hasattr(weight, "ds_id") or "_fsdp_wrapped_module" in name:
            raise Refused(
                f"{name} is sharded (FSDP or ZeRO-3) before there is an engine of it, which is made of whole weights: "
                "leave it to `pilotfish train` under `accelerate launch --use_fsdp --fsdp_version 2` to divide them"
            )


def _adapted(trained: nn.Module, stands: dict[nn.Parameter, nn.Parameter]) -> list[tuple[Any, nn.Parameter]]:
    """The adapter layers, each with the weight of the copy that it is merged into."""
    layers: list[Any] = [module for module in trained.modules() if hasattr(module, "base_layer")]
    owners = [id(weight) for _, weight in trained.named_parameters(remove_duplicate=False)]
    for layer in layers:
        if not hasattr(layer, "get_delta_weight") or any(getattr(layer, "use_dora", {}).values()):
            raise Refused(f"the adapter layer {type(layer).__name__} cannot be merged into a copy; use plain LoRA")
        if owners.count(id(layer.base_layer.weight)) > 1:
            raise Refused("LoRA on tied embeddings cannot be merged into a copy; leave lm_head and embeddings out")
    return [(layer, stands[layer.base_layer.weight]) for layer in layers]
