"""The output head under the loss on a CPU: only where something is learned, in pieces that fit the processor's cache.

TRL multiplies its hidden states by the head and takes log-probabilities in one function for all devices. On a CPU that
function goes through every position, the prompt's and the padding's too, a third of the vocabulary at a time or more:
most of the work is thrown away, and each piece is larger than what memory is kept for. This was half of the seconds of
a step's loss and update.
"""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer import utils

PIECE = 4096
"""Tokens of the vocabulary at once; from 1,024 to 8,192 all are equally fast."""
head: Any = utils


def score_learned_only() -> None:
    """Let the losses of TRL in this process leave out, on a CPU, the positions without a label.

    These are names that TRL keeps to itself; `tests/test_train_head.py` fails if they come to mean something else.
    """
    if not torch.cuda.is_available():
        head._use_triton = lambda device: True  # in this module it only says whether positions are left out
        head._CHUNKED_LOGPROB_CHUNK_SIZE = PIECE
