"""The folder of an export: weights and tokenizer written, read back as anyone would read them, and held against the
trained weights and the base.

    proof = write(trained(run), Path("hint-3b.part"), adapter=False, dtype=torch.bfloat16)
    proof.change.parameters_changed
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pilotfish.engine.adapter import cast, merged
from pilotfish.engine.chat import stop_ids
from pilotfish.engine.loading import fast_dtype, load
from pilotfish.export.change import Change, compare, log_probabilities
from pilotfish.export.names import public
from pilotfish.export.trained import Trained
from pilotfish.member import MemberConfig
from pilotfish.run import RunError
from pilotfish.team import Sampling

TOLERANCE = 1e-3
"""Nats by which what was read back may differ from what was written, in any token of the probe."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of exported weights."""

    dtype: str
    change: Change
    """Against the base."""
    read_back: float
    """Largest difference of a log-probability to the weights as they were written, in nats."""
    rounding: float
    """The same to the trained weights before they were rounded to `dtype`."""
    from_base: float
    """The same to the base."""


def write(found: Trained, out: Path, *, adapter: bool, dtype: torch.dtype) -> Proof:
    """Write the weights and prove them.

    Args:
        found: the trained weights.
        out: a folder, made here.
        adapter: the adapter alone, in float32 as it was trained; else whole weights.
        dtype: of whole weights.

    Raises:
        RunError: the folder, read back, does not say what was written.
        Refused: the base cannot be loaded.
    """
    model, tokenizer = _trained(found)
    exact = log_probabilities(model, tokenizer)
    tokenizer.save_pretrained(out)
    if adapter:
        _write_adapter(found, out)
    else:
        model.config.use_cache = True  # training turns it off
        model.generation_config = generation(model, tokenizer, found.base.sampling)
        cast(model, dtype).save_pretrained(out)
    written = log_probabilities(cast(model, torch.float32), tokenizer)
    del model
    return _proof(found, out, adapter, exact, written)


def type_of(member: MemberConfig) -> torch.dtype:
    """In which a member computes on this machine: what `load` takes for `auto`."""
    if member.dtype != "auto":
        return torch.bfloat16 if member.dtype == "bfloat16" else torch.float32
    return fast_dtype("cuda" if torch.cuda.is_available() and member.device != "cpu" else "cpu")


def generation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sampling: Sampling) -> GenerationConfig:
    """How the member was asked: every token that ended an answer, its temperature, and nothing that the base's own file
    would add, such as a repetition penalty."""
    drawn = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
    config: Any = GenerationConfig
    made: GenerationConfig = config(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=sorted(stop_ids(model, tokenizer)),
        pad_token_id=tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        **(drawn if sampling.temperature else {"do_sample": False}),
    )
    return made


def _trained(found: Trained) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The trained weights, whole and in float32."""
    if not found.is_adapter:
        whole = found.base.model_copy(update={"model": str(found.folder), "revision": None})
        return _load(whole, torch.float32)
    base, tokenizer = _load(found.begun_from, type_of(found.begun_from))
    return merged(base, found.folder), tokenizer


def _base(found: Trained) -> PreTrainedModel:
    """The base in the type in which it was trained: a LoRA's base is as loaded, full training is in float32."""
    return _load(found.base, type_of(found.base) if found.base.lora else torch.float32)[0]


def _load(member: MemberConfig, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    name = str(dtype).removeprefix("torch.")
    trusted = member.trust_remote_code
    return load(member.model, revision=member.revision, dtype=name, device="cpu", trust_remote_code=trusted)


def _write_adapter(found: Trained, out: Path) -> None:
    """The adapter's two files, naming its base without the folders of this machine."""
    weights = "adapter_model.safetensors"
    shutil.copyfile(found.folder / weights, out / weights)
    config = json.loads((found.folder / "adapter_config.json").read_text(encoding="utf-8"))
    config |= {"base_model_name_or_path": public(found.base.model), "revision": found.base.revision}
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _proof(found: Trained, out: Path, adapter: bool, exact: Tensor, written: Tensor) -> Proof:
    """Hold what stands in the folder against the trained weights and the base.

    Args:
        found: the trained weights.
        out: the folder.
        adapter: whether it holds an adapter.
        exact: log-probabilities of the trained weights.
        written: the same of the weights as they were rounded and written.
    """
    exported = _read_back(found, out, adapter)
    tokenizer = AutoTokenizer.from_pretrained(out, trust_remote_code=found.base.trust_remote_code)
    dtype = exported.dtype
    base = cast(_base(found), dtype)
    change = compare(base, exported)
    heard = log_probabilities(cast(exported, torch.float32), tokenizer)
    before = log_probabilities(cast(base, torch.float32), tokenizer)
    read_back = _apart(heard, written)
    if not read_back <= TOLERANCE:  # nan too
        raise RunError(
            f"{out}: read back, the weights differ from those that were written by {read_back:.3g} nats in a token, "
            f"and {TOLERANCE:g} is allowed; nothing is exported. Try --dtype float32, and report this"
        )
    return Proof(str(dtype).removeprefix("torch."), change, read_back, _apart(heard, exact), _apart(heard, before))


def _read_back(found: Trained, out: Path, adapter: bool) -> PreTrainedModel:
    if adapter:
        return merged(_base(found), out)
    trusted = found.base.trust_remote_code
    weights: Any = AutoModelForCausalLM.from_pretrained(out, dtype="auto", trust_remote_code=trusted)
    read: PreTrainedModel = weights.eval()
    return read


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())
