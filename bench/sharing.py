"""Processes that share a GPU: how much more work they do together than one of them alone.

    python bench/sharing.py                                      # the GPU takes turns among them
    nvidia-cuda-mps-control -d; python bench/sharing.py          # kernels of several at once

Each process replays a CUDA graph of 600 short matrix products of as many rows as a decoding step has. Lines: replays a
second of one process while the others wait (`alone`), of all of them (`together`), and the ratio.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import time
from typing import Any

import torch
from torch import Tensor

ROWS, WIDTH, INNER, LAYERS = 192, 576, 1536, 300
WARM_UP, SECONDS, PATIENCE = 0.3, 1.5, 120


def work(number: int, gate: Any, told: Any) -> None:
    """One process: tells its replays a second alone, 0 if it is not the first, and beside the others."""
    graph = captured()
    rate(graph, WARM_UP)
    gate.wait()
    alone = rate(graph, SECONDS) if number == 0 else 0.0
    gate.wait()
    together = rate(graph, SECONDS)
    gate.wait()
    told.put((alone, together))


def captured() -> torch.cuda.CUDAGraph:
    hidden, wide, narrow = (
        torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        for shape in ((ROWS, WIDTH), (WIDTH, INNER), (INNER, WIDTH))
    )

    def layers(hidden: Tensor) -> Tensor:
        for _ in range(LAYERS):
            hidden = torch.tanh(hidden @ wide) @ narrow
        return hidden

    layers(hidden)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers(hidden)
    return graph


def rate(graph: torch.cuda.CUDAGraph, seconds: float) -> float:
    began, times = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        graph.replay()
        torch.cuda.synchronize()
        times += 1
    return times / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    count = parser.parse_args().processes
    context = mp.get_context("spawn")
    gate, told = context.Barrier(count, timeout=PATIENCE), context.Queue()
    crowd = [context.Process(target=work, args=(number, gate, told), daemon=True) for number in range(count)]
    for one in crowd:
        one.start()
    rates = [told.get(timeout=PATIENCE) for _ in crowd]
    for one in crowd:
        one.join()
    alone, together = max(first for first, _ in rates), sum(second for _, second in rates)
    print(f"value alone {alone:.1f}")
    print(f"value together_{count} {together:.1f}")
    print(f"ratio together_over_alone {together / alone:.2f}")


if __name__ == "__main__":
    main()
