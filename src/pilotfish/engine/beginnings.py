"""Which beginnings of a batch's prompts are worth reading once for all rows that share them.

shared([(1, 2, 3, 7), (1, 2, 3, 8), (1, 2, 3, 9)])     # [3, 3, 3]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Prompt = tuple[int, ...]
_WORTH = 0.75
"""Beginnings are read apart where that leaves no more than this share of a batch's tokens to read, padding included."""


def shared(prompts: Sequence[Prompt]) -> list[int]:
    """How many tokens of each prompt are read apart, once for all that begin with them; 0 for each if it saves little.

    Prompts that agree in at least `least` tokens are a family and share what all of it agree in. Of all values of
    `least` the one is taken that leaves the fewest tokens to read. A prompt's last token is never read apart.

    Args:
        prompts: token ids, one or more each.
    """
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    agreed = [_agreement(prompts[one], prompts[other]) for one, other in pairwise(order)]
    best, fewest = [0] * len(prompts), int(_WORTH * len(prompts) * max(map(len, prompts)))
    for least in sorted(set(agreed) - {0}):
        families = _families(agreed, least)
        heads = _heads([prompts[i] for i in order], agreed, families)
        rest = max(len(prompts[i]) - head for i, head in zip(order, heads, strict=True))
        read = len(families) * max(heads) + len(prompts) * rest
        if read <= fewest:
            fewest = read
            best = [head for _, head in sorted(zip(order, heads, strict=True))]
    return best


def _families(agreed: Sequence[int], least: int) -> list[tuple[int, int]]:
    """Where families start and end among the prompts in order."""
    bounds = [0, *(i for i, tokens in enumerate(agreed, 1) if tokens < least), len(agreed) + 1]
    return list(pairwise(bounds))


def _heads(ordered: Sequence[Prompt], agreed: Sequence[int], families: Sequence[tuple[int, int]]) -> list[int]:
    """Tokens that each prompt shares with its family; of one that is alone as many as fit beside the others."""
    common = [min(agreed[start : end - 1], default=0) for start, end in families]
    heads: list[int] = []
    for (start, end), tokens in zip(families, common, strict=True):
        alone = min(max(common), len(ordered[start]) - 1)
        heads += [alone if end - start == 1 else tokens] * (end - start)
    return heads


def _agreement(one: Prompt, other: Prompt) -> int:
    """How many tokens both begin with, the last of either left out."""
    most = min(len(one), len(other)) - 1
    return next((i for i in range(most) if one[i] != other[i]), most)
