"""LoRA as this project trains it: which modules get an adapter, in which type its matrices are multiplied, and whole
weights with it added.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from peft import LoraConfig as PeftConfig
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel

from pilotfish.engine.adapter import merged
from pilotfish.engine.loading import load
from pilotfish.recipe import LoraConfig, MemberConfig
from pilotfish.train.quiet import quiet


def peft_config(lora: LoraConfig, model: PreTrainedModel) -> PeftConfig:
    """LoRA on the linear modules of the last `layers` layers, the output head left out (TRL reads it directly).

    Raises:
        ValueError: the model has none of the modules that `targets` names.
    """
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    linear = [name for name in linear if not name.endswith("lm_head")]
    count = int(model.config.get_text_config().num_hidden_layers)
    lowest = count - (lora.layers or count)
    targets = [name for name in linear if _layer(name) >= lowest and _wanted(name, lora)]
    if not targets:
        raise ValueError(f"lora.targets {lora.targets}: the model has no such linear modules, e.g. {linear[:3]}")
    return PeftConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"
    )


def multiply_in_low_precision(model: nn.Module) -> None:
    """Let autocast choose the type in which adapters are multiplied; their weights and updates stay float32.

    PEFT casts an adapter's input to float32. Under bfloat16 autocast that copies every activation only to have
    it cast back.
    """
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            module.__dict__["cast_input_dtype_enabled"] = False


def autocasts(model: PreTrainedModel) -> bool:
    """Whether to compute in bfloat16: always on a GPU that has it; on a CPU where the base weights are bfloat16."""
    if model.device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return model.dtype == torch.bfloat16


def merge(member: MemberConfig, adapter: Path, out: Path) -> None:
    """Write a member's weights with an adapter added to them, in float32, and its tokenizer.

    Args:
        member: whose weights the adapter was trained on.
        adapter: a folder that PEFT wrote.
        out: a folder that is not there yet; it appears whole or not at all.

    Raises:
        Refused: the member's model cannot be loaded.
    """
    partial = out.with_name(f"{out.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    with quiet():
        base, tokenizer = load(
            member.model,
            revision=member.revision,
            dtype=member.dtype,
            device=member.device,
            trust_remote_code=member.trust_remote_code,
        )
        merged(base, adapter).save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    partial.rename(out)


def _layer(name: str) -> int:
    return next((int(part) for part in name.split(".") if part.isdigit()), 0)


def _wanted(name: str, lora: LoraConfig) -> bool:
    return lora.targets == "all-linear" or name.rpartition(".")[2] in lora.targets
