"""Weights in memory: their name, and second modules on the same or on copied tensors."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pilotfish.engine.base import Refused

PASSING = {"architectures", "transformers_version", "dtype", "torch_dtype", "use_cache"}
"""Fields of a config that do not change what a model computes from its weights (whose type is named with them)."""


def weights_hash(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Names weights, architecture and chat template, for answers that are kept across runs; the same on every device.

    Reads every bit of every weight, as integers, so nothing depends on the order of a sum. Half a second for SmolLM2 on
    one core.
    """
    settings = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_") and k not in PASSING}
    named = tokenizer.chat_template, len(tokenizer), json.dumps(settings, sort_keys=True, default=str)
    state = hashlib.sha256(repr(named).encode())
    for name, weight in sorted(model.named_parameters()):
        state.update(repr((name, tuple(weight.shape), str(weight.dtype), *_checksums(weight))).encode())
    return f"weights-{state.hexdigest()[:32]}"


def _checksums(weight: Tensor) -> tuple[int, int]:
    kinds: dict[int, torch.dtype] = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = weight.detach().contiguous().view(kinds[weight.element_size()])
    table = bits.reshape(bits.shape[0], -1) if bits.ndim else bits.reshape(1, 1)
    sums = table.sum(1, dtype=torch.int64), table.sum(0, dtype=torch.int64)
    weighted = [(line * torch.arange(1, 2 * line.numel(), 2, device=line.device)).sum() for line in sums]
    return int(weighted[0]), int(weighted[1])


def shared_copy(model: nn.Module) -> PreTrainedModel:
    """A second plain module on the SAME weights (no memory): one set of weights in two seats.

    Of a PEFT model it is the base model: with LoRA, the frozen actor that the collaborator started from.
    """
    return plain_copy(model, lambda weight: weight)[0]


def whole(weight: Tensor) -> Tensor:
    """All of a weight; where each process has a part of it, all of them ask for it at the same time."""
    gather: Any = getattr(weight, "full_tensor", None)
    return gather() if gather else weight


def gathered(model: nn.Module, *, keep: bool = True, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """A module's weights, whole, on the CPU, of a PEFT model those of its adapters; where each process has a part of
    them all call it. Tied weights are one tensor.

    Args:
        model: with weights in training.
        keep: whether this process wants them; else its dict is empty.
        dtype: in which they are wanted; their own when None.
    """
    found: dict[str, Tensor] = {}
    seen: dict[int, Tensor] = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        if hasattr(model, "peft_config") and not weight.requires_grad:
            continue
        if id(weight) not in seen:
            one = whole(weight.detach())
            seen[id(weight)] = one.to("cpu", dtype) if keep else torch.empty(0)
        if keep:
            found[name] = seen[id(weight)]
    return found


def plain_copy(
    model: nn.Module, weight_of: Callable[[nn.Parameter], nn.Parameter]
) -> tuple[PreTrainedModel, dict[nn.Parameter, nn.Parameter]]:
    """Copy a model's structure without adapters, hooks and wrappers.

    Args:
        model: a transformers model, plain or in a PEFT wrapper; not touched.
        weight_of: the parameter that stands in the copy for a parameter of the base model.

    Returns:
        The copy in eval mode, with a config of its own, and the parameters of the copy by those they stand for.
    """
    unwrap: Any = getattr(model, "get_base_model", None)
    base = unwrap() if unwrap else model
    if any(hasattr(module, "modules_to_save") for module in base.modules()):
        raise Refused(
            "modules_to_save of a PEFT adapter cannot be copied into an engine; train LoRA alone, or all weights"
        )
    kept = {name: weight for name, weight in base.named_parameters() if ".lora_" not in name}
    stands = {weight: weight_of(weight) for weight in kept.values()}
    memo: dict[int, Any] = {id(weight): weight for weight in base.parameters()}
    memo |= {id(weight): copied for weight, copied in stands.items()}
    twin: Any = copy.deepcopy(base, memo)
    _strip(twin)
    twin.eval()
    return twin, stands


def _strip(twin: Any) -> None:
    for name, module in list(twin.named_modules()):
        if hasattr(module, "base_layer"):
            parent, _, child = name.rpartition(".")
            setattr(twin.get_submodule(parent), child, module.base_layer)
    for module in twin.modules():
        # accelerate wraps `forward` on the instance; peft hangs hooks on modules. Checkpointing is off in eval mode.
        module.__dict__.pop("forward", None)
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
            hooks.clear()
