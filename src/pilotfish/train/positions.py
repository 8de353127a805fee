"""Positions of words behind padding.

Prompts are padded on the left, and TRL tells a model no positions. One whose positions are relative computes the same
however far its words are moved; one that has learned absolute ones does not, and is told them here, as they are when it
speaks.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn
from transformers import PreTrainedModel


def count_words_only(model: nn.Module) -> None:
    """Let a model with absolute positions count them from the first token that is no padding; leave others alone."""
    named: Any = model
    whole: PreTrainedModel = named.get_base_model() if hasattr(named, "get_base_model") else named
    rotary = getattr(whole.config.get_text_config(), "rope_parameters", None)
    if rotary is None and "position_ids" in inspect.signature(whole.forward).parameters:
        model.register_forward_pre_hook(_counted, with_kwargs=True)


def _counted(module: nn.Module, args: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    mask = named.get("attention_mask")
    if mask is None or named.get("position_ids") is not None:
        return args, named
    return args, {**named, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
