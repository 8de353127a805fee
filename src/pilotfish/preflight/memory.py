"""Memory that a recipe's weights take, from what can be known without loading them.

Shapes come from the headers of a local model's safetensors, else from its config.json, else the number of weights from
the model's name (`Qwen2.5-3B` has 3e9). Activations and the cache of the engines come on top; they take what is left.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pilotfish.cache import cache_folder
from pilotfish.engine.adapter import adapter_in, base_of
from pilotfish.engine.base import Refused
from pilotfish.preflight.stages import stages_of
from pilotfish.recipe import MemberConfig, Recipe
from pilotfish.train.profile import TrainConfig

Shapes = dict[str, tuple[int, ...]]

EMBEDDED = ("smollm2", 134.5e6)
"""The embedded model and its weights, for when it is not yet in the cache folder."""
ADAM = 8
"""Bytes of the optimizer's two moments for each trained weight."""
TILE = (4096, 32768)
"""Tokens x vocabulary of which TRL's loss holds logits at once, on a GPU."""
DIVIDED = ("weights", "adapter", "gradients", "optimizer", "reference")
"""Of which each of several processes has a part, where they divide the weights in training (FSDP)."""
HEADER = 100_000_000
"""Most bytes of a safetensors header, as the format has it."""
BILLION = re.compile(r"(\d+(?:\.\d+)?)\s*([bBmM])(?![a-zA-Z0-9])")


@dataclass(frozen=True)
class Model:
    """What is known of a model."""

    parameters: float | None
    known_from: str
    """`safetensors`, `config.json`, `name`, or `nothing`."""
    shapes: Shapes
    vocabulary: int | None = None


@dataclass(frozen=True)
class Held:
    """What one set of weights takes, in bytes by purpose; None where the number of weights is unknown."""

    members: tuple[str, ...]
    device: str
    model: Model
    parts: Mapping[str, float] | None

    @property
    def bytes(self) -> float | None:
        return None if self.parts is None else sum(self.parts.values())


def memory(recipe: Recipe) -> list[Held]:
    """One entry for each set of weights in process, of several stages the largest; members behind an API take nothing
    here."""
    stages = [memory(stage.recipe) for stage in stages_of(recipe) if stage.name and stage.trains]
    if stages:
        return [max(entries, key=lambda entry: entry.bytes or 0) for entries in zip(*stages, strict=True)]
    held = []
    trainee = recipe.trainee
    sets: dict[tuple[Any, ...], list[str]] = {}
    for name, member in recipe.team.items():
        if member.in_process or member.train:
            sets.setdefault((member.model, member.revision, member.device), []).append(name)
    for names in sets.values():
        lead = recipe.team[trainee] if trainee in names else recipe.team[names[0]]
        held.append(_held(tuple(names), lead, recipe))
    return held


def _held(names: tuple[str, ...], member: MemberConfig, recipe: Recipe) -> Held:
    model = measure(member.model, member.revision)
    if model.parameters is None:
        return Held(names, member.device, model, None)
    size = 4 if member.dtype == "float32" else 2
    parts: dict[str, float] = {"weights": size * model.parameters}
    if member.train:
        trained = _adapter(member, model) if member.lora else model.parameters
        full, grpo = not member.lora, isinstance(recipe.train, TrainConfig)
        whole = full or not grpo
        reference = isinstance(recipe.train, TrainConfig) and recipe.train.beta > 0
        parts = {
            "weights": (4 if whole else size) * model.parameters,
            "engine's copy": 2 * model.parameters if grpo and member.in_process else 0,
            "adapter": 0 if full else 4 * trained,
            "gradients": 4 * trained,
            "optimizer": ADAM * trained,
            "reference": 4 * model.parameters if full and reference else 0,
            "frozen twin": 2 * model.parameters if whole and len(names) > 1 else 0,
            "bfloat16 casts": 2 * _multiplied(model) if whole and member.device != "cpu" else 0,
            "logits": _logits(member, model, recipe),
        }
    return Held(names, member.device, model, {name: value for name, value in parts.items() if value})


def in_each(held: Held, processes: int) -> float | None:
    """Bytes of a trainee, trained in full, in each of several processes that divide its weights (FSDP); None where its
    size is unknown.

    What lies outside the layers is whole, with its gradient, from a forward pass to the end of the backward one. Before
    they divide them, each process has all weights and the engine's copy.
    """
    if held.parts is None:
        return None
    outside = sum(prod(shape) for name, shape in held.model.shapes.items() if _layer(name) is None)
    whole = {name: size for name, size in held.parts.items() if name not in (*DIVIDED, "bfloat16 casts")}
    parts = sum(held.parts.get(name, 0) for name in DIVIDED) / processes
    begun = sum(held.parts.get(name, 0) for name in ("weights", "engine's copy", "reference"))
    return max(parts + sum(whole.values()) + 8.0 * outside, begun)


def _multiplied(model: Model) -> float:
    """Weights that autocast holds in bfloat16 too until a forward pass ends; 0 where shapes are unknown."""
    return float(sum(map(prod, _matrices(model).values())))


def _logits(member: MemberConfig, model: Model, recipe: Recipe) -> float:
    """A tile of logits in bfloat16 and, where the output head is trained, its gradient in one pass in float32; 0 where
    the vocabulary is unknown. TRL never has the logits of a whole pass."""
    if model.vocabulary is None:
        return 0.0
    tokens = TILE[0]
    if isinstance(recipe.train, TrainConfig):
        tokens = min(tokens, recipe.train.micro_batch * member.sampling.max_tokens)
    head = 0 if member.lora else model.vocabulary * _width(model)
    return 2.0 * tokens * min(model.vocabulary, TILE[1]) + 4.0 * head


def _width(model: Model) -> int:
    """Of the hidden states: what the embeddings have for each token."""
    return next((shape[1] for shape in model.shapes.values() if shape[0] == model.vocabulary and len(shape) == 2), 0)


def _adapter(member: MemberConfig, model: Model) -> float:
    """Weights of the LoRA: rank x (rows + columns) of each adapted matrix; 1 % at rank 16 where shapes are unknown."""
    lora = member.lora
    if lora is None:
        return 0.0
    matrices = _matrices(model)
    if not matrices:
        return 0.01 * lora.rank / 16 * (model.parameters or 0)
    last = max(_layer(name) or 0 for name in matrices)
    lowest = 0 if lora.layers is None else last + 1 - lora.layers
    wanted = None if lora.targets == "all-linear" else set(lora.targets)
    return float(
        sum(
            lora.rank * sum(shape)
            for name, shape in matrices.items()
            if (_layer(name) or 0) >= lowest
            and (wanted is None or name.removesuffix(".weight").rpartition(".")[2] in wanted)
        )
    )


def _matrices(model: Model) -> Shapes:
    """The matrices of its layers; none where shapes are unknown."""
    return {name: shape for name, shape in model.shapes.items() if _layer(name) is not None and len(shape) == 2}


def _layer(name: str) -> int | None:
    """The layer that a weight belongs to; None for embeddings and the head."""
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def measure(model: str, revision: str | None = None) -> Model:
    """Number and shapes of a model's weights, without loading or fetching anything."""
    folder = local_folder(model, revision)
    if folder is not None and (adapter := adapter_in(folder)):
        with suppress(Refused):  # added to its base, whose size it has
            return measure(base_of(adapter))
        return Model(None, "nothing", {})
    config = _config(folder)
    vocabulary = config.get("vocab_size")
    if folder is not None and (shapes := _stored_shapes(folder)):
        return Model(sum(prod(shape) for shape in shapes.values()), "safetensors", shapes, vocabulary)
    if shapes := _planned_shapes(config):
        return Model(sum(prod(shape) for shape in shapes.values()), "config.json", shapes, vocabulary)
    if model == EMBEDDED[0]:
        return Model(EMBEDDED[1], "name", {})
    found = BILLION.findall(model)
    if not found:
        return Model(None, "nothing", {})
    number, unit = found[-1]
    return Model(float(number) * (1e9 if unit in "bB" else 1e6), "name", {})


def local_folder(model: str, revision: str | None = None) -> Path | None:
    """Where a model's config.json lies on this machine: its own folder, or the caches; None when it does not."""
    if model == EMBEDDED[0]:
        return next((path.parent for path in cache_folder().glob("SmolLM2-135M-Instruct-*/config.json")), None)
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        found = try_to_load_from_cache(model, "config.json", revision=revision)
    except HFValidationError:  # a path, not a name on the hub
        return None
    return Path(found).parent if isinstance(found, str) else None


def _config(folder: Path | None) -> dict[str, Any]:
    file = folder / "config.json" if folder else None
    if file is None or not file.is_file():
        return {}
    config = json.loads(file.read_text())
    return dict(config.get("text_config") or config)


def _stored_shapes(folder: Path) -> Shapes:
    """Shapes from the headers of all safetensors in a folder; empty where one of them is damaged."""
    shapes: Shapes = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            try:
                header = json.loads(opened.read(min(length, HEADER)))
            except ValueError:
                return {}
        shapes |= {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    return shapes


def _planned_shapes(config: Mapping[str, Any]) -> Shapes:
    """Shapes of a dense decoder (Llama, Qwen, Gemma, Mistral) from its config; empty for other architectures."""
    needed = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    if any(config.get(name) is None for name in needed) or config.get("num_experts"):
        return {}
    width, inner, layers, heads, vocabulary = (int(config[name]) for name in needed)
    head = int(config.get("head_dim") or width // heads)
    keys = int(config.get("num_key_value_heads") or heads) * head
    shapes: Shapes = {"embed_tokens": (vocabulary, width)}
    tied = str(config.get("model_type", "")).startswith("gemma")  # whose configs leave it out
    if not config.get("tie_word_embeddings", tied):
        shapes["lm_head"] = (vocabulary, width)
    for layer in range(layers):
        for name, shape in {
            "q_proj": (heads * head, width),
            "k_proj": (keys, width),
            "v_proj": (keys, width),
            "o_proj": (width, heads * head),
            "gate_proj": (inner, width),
            "up_proj": (inner, width),
            "down_proj": (width, inner),
        }.items():
            shapes[f"layers.{layer}.{name}"] = shape
    return shapes


def by_device(held: list[Held]) -> dict[str, float | None]:
    """Bytes on each device; None where a model's size is unknown."""
    unknown = {entry.device for entry in held if entry.bytes is None}
    total: Counter[str] = Counter()
    for entry in held:
        total[entry.device] += entry.bytes or 0  # type: ignore[assignment]
    return {device: None if device in unknown else value for device, value in total.items()}
