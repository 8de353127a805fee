"""The token engines in process: throughput, log-probabilities after a change of weights, its cost, and who waits.

    python bench/engine.py                                   # CPU: a tiny random model, under a minute
    python bench/engine.py --model smollm2 --rows 64 --tokens 24
    python bench/engine.py --device cuda --rows 512 --tokens 128      # a random model of SmolLM2's shape
    python bench/engine.py --device cuda --rows 512 --tokens 128 --at-once 128 256 512   # how wide a step is best

Plain `generate()` runs side by side on the same prompts and weights; beside it, what a decoder could do that only reads
weights and cache at the memory's bandwidth. Each figure ends as a line `ratio NAME VALUE` or `value NAME VALUE`; times
are in seconds and the best of two.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from _offline import least_seconds
from pilotfish.engine import admission
from pilotfish.engine.loading import fast_dtype, load
from pilotfish.engine.policy import PolicyEngine
from pilotfish.engine.tokens import TokenAnswer, TokenEngine
from pilotfish.engine.transformers import choose_tokens
from pilotfish.engine.weights import plain_copy

SHAPES: dict[str, dict[str, int]] = {
    "random-tiny": {
        "vocab_size": 1000,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    },
    "random-135m": {
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
    },
}
Prompts = list[list[int]]


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    trained, tokenizer = weights(options.model, options.device)
    describe(options, trained)
    asyncio.run(measure(trained, tokenizer, options))


def arguments() -> argparse.Namespace:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=device, help="cuda or cpu")
    parser.add_argument("--model", help="a folder, a hub name, smollm2, random-tiny or random-135m")
    parser.add_argument("--rows", type=int, default=64, help="calls at once")
    parser.add_argument("--tokens", type=int, default=48, help="new tokens a call")
    parser.add_argument("--at-once", type=int, nargs="*", default=[], help="most rows in one step, to compare")
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="of the device's memory, bytes a second")
    options = parser.parse_args()
    options.model = options.model or ("random-135m" if options.device == "cuda" else "random-tiny")
    return options


def weights(name: str, device: str) -> tuple[Any, Any]:
    """A float32 model, as a trainer would hold it, and its tokenizer."""
    if name not in SHAPES:
        return load(name, dtype="float32", device=device)
    config = LlamaConfig(**SHAPES[name], max_position_embeddings=2048, tie_word_embeddings=True)
    model = LlamaForCausalLM(config).to(device).eval()
    with torch.no_grad():
        # As drawn the distribution is flat, and its log-probabilities would agree whatever an engine did.
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(weight.shape[1] ** -0.5 / weight.std())
        model.get_input_embeddings().weight.mul_(3)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(config.vocab_size)}, unk_token="w0"))
    return model, PreTrainedTokenizerFast(tokenizer_object=words)


def describe(options: argparse.Namespace, trained: Any) -> None:
    card = torch.cuda.get_device_name() if options.device == "cuda" else f"{platform.machine()} CPU"
    size = sum(weight.numel() for weight in trained.parameters()) / 1e6
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}"
    print(f"{versions}, {card}")
    print(f"{options.model}, {size:.1f} M parameters, {options.rows} rows, {options.tokens} new tokens, ", end="")
    print(f"{torch.get_num_threads()} threads, {fast_dtype(options.device)}")


async def measure(trained: Any, tokenizer: Any, options: argparse.Namespace) -> None:
    rows, tokens = options.rows, options.tokens
    kind = fast_dtype(str(trained.device))
    actor = plain_copy(trained, lambda weight: torch.nn.Parameter(weight.detach().to(kind, copy=True), False))[0]
    twin = plain_copy(actor, lambda weight: weight)[0]
    kept: list[TokenEngine] = []

    def keep(model: Any) -> TokenEngine:
        kept.append(choose_tokens(model))
        return kept[-1]

    began = time.perf_counter()
    policy = PolicyEngine(trained, tokenizer, tokens=keep)
    actor_tokens = keep(twin)
    print(f"two engines up in {time.perf_counter() - began:.2f} s: {type(actor_tokens).__name__}")
    prompts = draw_prompts(rows, trained.config.vocab_size)
    await throughput(actor, actor_tokens, prompts, tokens)
    least = least_seconds(actor, [(tuple(prompt), tokens) for prompt in prompts], options.bandwidth)
    print(f"value least_tokens_per_second {rows * tokens / least:.0f}")
    await accuracy(trained, policy, kept[0], prompts[: min(rows, 64)], min(tokens, 64))
    await lengths(actor_tokens, prompts, tokens)
    await pairs(kept[0], actor_tokens, prompts, tokens)
    await policy.close()
    await actor_tokens.close()
    await widths(type(actor_tokens), actor, prompts, tokens, options.at_once)


def draw_prompts(rows: int, vocabulary: int) -> Prompts:
    rng = random.Random(0)
    return [[rng.randrange(3, vocabulary) for _ in range(rng.randrange(20, 60))] for _ in range(rows)]


async def ask(engine: TokenEngine, prompts: Prompts, tokens: int) -> list[TokenAnswer]:
    return await ask_each(engine, prompts, [tokens] * len(prompts))


async def ask_each(engine: TokenEngine, prompts: Prompts, lengths: list[int]) -> list[TokenAnswer]:
    calls = [
        engine.complete(prompt, length, 1.0, seed)
        for seed, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]
    return list(await asyncio.gather(*calls))


async def best(work: Callable[[], Awaitable[Any]]) -> float:
    """Seconds, the better of two."""
    times = []
    for _ in range(2):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return min(times)


async def throughput(actor: Any, engine: TokenEngine, prompts: Prompts, tokens: int) -> None:
    groups = [prompt for prompt in prompts[: -(-len(prompts) // 8)] for _ in range(8)][: len(prompts)]
    await ask(engine, prompts, 4)
    for name, batch in (("", prompts), ("_groups_of_8", groups)):
        ours = await best(lambda batch=batch: ask(engine, batch, tokens))  # type: ignore[misc]
        plain = await best(lambda batch=batch: asyncio.to_thread(generate, actor, batch, tokens))  # type: ignore[misc]
        print(f"value engine_tokens_per_second{name} {len(batch) * tokens / ours:.0f}")
        print(f"value generate_tokens_per_second{name} {len(batch) * tokens / plain:.0f}")
        print(f"ratio engine_over_generate{name} {plain / ours:.2f}", flush=True)


async def widths(kind: Any, actor: Any, prompts: Prompts, tokens: int, each: list[int]) -> None:
    """The same calls where so many rows are decoded in one step; the others wait. Then with answers of 1 to `tokens`
    tokens: places become free one by one, and calls that wait take them together or one by one."""
    draw = random.Random(0)
    mixed = [draw.randint(1, tokens) for _ in prompts]
    for at_once in each:
        engine = kind(plain_copy(actor, lambda weight: weight)[0], rows=at_once)
        await ask(engine, prompts, 4)
        took = await best(lambda engine=engine: ask(engine, prompts, tokens))  # type: ignore[misc]
        steps = -(-len(prompts) // at_once) * tokens
        print(f"value engine_tokens_per_second_{at_once}_at_once {len(prompts) * tokens / took:.0f}")
        print(f"value decode_step_ms_{at_once}_at_once {took / steps * 1e3:.2f}", flush=True)
        for name, seconds in (("together", admission.TOGETHER_S), ("one_by_one", 0.0)):
            with patch.object(admission, "TOGETHER_S", seconds):
                took = await best(lambda engine=engine: ask_each(engine, prompts, mixed))  # type: ignore[misc]
            print(f"value engine_tokens_per_second_{at_once}_at_once_mixed_{name} {sum(mixed) / took:.0f}", flush=True)
        await engine.close()


def generate(actor: Any, prompts: Prompts, tokens: int) -> None:
    """What a trainer would call: one left-padded batch, sampled, no log-probabilities."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts], device=actor.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=actor.device)
    settings = GenerationConfig(do_sample=True, top_k=0, top_p=1.0, max_new_tokens=tokens, pad_token_id=0)
    actor.generation_config = GenerationConfig()
    with torch.no_grad():
        actor.generate(ids, attention_mask=mask, generation_config=settings).cpu()


async def accuracy(trained: Any, policy: PolicyEngine, engine: TokenEngine, prompts: Prompts, tokens: int) -> None:
    """A change of weights as large as many steps make, copied in; log-probabilities against fresh forward passes."""
    kind = fast_dtype(str(trained.device))
    before = plain_copy(trained, lambda weight: torch.nn.Parameter(weight.detach().to(kind, copy=True), False))[0]
    with torch.no_grad():
        for weight in trained.parameters():
            weight.add_(torch.randn_like(weight) * weight.std() * 0.05 if weight.ndim > 1 else 0)
    print(f"value sync_seconds {await best(lambda: policy.sync(policy.version + 1)):.4f}")
    after = plain_copy(trained, lambda weight: torch.nn.Parameter(weight.detach().to(kind, copy=True), False))[0]
    answers = await ask(engine, prompts, tokens)
    print(f"value mean_abs_dlogp_after_sync {difference(after, prompts, answers):.5f}")
    print(f"value mean_abs_dlogp_to_old_weights {difference(before, prompts, answers):.5f}")
    print(f"value mean_abs_dlogp_to_float32_weights {difference(trained, prompts, answers):.5f}", flush=True)


def difference(model: Any, prompts: Prompts, answers: list[TokenAnswer]) -> float:
    total = count = 0.0
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.tensor([[*prompt, *answer.token_ids]], device=model.device)
        with torch.no_grad():
            rows = model(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        fresh = rows.gather(1, ids[0, len(prompt) :, None])[:, 0].cpu()
        total += float((fresh - torch.tensor(answer.logprobs)).abs().sum())
        count += len(answer.logprobs)
    return total / count


async def lengths(engine: TokenEngine, prompts: Prompts, tokens: int) -> None:
    """Answers of four lengths asked at once: when do those of each length come?"""
    each = sorted({max(1, tokens // 16), max(1, tokens // 4), max(1, tokens // 2), tokens})
    ends: dict[int, list[float]] = {length: [] for length in each}
    began = time.perf_counter()

    async def one(index: int, prompt: list[int]) -> None:
        length = each[index % len(each)]
        await engine.complete(prompt, length, 1.0, index)
        ends[length].append(time.perf_counter() - began)

    await asyncio.gather(*[one(index, prompt) for index, prompt in enumerate(prompts)])
    for length, seconds in ends.items():
        print(f"value mean_end_of_{length}_tokens {sum(seconds) / len(seconds):.3f}", flush=True)


async def pairs(policy: TokenEngine, actor: TokenEngine, prompts: Prompts, tokens: int) -> None:
    """Hint and answer for each prompt: all hints and then all answers, or each answer when its hint ends."""
    rng = random.Random(1)
    hints = [rng.randrange(max(1, tokens // 8), tokens + 1) for _ in prompts]

    async def hint(index: int) -> list[int]:
        answer = await policy.complete(prompts[index], hints[index], 1.0, index)
        return [*prompts[index], *answer.token_ids]

    async def stream(index: int) -> None:
        await actor.complete(await hint(index), tokens, 0.0, index)

    async def streams() -> None:
        await asyncio.gather(*[stream(index) for index in range(len(prompts))])

    async def waves() -> None:
        hinted = await asyncio.gather(*[hint(index) for index in range(len(prompts))])
        await asyncio.gather(*[actor.complete(prompt, tokens, 0.0, index) for index, prompt in enumerate(hinted)])

    in_streams, in_waves = await best(streams), await best(waves)
    print(f"value streams_seconds {in_streams:.3f}")
    print(f"value waves_seconds {in_waves:.3f}")
    print(f"ratio streams_over_waves {in_streams / in_waves:.2f}", flush=True)


if __name__ == "__main__":
    main()
