"""Which verifier suits the answers of a user's rows, and why.

proposal = propose(pairs)        # None: no rule can tell right from wrong here
proposal.verifier, proposal.why  # "maths", "601 of 604 answers are numbers"
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from string import ascii_uppercase

from pilotfish.benchmarks.benchmark import boxed
from pilotfish.start.pairs import MOST, Pair
from pilotfish.verify import exact, latex
from pilotfish.verify.number import read_number

WORDS = 12
"""Most different answers that are taken for the labels of a classification."""
TIMES = 5
"""How often each of these stands in the rows, on average, at least."""
SHORT = (5, 60)
"""A text of so many words and characters can be asked for word by word."""
SIGNS = re.compile(
    r"\\(?:[dt]?frac|sqrt|pi|infty|cup|le|ge|left|begin)(?![a-z])|[=^√π∞]|\d\s*[*/+-]\s*[\da-z]|[({\[]-?\d"
)
JUDGE = "judge"
WIDE = re.compile(r"[\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff01-\uff1f]")
DATE = re.compile(r"\d+(?:[.:/-]\d+){2,}")
"""A date, a time or a version: written with signs, and no formula."""
LETTER = re.compile(r"\W*([A-Ja-j])\W*")


@dataclass(frozen=True)
class Proposal:
    """A verifier for all answers."""

    verifier: str
    why: str
    pairs: Sequence[Pair]
    """With answers and options as the verifier wants them."""
    instruction: str | None = None
    """How the answer is to be written, where it is not the usual one of the verifier."""
    caution: str = ""
    """What it cannot do."""


def propose(known: Sequence[Pair]) -> Proposal | None:
    """The verifier that suits nearly all answers; None where none does."""
    return _options(known) or _letters(known) or _numbers(known) or _labels(known) or _formulas(known) or _short(known)


def as_told(known: Sequence[Pair], verifier: str) -> Proposal:
    """The verifier that the user wants, with the pairs as it takes them."""
    proposed = propose(known)
    if proposed is not None and proposed.verifier == verifier:
        return replace(proposed, why=f"--verifier; {proposed.why}")
    why = "a member, as told" if verifier == JUDGE else "--verifier"
    return Proposal(verifier, why, [replace(pair, choices=()) for pair in known])


def _options(known: Sequence[Pair]) -> Proposal | None:
    """Multiple choice whose options stand in columns of their own."""
    with_options = [pair for pair in known if len(pair.choices) >= 2]
    if len(with_options) < MOST * len(known):
        return None
    first = 1 if all(pair.answer.strip() != "0" for pair in with_options) else 0
    lettered = [replace(pair, answer=letter) for pair in with_options if (letter := _letter(pair, first))]
    if len(lettered) < MOST * len(known):
        return None
    return Proposal("choice", f"{_of(lettered, known)} name one of the row's options", lettered)


def _letter(pair: Pair, first: int) -> str | None:
    """The letter of the option that an answer is: its text, its letter, or its position counted from `first`."""
    answer, letters = pair.answer.strip(), ascii_uppercase[: len(pair.choices)]
    if answer in pair.choices:
        return letters[pair.choices.index(answer)]
    if answer.isdecimal() and 0 <= int(answer) - first < len(letters):
        return letters[int(answer) - first]
    match = LETTER.fullmatch(answer)
    return match[1].upper() if match and match[1].upper() in letters else None


def _letters(known: Sequence[Pair]) -> Proposal | None:
    """Multiple choice whose options stand in the question."""
    lettered = [pair for pair in known if LETTER.fullmatch(pair.answer)]
    if len(lettered) < MOST * len(known) or len({pair.answer for pair in lettered}) < 2:
        return None
    return Proposal("choice", f"{_of(lettered, known)} are the letter of an option", _plain(lettered))


def _numbers(known: Sequence[Pair]) -> Proposal | None:
    numbers = [pair for pair in known if read_number(latex.clean(pair.answer)) is not None]
    if len(numbers) < MOST * len(known):
        return None
    return Proposal("maths", f"{_of(numbers, known)} are numbers", _plain(numbers))


def _labels(known: Sequence[Pair]) -> Proposal | None:
    """A classification: few answers, each many times."""
    spellings = Counter(pair.answer.strip() for pair in known)
    labels = {exact.normal(spelling): spelling for spelling, _ in reversed(spellings.most_common())}
    if not 2 <= len(labels) <= WORDS or len(known) < TIMES * len(labels) or max(map(_words, labels)) > SHORT[0]:
        return None
    words = tuple(sorted(labels.values()))
    told = [replace(pair, answer=labels[exact.normal(pair.answer)], choices=words) for pair in known]
    return Proposal(
        "exact", f"the answers are {len(words)} labels: {', '.join(words)}", told, boxed(f"one of {', '.join(words)}")
    )


def _formulas(known: Sequence[Pair]) -> Proposal | None:
    """Numbers and formulas, and no prose."""
    formulas = [pair for pair in known if _is_formula(pair.answer.strip())]
    if len(formulas) < MOST * len(known):
        return None
    return Proposal("maths", f"{_of(formulas, known)} are numbers or formulas", _plain(formulas))


def _is_formula(text: str) -> bool:
    if read_number(latex.clean(text)) is not None:
        return True
    return bool(SIGNS.search(text)) and _words(text) < 9 and not DATE.fullmatch(text)


def _short(known: Sequence[Pair]) -> Proposal | None:
    """Names, dates and the like."""
    short = [pair for pair in known if _words(pair.answer) <= SHORT[0] and len(pair.answer) <= SHORT[1]]
    if len(short) < MOST * len(known):
        return None
    caution = "another wording of a right answer is a wrong one; a column alt_answers of lists may hold others"
    return Proposal("exact", f"{_of(short, known)} are a few words", _plain(short), caution=caution)


def by_judge(known: Sequence[Pair]) -> Proposal:
    """A member that reads each answer, where no rule can tell right from wrong."""
    lengths = [_words(pair.answer) for pair in known]
    long = f"half of the answers have {median(lengths):.0f} words or more, the longest {max(lengths):,}"
    return Proposal(JUDGE, f"{long}; no rule can judge them", _plain(known))


def _plain(known: Sequence[Pair]) -> list[Pair]:
    return [replace(pair, answer=pair.answer.strip(), choices=()) for pair in known]


def _words(text: str) -> int:
    """Words; where none is set apart, as in Chinese and Japanese, two signs for one."""
    return len(WIDE.sub(" ", text).split()) + (len(WIDE.findall(text)) + 1) // 2


def _of(those: Sequence[Pair], known: Sequence[Pair]) -> str:
    return f"all {len(known):,} answers" if len(those) == len(known) else f"{len(those):,} of {len(known):,} answers"
