"""Adapters that PEFT wrote: the base that they name, and the sum of both.

config = adapter_config("hint-3b-lora")     # None: whole weights
base_of(config)                             # Qwen/Qwen2.5-3B-Instruct
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.engine.base import Refused
from pilotfish.engine.embedded import NAME as EMBEDDED

if TYPE_CHECKING:  # a server's command is made without these
    import torch
    from transformers import PreTrainedModel


def adapter_in(folder: str | Path) -> Path | None:
    """The `adapter_config.json` of a folder; None where there is none."""
    config = Path(folder).expanduser() / "adapter_config.json"
    return config if config.is_file() else None


def adapter_config(model: str, revision: str | None = None) -> Path | None:
    """The `adapter_config.json` of a folder or hub name; None where there is none."""
    from transformers.utils.peft_utils import find_adapter_config_file

    found = find_adapter_config_file(model, revision=revision)
    return None if found is None else Path(found)


def base_of(config: Path) -> str:
    """What an adapter was trained on, by its `adapter_config.json`: a folder, `OWNER/NAME` of the hub, or `smollm2`.

    Raises:
        Refused: it is none of these.
    """
    base = str(json.loads(config.read_text(encoding="utf-8")).get("base_model_name_or_path"))
    if base != EMBEDDED and not Path(base).is_dir() and base.count("/") != 1:
        raise Refused(
            f"{config}: base_model_name_or_path is {base!r}, which is no folder here and no OWNER/NAME of the hub; "
            "write where the base is"
        )
    return base


def merged(base: PreTrainedModel, adapter: str | Path, revision: str | None = None) -> PreTrainedModel:
    """The weights with an adapter added to them, in float32 whatever type the base was in; the base is used up.

    Args:
        base: in the type in which it was trained under the adapter, so that the sum is that of the training.
        adapter: a folder that PEFT wrote, or a hub name.
        revision: the hub's branch, tag or commit.
    """
    import torch
    from peft import PeftModel

    whole: Any = torch.nn.Module.to(base, torch.float32)
    return PeftModel.from_pretrained(whole, str(adapter), revision=revision).merge_and_unload().requires_grad_(True)  # type: ignore[no-any-return]


def cast(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Round the weights, and nothing else: `model.to` would round the frequencies of rotary positions too, which no
    loading of a model in that type does."""
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model
