"""Multiple choice: the letter of the option, or the option's own text.

"B", "(B)", "B.", "B) text", "**B**", "\\\\boxed{\\\\text{B}}", "the answer is b": all are B.
"I don't know" is no I, "A dog barks" is no A, and "B or C" is neither. Options may speak of letters, signs and several
sentences: "D. A and B" is D where this is the text of D, and "B. F. Skinner" is no B where it is the text of another.
"""

from __future__ import annotations

import re

from ..task import Task
from . import latex
from .extract import extract_answer
from .verdict import Verdict


def verify(gold: str, text: str, task: Task, form: str = "free") -> Verdict:
    """Judge a reply to a multiple-choice question; `task.choices` lets an option's own text count."""
    wanted = letter(gold, task.choices, leading=True)
    if wanted is None:
        return Verdict(None, why=f"the gold answer {gold[:40]!r} names no option")
    found = extract_answer(text, form)
    if found.answer is None:
        return Verdict(0.0, why=found.why)
    leading = found.source != "final line"
    given = _named(found.line, task.choices) or letter(found.region, task.choices, leading)
    if given is None:
        return Verdict(0.0, found.region, "no option in the answer")
    return Verdict(1.0, given) if given == wanted else Verdict(0.0, given, "another option")


_ONLY = re.compile(r"\W*([A-Za-z])\W*", re.ASCII)
_FIRST = re.compile(
    r"(?i:(?:option|choice|answer)\s*(?:is)?\s*:?\s*)?[\s(\[*_]*([A-Z])"
    r"(?:[)\].:,*_。]|\s+(?=[A-Z(]|non\b|not\b|不)|\s*$|(?=[^\x00-\x7f]))"
)
_SEVERAL = re.compile(r"(?<![\w'])\(?[A-Z]\)?\s*(?:,|/|or|and|&)\s*(?:or\s|and\s)?\s*\(?[A-Z]\)?(?![\w'])")
_SPOKEN = re.compile(r"(?:option|choice|answer|est|is|:)\s*[(\[*_]*([A-Z])(?![A-Za-z0-9'’])")


def letter(text: str, choices: tuple[str, ...] = (), leading: bool = True) -> str | None:
    """The letter of the option that a text names; None when it names none.

    Args:
        choices: the options; with them an option's own text names it, and letters beyond the last one do not count.
        leading: the text is the answer itself, so a lower-case letter may name an option.
    """
    named = _named(text, choices)
    if named is not None:
        return named
    cleaned = latex.clean(text).strip("*_ ")
    if _SEVERAL.search(cleaned):
        return None
    only = _ONLY.fullmatch(cleaned)
    if only and (leading or only.group(1).isupper()):
        return _within(only.group(1).upper(), choices)
    first = _FIRST.match(cleaned)
    if first:
        return _within(first.group(1), choices)
    spoken = _SPOKEN.findall(cleaned)
    return _within(spoken[-1], choices) if spoken else None


def _within(found: str, choices: tuple[str, ...]) -> str | None:
    return found if not choices or ord(found) - ord("A") < len(choices) else None


def _named(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the option that a text is, as it stands, with its letter, or in other dress."""
    if not text.strip() or not choices:
        return None
    cleaned = latex.clean(text).strip("*_ ")
    return _as_written(text, choices) or _as_shown(cleaned, choices) or _by_text(cleaned, choices)


def _as_written(text: str, choices: tuple[str, ...]) -> str | None:
    """The option that is written as it stands, longer than a letter: `~B` is another option than `B`."""
    plain = " ".join(_TEXT.sub(r"\1", text).split())
    same = [index for index, option in enumerate(choices) if " ".join(option.split()) == plain != plain[:1]]
    return chr(ord("A") + same[0]) if len(same) == 1 else None


_TEXT = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}")
_SHOWN = re.compile(r"[\W_]*([A-Z])(?:[\W_]+(.*))?", re.ASCII | re.DOTALL)


def _as_shown(cleaned: str, choices: tuple[str, ...]) -> str | None:
    """The letter alone or before its own option, also where options speak of letters: of `D. A and B` it is D."""
    shown = _SHOWN.fullmatch(cleaned)
    position = ord(shown.group(1)) - ord("A") if shown else len(choices)
    if shown is None or position >= len(choices):
        return None
    letter, text = shown.groups()
    return letter if not text or _by_text(text, choices[position : position + 1]) else None


def _by_text(text: str, choices: tuple[str, ...]) -> str | None:
    """The option of the same words, or where none or several have these the one of the same signs."""
    cleaned = latex.clean(text)
    plain = latex.words(cleaned)
    options = [latex.clean(option) for option in choices]
    same = [index for index, option in enumerate(options) if plain and latex.words(option) == plain]
    if len(same) != 1:
        same = [index for index, option in enumerate(options) if latex.squeeze(option) == latex.squeeze(cleaned)]
    return chr(ord("A") + same[0]) if len(same) == 1 else None
