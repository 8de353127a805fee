"""What a decoding step of continuous batching is made of on a GPU.

    python bench/decode_kernels.py --model smollm2 --rows 192 512

Of so many calls at once: milliseconds a token of each answer, the best of four (`step_ms`); under torch's profiler
kernels and copies (`kernels`) and milliseconds in which one of them ran (`busy_ms`), for each token; and the kernels
that take longest, each with its microseconds and times. The few steps that read prompts are counted with the others.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from _steps import union
from engine import Prompts, ask, best, draw_prompts, weights
from pilotfish.engine.continuous import ContinuousTokens
from pilotfish.engine.loading import fast_dtype

PROFILED = 64
"""Tokens of each answer under the profiler."""


async def measure(engine: ContinuousTokens, prompts: Prompts, tokens: int, most: int) -> None:
    rows = len(prompts)
    await ask(engine, prompts, 4)
    took = min([await best(lambda: ask(engine, prompts, tokens)) for _ in range(2)])
    print(f"value step_ms_{rows} {took / tokens * 1e3:.2f}", flush=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        await ask(engine, prompts, PROFILED)
    tell(rows, [event for event in profile.events() if event.device_type == DeviceType.CUDA], most)


def tell(rows: int, events: list[Any], most: int) -> None:
    took, times = Counter[str](), Counter[str]()
    for event in events:
        took[event.name] += event.device_time
        times[event.name] += 1
    busy = union((event.time_range.start / 1e3, event.time_range.end / 1e3) for event in events)
    print(f"value kernels_{rows} {len(events) / PROFILED:.0f}")
    print(f"value busy_ms_{rows} {busy / PROFILED:.2f}")
    for name, micros in took.most_common(most):
        print(f"  {micros / PROFILED:8.1f} us {times[name] / PROFILED:6.1f} times: {name[:140]}")
    print(flush=True)


async def every(options: argparse.Namespace) -> None:
    model, _ = weights(options.model, "cuda")
    engine = ContinuousTokens(model.to(fast_dtype("cuda")))
    for rows in options.rows:
        await measure(engine, draw_prompts(rows, model.config.vocab_size), options.tokens, options.most)
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="random-135m", help="as in bench/engine.py")
    parser.add_argument("--rows", type=int, nargs="+", default=[128, 192, 256, 512], help="calls at once")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--most", type=int, default=40, help="kernels that are listed")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("a CPU has no kernels to list; bench/decode_step.py measures a step's Python there")
    asyncio.run(every(options))


if __name__ == "__main__":
    main()
