"""Attention of a pass that is learned from, prompts padded on the left: torch's kinds of it side by side, on a GPU.

    python bench/attention.py

Of each kind and width, 32 rows of 9 heads of 64 in bfloat16, three rows in four padded: milliseconds of forward and
backward pass at the first call (`first_ms`) and after (`then_ms`), and how many numbers of the gradient are not finite.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

ROWS, HEADS, SIZE, PADDED = 32, 9, 64, 40
TIMES = 10
KINDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}


def measure(kind: str, width: int) -> None:
    """Print the figures of one kind at one width."""
    made = torch.randn(3, ROWS, HEADS, width, SIZE, device="cuda", dtype=torch.bfloat16)
    inputs = [part.requires_grad_() for part in made.unbind()]
    seen = mask(width)

    def learn() -> None:
        with sdpa_kernel(KINDS[kind]):
            found = scaled_dot_product_attention(*inputs, attn_mask=seen)
        found.backward(torch.ones_like(found))

    first = timed(learn)
    lost = sum(int((~part.grad.isfinite()).sum()) for part in inputs if part.grad is not None)
    rest = timed(lambda: [learn() for _ in range(TIMES)]) / TIMES
    print(f"value {kind}_{width}_first_ms {first * 1e3:.1f}")
    print(f"value {kind}_{width}_then_ms {rest * 1e3:.2f}")
    print(f"value {kind}_{width}_not_finite {lost}", flush=True)


def mask(width: int) -> Tensor:
    """What each token may look at, [rows, 1, width, width]."""
    padding = (torch.arange(ROWS, device="cuda") % 4 * PADDED)[:, None]
    seen = torch.arange(width, device="cuda") >= padding
    return torch.ones(width, width, dtype=torch.bool, device="cuda").tril() & seen[:, None, None, :]


def timed(work: Callable[[], Any]) -> float:
    """Seconds that the GPU takes for it."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[192, 208, 224, 640, 656, 672, 688, 704, 720])
    options = parser.parse_args()
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    print(torch.cuda.get_device_name(), torch.__version__, "cuDNN", cudnn, flush=True)
    for kind in KINDS:
        for width in options.widths:
            measure(kind, width)


if __name__ == "__main__":
    main()
