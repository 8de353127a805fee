"""What of an agent's answer a leader reads: the whole of it, its reasoning, or its result; and no more than fits.

A text that is longer than its budget loses its middle, and says so: the beginning of a solution and its result stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from pilotfish.verify.extract import ANSWER_IS, extract_answer

if TYPE_CHECKING:
    from pilotfish.episode.turn import Turn

Share = Literal["full", "reasoning", "answer"]
"""`full`: the response; `reasoning`: without its result; `answer`: the result alone. Source: MLPO's ablation."""
ABSENT = "(no answer)"
NO_RESULT = "(no result)"
MARK = 40
"""Characters that the mark itself takes: no text is cut to save fewer."""


def shared(turn: Turn | None, share: Share, budget: int | None) -> str:
    """The part of an agent's words that is shown to others.

    Args:
        turn: the agent's turn; None, or an absent one, is shown as `ABSENT`.
        share: which part.
        budget: most tokens of it, counted as the agent's engine counts; None for no limit.

    Raises:
        ValueError: `share` or `budget` is no such value.
    """
    if share not in get_args(Share):
        raise ValueError(f"share is {share!r}; it is one of: {', '.join(get_args(Share))}")
    if budget is not None and (not isinstance(budget, int) or budget < 1):
        raise ValueError(f"budget is {budget!r}; give a number of tokens from 1, or null")
    if turn is None or not turn.answered:
        return ABSENT
    text = turn.text.strip()
    if share == "answer":
        return extract_answer(text).answer or NO_RESULT
    part = without_result(text) if share == "reasoning" else text
    return part if budget is None else cut(part, budget, _characters_per_token(turn))


def without_result(text: str) -> str:
    """A response without the span its answer was read from; what stands before and after stays."""
    found = extract_answer(text)
    span = found.region if found.source in ("box", "answer is") else found.answer
    if not span or span == text:
        return text
    if found.source == "answer is":  # the number may stand once more behind it
        begins = [match.end() for match in ANSWER_IS.finditer(text)]
        at = next((place for end in reversed(begins) if (place := text.find(span, end)) >= 0), -1)
    elif found.source == "box":
        at = text.rfind(f"{{{span}}}") + 1 or text.rfind(span)
    else:
        at = text.rfind(span)
    return f"{text[:at]}…{text[at + len(span) :]}" if at >= 0 else text


def cut(text: str, budget: int, characters_per_token: float) -> str:
    """A text without its middle, where it is longer than so many tokens; a mark says how much is gone."""
    room = max(2, int(budget * characters_per_token))
    if len(text) <= room + MARK:
        return text
    gone = round((len(text) - room) / characters_per_token)
    head = room // 2
    return f"{text[:head]}\n[… about {gone} tokens left out …]\n{text[len(text) - (room - head) :]}"


def _characters_per_token(turn: Turn) -> float:
    """Of this very answer; four where the engine counted nothing."""
    said = turn.usage.completion - turn.usage.reasoning
    return len(turn.text) / said if said > 0 and turn.text else 4.0
