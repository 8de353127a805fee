"""Exact answers: the same text, but for case, quotes, markdown, a final full stop, and how a list is set.

`(A)` is `A`, `b, a` is `b a` and no `a b`, `] )` is `])`. Where the task's choices are the few words that may be the
answer, a reply may say one of them in a sentence: "No, it does not" is No, "the argument is valid" is valid; "not
valid", "yes or no" and "unclear whether it is valid" are none.
"""

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
    found = extract_answer(text if re.search(r"\w", gold) else _BOXED_SIGNS.sub(r"\n\1\n", text), form)
    if found.answer is None:
        return Verdict(0.0, why=found.why)
    if any(same(gold, choice) for choice in task.choices):
        given = named(found.region, task.choices)
        if given is None:
            return Verdict(0.0, found.region, f"not one of {', '.join(task.choices)}")
        return Verdict(1.0, given) if same(gold, given) else Verdict(0.0, given, "another of the words")
    if same(gold, found.region) or same(gold, found.answer):
        return Verdict(1.0, found.region)
    return Verdict(0.0, found.region, "not the gold text")


# A box around signs alone: braces among them do not end it, so it is read to the last brace of the run.
_BOXED_SIGNS = re.compile(r"\\boxed\s*\{([^\w\n]*)\}")


def same(first: str, second: str) -> bool:
    """Whether two texts are the same once normalised."""
    return normal(first) == normal(second)


def normal(text: str) -> str:
    """The text as it is compared."""
    text = _plain(text)
    lone = re.fullmatch(r"\(\s?(\w)\s?\)", text)
    listed = re.sub(r"\s?[,;]\s", " ", text)
    return lone.group(1) if lone else re.sub(r"\s?([()\[\]{}<>])\s?", r"\1", listed)


def _plain(text: str) -> str:
    """Lower case, without dressing: LaTeX's and Markdown's fonts, quotes around it, a final full stop."""
    text = unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)
    text = re.sub(r"\\(?:text(?:bf|it|rm|tt|sf)?|math(?:rm|bf|tt)|mbox)\{([^{}]*)\}", r"\1", text)
    text = " ".join(re.sub(r"\\([{}&_#%])", r"\1", text).split()).strip(_AROUND)
    return text.rstrip(".。!").strip(_AROUND)


_AROUND = "*_`\"'“”$ "
_APOSTROPHES = str.maketrans("‘’", "''")
_BEFORE = r"(?:^|[:=]\s?|\b(?:is|are|be|answer|deductively)\s)"
_HEDGE = re.compile(r"\b(?:not|never|cannot|n?either|nor|or|whether|if|unless|unclear|unsure|maybe|perhaps)\b|n't\b")


def named(text: str, choices: tuple[str, ...]) -> str | None:
    """The one choice that an answer is, opens with or ends in; None where it names none, several, or hedges."""
    plain = re.sub(r"[*_`]", "", _plain(text))
    words = {choice: re.escape(_plain(choice)) for choice in choices}
    found = [choice for choice in choices if same(choice, text)]
    found = found or [choice for choice, word in words.items() if re.search(rf"(?<!\w){word}(?!\w)", plain)]
    if len(found) != 1:
        return None
    word = words[found[0]]
    if re.match(rf"{word}(?:$|\s?[,.;—])", plain):
        return found[0]
    told = re.search(rf"{_BEFORE}{word}$", plain) is not None and _HEDGE.search(plain) is None
    return found[0] if told else None
