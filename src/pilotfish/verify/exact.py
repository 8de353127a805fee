"""Exact answers: the same text, but for case, spaces, quotes, markdown and a final full stop. `(A)` is `A`."""

from __future__ import annotations

import re
import unicodedata

from ..task import Task
from .extract import extract_answer
from .verdict import Verdict


def verify(gold: str, text: str, task: Task, form: str = "free") -> Verdict:
    """Judge a reply whose answer has to be the gold text."""
    if not gold.strip():
        return Verdict(None, why="the gold answer is empty")
    found = extract_answer(text, form)
    if found.answer is None:
        return Verdict(0.0, why=found.why)
    if same(gold, found.region) or same(gold, found.answer):
        return Verdict(1.0, found.region)
    return Verdict(0.0, found.region, "not the gold text")


def same(first: str, second: str) -> bool:
    """Whether two texts are the same once normalised."""
    return normal(first) == normal(second)


def normal(text: str) -> str:
    """The text as it is compared."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}", r"\1", text)
    text = " ".join(text.split()).strip("*_`\"'“”‘’$ ")
    text = text.rstrip(".。!").strip("*_`\"'“”‘’$ ")
    lone = re.fullmatch(r"\((\w)\)", text)
    return lone.group(1) if lone else text
