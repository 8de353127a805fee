"""Attention in passes that are learned from.

On GPUs of the Hopper kind torch prefers cuDNN's attention. Given a mask, its backward pass (torch 2.11 to 2.13) holds a
NaN in passes of 64, 192, 320, … tokens where a token's scores are all low (https://github.com/pytorch/pytorch/issues/196678),
and the padding left of a prompt has none at all. It also makes a plan for each new width, and widths change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Let torch choose among its other kinds of attention while the block runs, in the whole process."""
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
