"""A verifier of your own: half for naming the order, half for keeping to 40 words.

    pilotfish tasks examples/judged/held_out.jsonl --set verifier=examples/own_verifier.py:within_limits

`task` brings the row's other fields in `task.meta`; leave the parameter out where gold answer and text are enough.
"""

from __future__ import annotations

from pilotfish import Task, Verdict

MOST_WORDS = 40


def within_limits(gold: str, text: str, task: Task) -> Verdict:
    """What code can tell of a summary; whether it is a good one takes a judge."""
    named, words = str(task.meta["order"]) in text, len(text.split())
    brief = 0 < words <= MOST_WORDS
    faults = ["the order is not named"] * (not named) + [f"{words} words"] * (not brief)
    return Verdict(0.5 * named + 0.5 * brief, extracted=f"{words} words", why="; ".join(faults))
