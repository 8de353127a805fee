"""Loads models: from a hub, a folder, a GGUF file, or the embedded one.

model, tokenizer = load("Qwen/Qwen2.5-3B-Instruct")     # or a path, a .gguf file, `smollm2`
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.hub import has_file

from pilotfish.cache import cache_folder
from pilotfish.engine.adapter import adapter_config, base_of, cast, merged
from pilotfish.engine.base import Refused
from pilotfish.engine.chat import turn_end
from pilotfish.engine.embedded import NAME as EMBEDDED
from pilotfish.engine.embedded import embedded
from pilotfish.missing import here, looked_in


def load(
    model: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load weights and tokenizer. An adapter is added to its base, as it is where it is trained and measured.

    Args:
        model: a hub name, a local folder, a `.gguf` file (converted once, then kept in the cache folder), or `smollm2`.
        revision: the hub's branch, tag or commit.
        dtype: `bfloat16`, `float16`, `float32`, or `auto`: bfloat16 where the device computes in it.
        device: `cuda`, `cpu`, …, or `auto`: the GPU if there is one.
        trust_remote_code: whether code from the model's repository may run.

    Raises:
        Refused: there is no such model, or it cannot be loaded.
    """
    place, kind = _placed(model, device, dtype)
    source = str(_folder(model))
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    with _refused(model):
        if config := adapter_config(source, revision):
            return _on_its_base(source, config, options, place, kind)
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        weights: Any = AutoModelForCausalLM.from_pretrained(source, dtype=kind, **options)
    return weights.to(place).eval(), tokenizer


def load_classifier(
    model: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a sequence classifier with one output, a reward model, and its tokenizer; the arguments are those of `load`.

    Raises:
        Refused: there is no such model, it has another number of outputs, or its folder holds no head to score with.
    """
    place, kind = _placed(model, device, dtype)
    options = {"revision": revision, "trust_remote_code": trust_remote_code}
    with _refused(model):
        tokenizer = AutoTokenizer.from_pretrained(model, **options)
        weights, found = AutoModelForSequenceClassification.from_pretrained(
            model, dtype=kind, output_loading_info=True, **options
        )
    if found["missing_keys"]:
        missing = ", ".join(sorted(found["missing_keys"]))
        raise Refused(f"{model}: is no reward model, its folder lacks {missing}; name one that was trained to score")
    if weights.config.num_labels != 1:
        raise Refused(f"{model}: has {weights.config.num_labels} outputs, and a reward model has one")
    return weights.to(place).eval(), tokenizer


def _on_its_base(
    source: str, config: Path, options: Mapping[str, Any], place: str, kind: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The sum of an adapter and its base; left apart, its products would be rounded by themselves.

    Args:
        source: a folder or hub name with an adapter.
        config: its `adapter_config.json`.
        options: of loading it.
        place, kind: where the sum is put, and as what.

    Raises:
        Refused: the base cannot be loaded.
    """
    settings = json.loads(config.read_text(encoding="utf-8"))
    of_base = {**options, "revision": settings.get("revision")}
    try:
        weights, tokenizer = load(base_of(config), dtype=str(kind).partition(".")[2], device="cpu", **of_base)
    except Refused as error:
        told = f"write where its base is into {config}, base_model_name_or_path ({EMBEDDED}: the embedded model)"
        raise Refused(f"{source}: an adapter: {error}; {told}") from error
    if has_file(source, "tokenizer_config.json", revision=options["revision"]):
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
    whole: Any = cast(merged(weights, source, options["revision"]), kind)
    return whole.to(place).eval(), tokenizer


def _placed(model: str, device: str, dtype: str) -> tuple[str, torch.dtype]:
    """Where weights are put, and as what."""
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if place.partition(":")[0] not in ("cuda", "cpu") or (place != "cpu" and not torch.cuda.is_available()):
        raise Refused(f"{model}: there is no device {place!r} here; use cpu or auto")
    kind = fast_dtype(place) if dtype == "auto" else getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise Refused(f"{model}: dtype {dtype!r} is unknown; use auto, bfloat16, float16 or float32")
    return place, kind


@contextmanager
def _refused(model: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        meant = "/" in model and not Path(model).expanduser().exists()
        where = f"; no such folder{here(model)} either" if meant else ""
        raise Refused(f"cannot load the model {model!r}: {first}{where}") from error


def fast_dtype(device: str) -> torch.dtype:
    """bfloat16 where the device has it in hardware, else float32."""
    if torch.device(device).type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if torch.device(device).type == "cpu" and info.exists() else set()
    return torch.bfloat16 if flags & {"amx_bf16", "avx512_bf16", "bf16"} else torch.float32


def _folder(model: str) -> str | Path:
    if model == EMBEDDED:
        return embedded()
    path = Path(model).expanduser()
    if path.suffix != ".gguf":
        if not path.exists() and (model.count("/") > 1 or model.startswith((".", "/", "~"))):
            raise Refused(f"{model}: no such folder{here(path)}; name a folder, a .gguf file or OWNER/NAME of the hub")
        return path if path.exists() else model
    if not path.is_file():
        raise Refused(f"there is no file {model}{looked_in(path)}")
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:12]
    folder = cache_folder() / f"{path.stem}-{key}"
    if not (folder / "config.json").exists():
        convert_gguf(path, folder)
    return folder


def convert_gguf(path: Path, folder: Path) -> None:
    """Write a GGUF file as a Hugging Face folder in bfloat16, with the token that its chat template ends a turn with as
    end token (a GGUF may name another, and then no answer ends). The folder appears whole or not at all."""
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent),
        gguf_file=path.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    end = turn_end(tokenizer)
    if end is not None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
        model.config.eos_token_id = model.generation_config.eos_token_id = end
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".converting-"))
    # In a launch of several processes transformers lets the first alone write, and here any may be the one that does.
    model.should_save_on_this_rank = lambda is_main_process: True  # type: ignore[method-assign]
    try:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        draft.chmod(0o755)
        try:
            os.replace(draft, folder)
        except OSError:
            if not folder.exists():
                raise
            # Another process was first; its folder is the same.
    finally:
        shutil.rmtree(draft, ignore_errors=True)
