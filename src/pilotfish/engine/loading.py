"""Loads models, names their weights, and turns messages into token ids.

model, tokenizer = load("Qwen/Qwen2.5-3B-Instruct")     # a hub name, a folder, a .gguf file, or `smollm2`
ids = render(tokenizer, [{"role": "user", "content": "What is 7 + 5?"}])
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jinja2.exceptions import TemplateError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel, PreTrainedTokenizerBase

from pilotfish.cache import cache_folder
from pilotfish.engine.base import Refused
from pilotfish.engine.embedded import NAME as EMBEDDED
from pilotfish.engine.embedded import embedded
from pilotfish.team import Message, Messages

PLAIN_STOP = "\n\nUser:"
"""Where the next turn would begin for a model without a chat template."""


def load(
    model: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load weights and tokenizer.

    Args:
        model: a hub name, a local folder, a `.gguf` file (converted once, then kept in the cache folder), or `smollm2`.
        revision: the hub's branch, tag or commit.
        dtype: `bfloat16`, `float16`, `float32`, or `auto`: bfloat16 where the device computes in it.
        device: `cuda`, `cpu`, …, or `auto`: the GPU if there is one.
        trust_remote_code: whether code from the model's repository may run.

    Raises:
        Refused: there is no such model, or it cannot be loaded.
    """
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    kind = fast_dtype(place) if dtype == "auto" else getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise Refused(f"{model}: dtype {dtype!r} is unknown; use auto, bfloat16, float16 or float32")
    source, options = str(_folder(model)), {"revision": revision, "trust_remote_code": trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        weights: Any = AutoModelForCausalLM.from_pretrained(source, dtype=kind, **options)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise Refused(f"cannot load the model {model!r}: {first}") from error
    return weights.to(place).eval(), tokenizer


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
        return path if path.exists() else model
    if not path.is_file():
        raise Refused(f"there is no file {model}")
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
    end = _turn_end(tokenizer)
    if end is not None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
        model.config.eos_token_id = model.generation_config.eos_token_id = end
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".converting-"))
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


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end an answer: what model and tokenizer name, and what ends a turn in the chat template."""
    named = [tokenizer.eos_token_id, model.config.get_text_config().eos_token_id, _turn_end(tokenizer)]
    if model.generation_config is not None:
        named.append(model.generation_config.eos_token_id)
    flat = [token for entry in named for token in (entry if isinstance(entry, list) else [entry])]
    return frozenset(int(token) for token in flat if token is not None)


def _turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token after an assistant's words, or None."""
    if not tokenizer.chat_template:
        return None
    turn = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "zq"}]
    text = str(tokenizer.apply_chat_template(turn, tokenize=False))
    after = tokenizer(text[text.rfind("zq") + 2 :], add_special_tokens=False)["input_ids"]
    return next((token for token in after if token in _special(tokenizer)), None)


@lru_cache(maxsize=8)
def _special(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Control tokens by id."""
    added = {i: token.content for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=False))


def render(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> list[int]:
    """Token ids of a chat, up to where the assistant's words begin.

    The ids are those of the model's chat template; a model without one gets `System: … User: … Assistant:`. Control
    tokens that stand in a message (a question that quotes `<|im_end|>`) arrive as text, never as control tokens.

    Raises:
        Refused: the template does not take these messages.
    """
    control = sorted(_special(tokenizer).values(), key=len, reverse=True)
    words = "\n".join(message["content"] for message in messages)
    if not any(token in words for token in control):
        return _encode(tokenizer, _text(tokenizer, messages))
    quoted = re.compile("|".join(map(re.escape, control)))
    # A character for private use that the messages do not hold marks where a quoted token stands.
    mark = next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in words)
    found: list[str] = []

    def hide(match: re.Match[str]) -> str:
        found.append(match[0])
        return f"{mark}{len(found) - 1}{mark}"

    marked: Messages = [{"role": m["role"], "content": quoted.sub(hide, m["content"])} for m in messages]
    return _encode_quoted(tokenizer, _text(tokenizer, marked).split(mark), found)


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    # A template writes the beginning-of-text token itself; plain text gets it from the tokenizer.
    ids: list[int] = tokenizer(text, add_special_tokens=not tokenizer.chat_template)["input_ids"]
    return ids


def _encode_quoted(tokenizer: PreTrainedTokenizerBase, pieces: list[str], found: list[str]) -> list[int]:
    """Encode text of which every second piece is the number of a quoted control token; its id becomes the ids of its
    letters."""
    text, spans = "", set[int]()
    for i, piece in enumerate(pieces):
        if i % 2:
            spans.add(len(text))
        text += found[int(piece)] if i % 2 else piece
    coded = tokenizer(text, add_special_tokens=not tokenizer.chat_template, return_offsets_mapping=True)
    special = _special(tokenizer)
    ids: list[int] = []
    for token, (start, end) in zip(coded["input_ids"], coded["offset_mapping"], strict=True):
        if token in special and any(start <= at < end for at in spans):
            ids += _letters(tokenizer, text[start:end])
        else:
            ids.append(token)
    return ids


def _letters(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The ids of a control token's letters."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return ids


def _text(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> str:
    if not tokenizer.chat_template:
        return plain_text(messages)
    try:
        return _template(tokenizer, messages)
    except TemplateError as error:
        if messages[0]["role"] != "system" or len(messages) < 2:
            raise Refused(f"the chat template refuses these messages: {error}") from error
    system, first, *rest = messages
    folded: Message = {"role": first["role"], "content": f"{system['content']}\n\n{first['content']}"}
    try:
        return _template(tokenizer, [folded, *rest])
    except TemplateError as error:
        raise Refused(f"the chat template refuses these messages: {error}") from error


def _template(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> str:
    turns = [{"role": message["role"], "content": message["content"]} for message in messages]
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def plain_text(messages: Messages) -> str:
    """A chat as plain text, for a model without a chat template."""
    turns = [f"{message['role'].capitalize()}: {message['content']}" for message in messages]
    return "\n\n".join([*turns, "Assistant:"])


def weights_hash(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Names weights and chat template, for answers that are kept across runs; the same on every device.

    Reads every bit of every weight, as integers, so nothing depends on the order of a sum. Half a second for SmolLM2 on
    one core.
    """
    state = hashlib.sha256(repr((tokenizer.chat_template, len(tokenizer))).encode())
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
