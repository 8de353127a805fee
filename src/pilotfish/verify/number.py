"""Numbers as people write them: `1,000.5`, `-2 1/3`, `\\frac{3}{4}`, `1.5 \\times 10^{3}`, `33.5%`, `15 cm^2`, `72°`.

`read_number` needs no symbolic algebra and takes microseconds; `same_number` says when two of them are one answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from .latex import FUNCTIONS

MAX_DIGITS = 600
"""Longer digit strings are compared as text."""
MAX_EXPONENT = 1_000
"""Powers of ten beyond this are not multiplied out."""


@dataclass(frozen=True, slots=True)
class Number:
    """A rational number with what was written around it."""

    value: Fraction
    decimals: int = 0
    """Digits after the decimal point as written; 0 for whole numbers and fractions."""
    digits: int = 0
    """Significant digits as written."""
    percent: bool = False
    unit: str = ""


_INT = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
_DEC = rf"(?:{_INT})(?:\.\d*)?|\.\d+"
_POWER = r"\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*\{?\s*(?P<power>[-+]?\d{1,6})\s*\}?|[eE](?P<exp>[-+]?\d{1,6})"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)\s*[£€¥]?\s*(?:"
    rf"(?P<whole>\d{{1,30}})\s*\\frac\s*(?:\{{\s*(?P<mn>\d+)\s*\}}\s*\{{\s*(?P<md>\d+)\s*\}}|(?P<mn1>\d)(?P<md1>\d))"
    rf"|(?P<whole2>\d{{1,30}})\s+(?P<mn2>\d+)\s*/\s*(?P<md2>\d+)"
    rf"|\\frac\s*(?:\{{\s*(?P<fn>[-+]?(?:{_DEC}))\s*\}}\s*\{{\s*(?P<fd>[-+]?(?:{_DEC}))\s*\}}|(?P<fn1>\d)\s*(?:\{{(?P<fdb>\d+)\}}|(?P<fd1>\d)))"
    rf"|\(?(?P<n>{_DEC})\)?\s*(?:/|\\div)\s*(?:\((?P<dp>[-+]?\s*(?:{_DEC}))\)|(?P<d>{_DEC}))"
    rf"|(?P<dec>{_DEC})(?:{_POWER})?"
    rf")(?P<rest>.*)",
    re.DOTALL,
)
_PERCENT = re.compile(r"\s*(?:%|percent(?:age)?s?|pct|per cent)\s*$", re.IGNORECASE)
_DEGREE = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|degrees?|deg)(?=\s|$)", re.IGNORECASE)
_UNIT = re.compile(r"[A-Za-zµΩ\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3\\][\w .^{}/²³\\%'-]*")


@lru_cache(maxsize=8192)
def read_number(text: str) -> Number | None:
    """Read a cleaned answer as one number; None when it is something else."""
    if len(text) > MAX_DIGITS:
        return None
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and "(" not in text[1:-1] and "," not in text:
        text = text[1:-1].strip()
    text = _REPEATING.sub(_repeating, text)
    negative_group = re.fullmatch(r"-\s*\(([^()]*)\)", text)
    match = _NUMBER.fullmatch("-" + negative_group.group(1) if negative_group else text)
    if match is None:
        return None
    try:
        value, decimals, digits = _value(match)
    except (ZeroDivisionError, ValueError):
        return None
    return _with_unit(value * (-1 if match["sign"] == "-" else 1), decimals, digits, match["rest"])


_REPEATING = re.compile(r"(?P<before>\d{0,30})\.(?P<fixed>\d{0,30})\\overline\s*\{?(?P<again>\d{1,30})\}?")


def _repeating(match: re.Match[str]) -> str:
    """`0.1\\overline{6}` as the fraction it is."""
    fixed, again = match["fixed"], match["again"]
    scale = 10 ** len(fixed)
    value = Fraction(int((match["before"] or "0") + fixed), scale)
    value += Fraction(int(again), scale * (10 ** len(again) - 1))
    return f"{value.numerator}/{value.denominator}"


def _value(match: re.Match[str]) -> tuple[Fraction, int, int]:
    found = match.groupdict()
    for whole, top, bottom in (("whole", "mn", "md"), ("whole", "mn1", "md1"), ("whole2", "mn2", "md2")):
        if found[top] is not None:
            return Fraction(int(found[whole])) + Fraction(int(found[top]), int(found[bottom])), 0, 0
    for top, bottom in (("fn", "fd"), ("fn1", "fdb"), ("fn1", "fd1"), ("n", "dp"), ("n", "d")):
        if found[top] is not None and found[bottom] is not None:
            return _decimal(found[top]) / _decimal(found[bottom]), 0, 0
    power = int(found["power"] or found["exp"] or 0)
    if abs(power) > MAX_EXPONENT:
        raise ValueError("exponent")
    text = found["dec"].replace(",", "")
    decimals = len(text.partition(".")[2])
    digits = len(text.replace(".", "").lstrip("0"))
    return _decimal(text) * Fraction(10) ** power, max(0, decimals - power), digits


def _decimal(text: str) -> Fraction:
    text = text.replace(",", "").replace(" ", "")
    return Fraction(text + "0" if text.endswith(".") else text)


def _with_unit(value: Fraction, decimals: int, digits: int, rest: str) -> Number | None:
    percent = _PERCENT.match(rest)
    if percent:
        return Number(value / 100, decimals + 2 if decimals else 0, digits, percent=True)
    rest = re.sub(r"^\s*_\s*\{?\s*(?:10)\s*\}?", "", rest)
    degree = _DEGREE.match(rest)
    unit = rest[degree.end() :] if degree else rest
    if not unit.strip():
        return Number(value, decimals, digits, unit="degree" if degree else "")
    if not degree and not _is_unit(unit):
        return None
    return Number(value, decimals, digits, unit=_unit_name(unit))


_KNOWN = {
    "cm": "centimeter", "mm": "millimeter", "km": "kilometer", "m": "meter", "ft": "foot", "feet": "foot", "in": "inch",
    "inches": "inch", "yd": "yard", "mi": "mile", "kg": "kilogram", "g": "gram", "mg": "milligram", "lb": "pound",
    "lbs": "pound", "oz": "ounce", "s": "second", "sec": "second", "h": "hour", "hr": "hour", "hrs": "hour",
    "min": "minute", "mins": "minute", "ms": "millisecond", "L": "liter", "l": "liter", "ml": "milliliter",
    "mL": "milliliter", "mph": "mph", "kph": "kph", "kmh": "kph", "N": "newton", "J": "joule", "W": "watt", "V": "volt",
    "A": "ampere", "K": "kelvin", "Pa": "pascal", "Hz": "hertz", "eV": "electronvolt", "am": "am", "pm": "pm",
    "metre": "meter", "litre": "liter", "cents": "cent", "usd": "dollar", "dollars": "dollar", "rad": "radian",
    "yr": "year", "yrs": "year", "kcal": "kilocalorie", "cal": "calorie",
    "kJ": "kilojoule", "kW": "kilowatt", "nm": "nanometer", "mol": "mole", "sq": "square", "cc": "cc", "rpm": "rpm",
}  # fmt: skip


def _is_unit(text: str) -> bool:
    """Words after a number that name what is counted: `apples`, `square feet`, `m/s`, and never a variable."""
    spaced = text[:1].isspace()
    text = text.strip()
    if not _UNIT.fullmatch(text):
        return False
    parts = re.findall(r"[^\W\d_]+", re.sub(r"\\circ", "", text))
    if not parts or any(part.lower() in FUNCTIONS | {"pi", "and", "or"} for part in parts):
        return False
    if "\\" in text or re.search(r"\^\s*\{?\s*[^\d\s{}-]", text):
        return False
    known = all(
        part in _KNOWN or part.rstrip("s") in _KNOWN or len(part) > 2 or ord(part[0]) > 0x3000 for part in parts
    )
    single = len(parts) == 1 and len(parts[0]) == 1 and ord(parts[0][0]) < 0x3000
    return known and (spaced or not single)


def _unit_name(text: str) -> str:
    first = re.findall(r"[^\W\d_]+|\^\{?-?\d", text.strip())
    return " ".join(_KNOWN.get(part, _KNOWN.get(part.rstrip("s"), part.lower().rstrip("s"))) for part in first)


def same_number(gold: Number, answer: Number, percent_asked: bool = False) -> bool:
    """Whether two numbers are one answer: equal, or a decimal that is the other one correctly rounded.

    Args:
        percent_asked: the question asks for a percentage, so a bare 50 stands for 50 %.
    """
    if gold.unit and answer.unit and _different_units(gold.unit, answer.unit):
        return False
    if same_value(gold, answer):
        return True
    if gold.percent and not answer.percent:
        return same_value(Number(gold.value * 100, max(0, gold.decimals - 2), gold.digits), answer)
    if percent_asked and answer.percent and not gold.percent:
        return same_value(gold, Number(answer.value * 100, max(0, answer.decimals - 2), answer.digits))
    return False


_NAMES = set(_KNOWN.values())


def _different_units(gold: str, answer: str) -> bool:
    first, second = gold.split(), answer.split()
    return first[0] != second[0] and first[0] in _NAMES and second[0] in _NAMES


def same_value(first: Number, second: Number) -> bool:
    """Equal, or one is a decimal that the other rounds to."""
    if first.value == second.value:
        return True
    return rounds_to(first.value, second) or rounds_to(second.value, first)


def rounds_to(value: Fraction, written: Number) -> bool:
    """Whether a decimal of at least four places and four digits is this value, rounded."""
    if written.decimals < 4 or written.digits < 4:
        return False
    unit = Fraction(1, 10**written.decimals)
    slack = unit / 2 if written.decimals < 8 else unit * 2
    if written.decimals >= 12:
        slack = max(slack, abs(value) / 10**14)
    return abs(value - written.value) <= slack
