"""Norms in one kernel.

transformers writes an RMS norm out in eight operations, in float32. A decoding step of a small model is little else
than short kernels, and on an H200 a fifth of their time was norms.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

_PROBES = 8


def norms_at_once(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Let torch compute the RMS norms of a model that only infers, those of which it gives the same up to rounding.

    Returns:
        These.
    """
    found = [module for module in model.modules() if _plain(module) and _alike(module)]
    for module in found:
        module.forward = partial(_norm, module)
    return found


def as_they_were(norms: Sequence[torch.nn.Module]) -> None:
    """Let norms compute themselves again."""
    for module in norms:
        del module.forward


def _plain(module: Any) -> bool:
    """Whether a module is a norm of a weight and an epsilon, which nobody has laid hands on."""
    return (
        type(module).__name__.endswith("RMSNorm")
        and isinstance(getattr(module, "variance_epsilon", None), float)
        and list(module.state_dict()) == ["weight"]
        and module.weight.ndim == 1
        and list(inspect.signature(module.forward).parameters) == ["hidden_states"]
        and "forward" not in vars(module)
    )


def _norm(module: Any, hidden_states: Tensor) -> Tensor:
    return rms_norm(hidden_states, module.weight.shape, module.weight, module.variance_epsilon)


@torch.no_grad()
def _alike(module: Any) -> bool:
    weight = module.weight
    width = torch.arange(weight.numel(), device=weight.device) + 1
    probe = (torch.arange(_PROBES, device=weight.device)[:, None] + 1) * width * 0.618
    try:
        hidden = ((probe % 1) * 4 - 1.5).to(weight.dtype)  # of no mean 0
        expected, found = module(hidden), _norm(module, hidden)
        apart = float((found - expected).abs().max() / expected.abs().max())
    except RuntimeError:
        return False  # of a type or on a device that torch has none for
    return expected.dtype == found.dtype and apart <= 4 * torch.finfo(weight.dtype).eps
