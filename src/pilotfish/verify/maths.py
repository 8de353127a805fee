"""Are two mathematical answers one answer? Spelling decides first, then numbers, then shape, and algebra what is left.

    verify("\\\\frac{1}{2}", "So it is \\\\boxed{0.5}", task, "free").reward == 1.0

The first three need microseconds and run anywhere (`quick`). Algebra can take any time: it runs in worker processes
(`pool`), and what could only blow up (long, deep, towers of powers) is not handed to it at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..task import Task
from . import latex
from .extract import MAX_ANSWER, Extraction, bare, extract_answer, last_boxes
from .number import read_number, same_number
from .shape import SIGN, Shape, as_list, read_shape
from .verdict import Verdict

Algebra = Callable[[str, str, str], bool]
"""(question kind, gold, answer) -> equal; the kind is `value`, `equation` or `relation`."""


class NeedsAlgebraError(Exception):
    """Spelling, numbers and shape do not decide; a worker has to."""


class TooLargeError(ValueError):
    """A formula that is not evaluated at all; the message says why."""


def verify(gold: str, text: str, task: Task, form: str = "free") -> Verdict:
    """Judge a reply against one gold answer, algebra included, in this process and without a time limit."""
    return _verify(gold, text, task, form, _algebra)


def quick(gold: str, text: str, task: Task, form: str = "free") -> Verdict | None:
    """The same without algebra; None when algebra is needed."""
    try:
        return _verify(gold, text, task, form, _refuse)
    except NeedsAlgebraError:
        return None


def prepare(gold: str) -> None:
    """Do all that depends on the gold answer alone, so that its own cost is told from an answer's."""
    from . import symbolic

    for text in _leaves(read_shape(latex.clean(gold_answer(gold)))):
        if not latex.is_prose(text) and read_number(text) is None and _obstacle(text) is None:
            symbolic.prepare(text)


def gold_answer(gold: str) -> str:
    """A gold answer may be a whole solution; then its box, or what follows "answer is", counts."""
    if "boxed" in gold or len(gold) > 300:
        found = extract_answer(gold)
        return found.answer or gold
    return gold


def _verify(gold: str, text: str, task: Task, form: str, algebra: Algebra) -> Verdict:
    if not gold.strip():
        return Verdict(None, why="the gold answer is empty")
    found = extract_answer(text, form)
    if found.answer is None:
        return Verdict(0.0, why=found.why)
    try:
        equal = same(gold_answer(gold), found, algebra, "percent" in task.question.lower() or "%" in task.question)
    except TooLargeError as error:
        return Verdict(None if _obstacle(latex.clean(gold_answer(gold))) else 0.0, found.answer, str(error))
    return Verdict(1.0, found.answer) if equal else Verdict(0.0, found.answer, "not equal to the gold answer")


def same(gold: str, found: Extraction, algebra: Algebra, percent_asked: bool = False) -> bool:
    """Whether an extracted answer is the gold answer: its short form is tried, then its whole region."""
    readings = dict.fromkeys(latex.clean(text) for text in (found.answer, found.region) if text)
    wanted = latex.clean(gold)
    compare = _Comparison(algebra, percent_asked)
    if any(latex.squeeze(reading) == latex.squeeze(wanted) or _is_option(wanted, reading) for reading in readings):
        return True
    return any(compare.texts(wanted, reading) for reading in readings)


def equivalent(first: str, second: str) -> bool:
    """Whether two bare answers are one answer, whichever of them is taken for the gold one."""
    try:
        return all(_matches(gold, answer) for gold, answer in ((first, second), (second, first)))
    except TooLargeError:
        return False


def _matches(gold: str, answer: str) -> bool:
    return same(gold_answer(gold), bare(last_boxes(answer) or answer, "bare"), _algebra)


def _algebra(kind: str, gold: str, answer: str) -> bool:
    from . import symbolic

    return symbolic.equal(kind, gold, answer)


def _refuse(kind: str, gold: str, answer: str) -> bool:
    raise NeedsAlgebraError


_TOWER = re.compile(r"\^\s*\{?\s*\(?\s*-?\d+\s*\)?\s*\^\s*\{?\s*\(?\s*-?\d*\s*\)?\s*\^|(?:\*\*\s*\d+\s*){3}")


def _obstacle(text: str) -> str | None:
    """Why a formula is not handed to algebra; None when it may be."""
    if len(text) > MAX_ANSWER // 2:
        return f"a formula of {len(text)} characters is not evaluated"
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > 30:
        return f"brackets {deepest} deep are not evaluated"
    return "a tower of powers is not evaluated" if _TOWER.search(text.replace(" ", "")) else None


def _leaves(shape: Shape) -> list[str]:
    return [leaf for part in shape.parts for leaf in _leaves(part)] if shape.parts else [shape.text]


class _Comparison:
    """Compares two shapes; holds what every step needs."""

    def __init__(self, algebra: Algebra, percent_asked: bool) -> None:
        self.algebra = algebra
        self.percent_asked = percent_asked

    def texts(self, gold: str, answer: str) -> bool:
        first, second = read_shape(gold), read_shape(answer)
        if self.shapes(first, second):
            return True
        if "," not in gold + answer or "value" not in (first.kind, second.kind):
            return False
        one, two = as_list(gold) or first, as_list(answer) or second
        return one.kind == two.kind == "list" and ", " not in gold + answer and self.shapes(one, two)

    def shapes(self, gold: Shape, answer: Shape) -> bool:
        if gold.text and latex.squeeze(gold.text) == latex.squeeze(answer.text):
            return True
        if "named" in (gold.kind, answer.kind):
            return self._named(gold, answer)
        kinds = {gold.kind, answer.kind}
        if kinds <= {"list", "set"} or kinds == {"union"}:
            return self._unordered(gold.parts, answer.parts)
        if kinds in ({"list", "tuple"}, {"tuple"}, {"matrix"}):
            return self._ordered(gold, answer)
        if kinds == {"relation"}:
            return self._relation(gold, answer)
        if kinds == {"equation"}:
            return self._ask("equation", gold.text, answer.text)
        if kinds == {"value", "set"} or kinds == {"value", "list"}:
            return self._plus_minus(gold, answer)
        if "value" in kinds and kinds & {"tuple", "matrix"} and "matrix}" in gold.text + answer.text:
            return self._ask("value", gold.text, answer.text)
        return kinds == {"value"} and self._value(gold.text, answer.text)

    def _named(self, gold: Shape, answer: Shape) -> bool:
        first = gold.parts[0] if gold.kind == "named" else gold
        second = answer.parts[0] if answer.kind == "named" else answer
        if gold.kind == answer.kind == "named":
            same_name = gold.name == answer.name or not gold.name or not answer.name
            if same_name and self.shapes(first, second):
                return True
            return self._two_equations(gold, answer)
        if "equation" in (gold.kind, answer.kind):
            return self._two_equations(gold, answer)
        if "relation" in (gold.kind, answer.kind):
            return self._relation(gold, answer)
        return self.shapes(first, second)

    def _two_equations(self, gold: Shape, answer: Shape) -> bool:
        both = gold.text.count("=") == answer.text.count("=") == 1
        letters = re.findall("[A-Za-z]", gold.text.split("=")[-1] + answer.text.split("=")[-1])
        return both and bool(letters) and self._ask("equation", gold.text, answer.text)

    def _unordered(self, gold: tuple[Shape, ...], answer: tuple[Shape, ...]) -> bool:
        """Each element of one has its equal in the other, both ways: repeats and order do not count."""
        forward = all(any(self.shapes(one, other) for other in answer) for one in gold)
        return forward and all(any(self.shapes(one, other) for one in gold) for other in answer)

    def _ordered(self, gold: Shape, answer: Shape) -> bool:
        if len(gold.parts) != len(answer.parts):
            return False
        if gold.kind == answer.kind == "tuple" and gold.name != answer.name:
            return False
        return all(self.shapes(one, other) for one, other in zip(gold.parts, answer.parts, strict=True))

    def _relation(self, gold: Shape, answer: Shape) -> bool:
        if gold.kind == answer.kind and gold.name == answer.name and len(gold.parts) == len(answer.parts):
            pairs = zip(gold.parts, answer.parts, strict=True)
            if all(self.shapes(one, other) for one, other in pairs):
                return True
        return all(len(SIGN.findall(side.text)) == 1 for side in (gold, answer)) and self._ask(
            "relation", gold.text, answer.text
        )

    def _plus_minus(self, gold: Shape, answer: Shape) -> bool:
        """A lone value against a set: only `\\pm a` is a set, and a set of one element is its element."""
        value, other = (gold, answer) if gold.kind == "value" else (answer, gold)
        if "\\pm" in value.text:
            sides = tuple(read_shape(value.text.replace("\\pm", sign).strip(" +")) for sign in "+-")
            return self._unordered(sides, other.parts)
        return len(other.parts) == 1 and self.shapes(value, other.parts[0])

    def _value(self, gold: str, answer: str) -> bool:
        based = _same_digits(gold, answer)
        if based is not None:
            return based
        one, other = read_number(gold), read_number(answer)
        if one is not None and other is not None:
            return same_number(one, other, self.percent_asked)
        if _same_words(gold, answer):
            return True
        if latex.is_prose(gold) or latex.is_prose(answer):
            return False
        return self._ask("value", gold, answer)

    def _ask(self, kind: str, gold: str, answer: str) -> bool:
        if gold.count("'") != answer.count("'"):
            return False
        obstacle = _obstacle(gold) or _obstacle(answer)
        if obstacle:
            raise TooLargeError(obstacle)
        return self.algebra(kind, gold, answer)


_OPTION = re.compile(r"\(?([A-Z])\)?\s*[.:)]\s.*", re.DOTALL)


def _is_option(gold: str, answer: str) -> bool:
    """A gold answer that is a lone letter may come back as its option ("C. x = 42")."""
    option = _OPTION.fullmatch(answer) if len(gold) == 1 else None
    return option is not None and option.group(1) == gold


def _same_words(gold: str, answer: str) -> bool:
    letters = re.search(r"[^\W\d_]{2,}", gold) and not re.search(r"[\\^=<>]|\d", gold + answer)
    return bool(letters) and latex.words(gold) == latex.words(answer) != ""


_BASED = re.compile(r"([0-9A-F]+)(?:\s*_\s*\{?\s*(\d+)\s*\}?)?")


def _same_digits(gold: str, answer: str) -> bool | None:
    """Numbers written in a base (`101_2`): the same digits, and no other base; None when neither has one."""
    one, other = _BASED.fullmatch(gold), _BASED.fullmatch(answer)
    if one is None or other is None or not (one[2] or other[2]):
        return None
    return one[1].lstrip("0") == other[1].lstrip("0") and (one[2] or other[2]) == (other[2] or one[2])
