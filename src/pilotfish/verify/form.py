"""Where a reply breaks the form it was asked for, in one short phrase: the same phrase for the same fault.

    form_fault("<think>2 + 2</think><answer>4</answer>", "answer_tag")        # None
    form_fault("<think>2 + 2</think><answer>4</answer> I hope", "answer_tag")   # "text after </answer>"

For a reward on form and for counters of faults. The verdict asks for less (`extract.py`): an answer without thinking
before it has a fault here, and may be right there.
"""

from __future__ import annotations

import re

from .extract import extract_answer


def form_fault(text: str, form: str) -> str | None:
    """What is wrong with the form of a reply; None where nothing is.

    Args:
        text: the reply.
        form: `answer_tag` wants `<think>…</think><answer>…</answer>` and nothing behind it; `free` wants nothing.

    Raises:
        ValueError: an unknown form.
    """
    found = extract_answer(text, form)
    if form == "free":
        return None
    opened, closed = text.rfind("<think>"), text.rfind("</think>")
    if opened > closed:
        return "<think> is not closed"
    if found.answer is None:
        early = 0 <= text.find("<answer>") < closed
        return "<answer> stands before </think>" if early else _LENGTH.sub("too long", found.why)
    if opened < 0:
        return "no <think>…</think> before <answer>"
    if text.count("<think>") > 1:
        return "more than one <think>"
    return None if _WHOLE.match(text) else "text outside <think> and <answer>"


_WHOLE = re.compile(r"\s*<think>.*</think>\s*<answer>", re.DOTALL | re.IGNORECASE)
_LENGTH = re.compile(r"\d+ characters long;.*")
