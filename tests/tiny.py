"""A tiny Llama with random weights and a tiny chat tokenizer, made on the spot: what the tests run instead of a model.

model, tokenizer = tiny_model(seed=0), tiny_tokenizer()
save_tiny(folder)      # the same two as a Hugging Face folder
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 320
CORPUS = ["What is the sum of 12 and 7? The answer is 19.", "system user assistant hint answer only number"]


def tiny_tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of 320 tokens; `<|im_end|>` (id 2) ends a turn."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(seed: int, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    """Two layers of width 64, weights spread so that its distribution is far from flat; the global RNG is untouched."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(4)
    return model.to(dtype)  # type: ignore[arg-type]


def save_tiny(folder: Path, seed: int = 0) -> Path:
    """Write model and tokenizer as a Hugging Face folder."""
    tiny_model(seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def spoil(model: torch.nn.Module, updates: Collection[int]) -> None:
    """Let the gradient of a weight hold a NaN in some of the model's backward passes, counted from 0."""
    passes = itertools.count()
    weight = next(weight for weight in model.parameters() if weight.ndim == 2)
    weight.register_hook(lambda gradient: gradient * torch.nan if next(passes) in updates else gradient)


def halted(model: Any, after: int = 0) -> tuple[threading.Event, threading.Event]:
    """Hold a model in its next step, or one later: the first event says that it is there, the second lets it go on."""
    there, let_go, real = threading.Event(), threading.Event(), model.forward
    steps = iter(range(after))

    @wraps(real)
    def forward(*args: Any, **options: Any) -> Any:
        if next(steps, None) is None:
            there.set()
            let_go.wait(120)
        return real(*args, **options)

    model.forward = forward
    return there, let_go
