"""reasoning-gym answers, judged by the data set's own scorer.

The task's `meta` names the `dataset` and carries the `entry` that the scorer reads. Its scorers take the bare answer as
one string and give a share of 1; some answers are grids of several lines, which are then read from the reply's end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..task import Task
from .extract import Extraction, extract_answer
from .verdict import Verdict


def verify(gold: str, text: str, task: Task, form: str = "free") -> Verdict:
    """Judge a reply with the scorer of `task.meta["dataset"]`; the reward may lie between 0 and 1."""
    name, entry = task.meta.get("dataset"), task.meta.get("entry")
    if not isinstance(name, str) or not isinstance(entry, dict):
        return Verdict(None, why="meta has no `dataset` name and `entry` for reasoning-gym's scorer")
    try:
        score = _scorer(name)
    except (ImportError, ValueError) as error:
        return Verdict(None, why=f"no reasoning-gym scorer for {name!r}: {error}")
    answer = _answer(text, form, str(entry.get("answer", gold)))
    if answer.answer is None:
        return Verdict(0.0, why=answer.why)
    return _score(score, answer.region, entry)


def load(task: Task) -> None:
    """Import the task's scorer ahead of time (seconds, once a process); what fails here is reported by `verify`."""
    with contextlib.suppress(ImportError, ValueError):
        _scorer(str(task.meta.get("dataset")))


@lru_cache(maxsize=128)
def _scorer(name: str) -> Callable[..., float]:
    from reasoning_gym import get_score_answer_fn

    scorer: Callable[..., float] = get_score_answer_fn(name)
    return scorer


def _score(score: Callable[..., float], answer: str, entry: dict[str, Any]) -> Verdict:
    try:
        reward = min(1.0, max(0.0, float(score(answer=answer, entry=entry))))
    except Exception as error:  # the scorers parse the answer by hand and raise whatever they meet
        return Verdict(0.0, answer, f"the scorer refused it: {type(error).__name__}")
    return Verdict(reward, answer, "" if reward >= 1 else "not the gold answer" if reward < 0.5 else "partly right")


def _answer(text: str, form: str, gold: str) -> Extraction:
    """The region as written; for a gold answer of k lines without a box or tag, the last k lines."""
    found = extract_answer(text, form)
    lines = len(gold.strip().splitlines())
    if lines < 2 or found.source in ("tag", "box"):
        return _unquoted(found)
    kept = [line for line in text.rstrip().splitlines() if not line.strip().startswith("```")]
    block = "\n".join(kept[-lines:])
    return Extraction(block, block, source="final line") if block.strip() else found


def _unquoted(found: Extraction) -> Extraction:
    region = found.region.strip().strip("*$`").strip()
    return Extraction(found.answer and region, region, found.why, found.source)
