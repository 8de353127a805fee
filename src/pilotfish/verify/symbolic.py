"""The last resort: read two formulas with math-verify's parser and compare their values at high precision.

Formulas without variables are compared to 40 digits, relative to their size (1/2004! is not 1/2006!); formulas with
variables at several points. Nothing here is bounded in time or memory: `pool` runs it in processes that can be killed.
"""

from __future__ import annotations

import re
import zlib
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig

from .latex import to_latex
from .number import Number, read_number, rounds_to

_AS_WRITTEN = NormalizationConfig(malformed_operators=True, boxed="none")
_CASE_MATTERS = ConversionConfig(lowercase_symbols=False)
DIGITS = 40
_TOLERANCE = sympy.Float(10, DIGITS) ** -25
_WRITTEN_TOLERANCE = sympy.Float(10, DIGITS) ** -12
_POINTS = 4


def equal(kind: str, gold: str, answer: str) -> bool:
    """Whether two cleaned formulas are equal; one that cannot be read or computed with equals nothing."""
    try:
        if kind == "value":
            first, second = read(gold), read(answer)
            return first is not None and second is not None and _same_expression(first, second, gold, answer)
        return _proportional(gold, answer, ordered=kind == "relation")
    except MemoryError:
        raise
    except Exception:  # sympy raises whatever a senseless formula makes it meet
        return False


def prepare(text: str) -> None:
    """Read a formula and evaluate it; later comparisons find both done."""
    expression = read(text)
    if isinstance(expression, sympy.Expr):
        for point in range(_POINTS if expression.free_symbols else 1):
            _at(expression, point)


@lru_cache(maxsize=512)
def read(text: str) -> Any:
    """A cleaned formula as a sympy object; None when it cannot be read."""
    number = read_number(text)
    if number is not None and not number.unit:
        return sympy.Rational(number.value.numerator, number.value.denominator)
    try:
        return latex2sympy(to_latex(text), normalization_config=_AS_WRITTEN, conversion_config=_CASE_MATTERS)
    except MemoryError:
        raise
    except Exception:  # the parser raises plain Exceptions, and sympy whatever it met
        return None


def _same_expression(first: Any, second: Any, gold: str, answer: str) -> bool:
    if isinstance(first, sympy.MatrixBase | sympy.MatrixExpr) or isinstance(
        second, sympy.MatrixBase | sympy.MatrixExpr
    ):
        return _same_matrix(first, second)
    if not (isinstance(first, sympy.Expr) and isinstance(second, sympy.Expr)):
        return bool(first == second)
    if first == second:
        return True
    if first.free_symbols or second.free_symbols:
        return _same_function(first, second) or _same_function(_imaginary(first), _imaginary(second))
    return _same_constant(first, second, gold, answer)


def _same_matrix(first: Any, second: Any) -> bool:
    try:
        difference = (first.doit() - second.doit()).doit()
        return bool(difference.is_zero_matrix)
    except (TypeError, ValueError, AttributeError):
        return False


def _imaginary(expression: Any) -> Any:
    return expression.subs({symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"})


@lru_cache(maxsize=2048)
def _at(expression: Any, point: int = 0, digits: int = DIGITS) -> Any:
    """The value at one of the points; None when there is none."""
    values = {symbol: _coordinate(str(symbol), point) for symbol in expression.free_symbols}
    try:
        value = expression.evalf(digits, subs=values) if values else None
        if value is None or not value.is_number:
            value = sympy.N(expression.subs(values).doit(), digits)
    except MemoryError:
        raise
    except Exception:  # no value here, whatever the reason
        return None
    return value if value.is_number and value.is_finite else None


def _coordinate(name: str, point: int) -> Any:
    """Where a variable stands at a point: it depends on its name alone, so a gold answer is evaluated once."""
    seed = zlib.crc32(name.encode())
    share = sympy.Float(seed % 9973 + 1, DIGITS) / 9974
    return (1 + share, sympy.Integer(2 + seed % 9), -share - sympy.Rational(1, 2), share * (-1) ** (seed >> 16))[point]


def _close(first: Any, second: Any, tolerance: Any) -> bool:
    return bool(abs(first - second) <= tolerance * max(abs(first), abs(second)))


def _agree(first: Any, second: Any, point: int, tolerance: Any) -> bool | None:
    """Whether two values are one; None where one is missing, or only one of them is real."""
    one, two = _at(first, point), _at(second, point)
    if one is None or two is None or one.is_real != two.is_real:
        return None
    if one == 0 or two == 0:
        return _vanishes(first, point) and _vanishes(second, point)
    return _close(one, two, tolerance)


def _vanishes(expression: Any, point: int) -> bool:
    """Whether a value is 0: what is left of it is rounding, which shrinks with more digits, as 10^{-60} does not."""
    rough, fine = _at(expression, point), _at(expression, point, 2 * DIGITS)
    return rough is not None and (rough == 0 or (fine is not None and bool(abs(fine) < abs(rough) * _TOLERANCE)))


def _same_constant(first: Any, second: Any, gold: str, answer: str) -> bool:
    tolerance = _WRITTEN_TOLERANCE if first.has(sympy.Float) or second.has(sympy.Float) else _TOLERANCE
    if _agree(first, second, 0, tolerance):
        return True
    return _rounded(_at(first), read_number(answer)) or _rounded(_at(second), read_number(gold))


def _rounded(value: Any, written: Number | None) -> bool:
    if written is None or value is None or not value.is_real:
        return False
    exact = sympy.Rational(value)
    return rounds_to(Fraction(int(exact.p), int(exact.q)), written)


def _same_function(first: Any, second: Any) -> bool:
    """Equal wherever both have a value, and at two points at least."""
    found = [_agree(first, second, point, _WRITTEN_TOLERANCE) for point in range(_POINTS)]
    return False not in found and found.count(True) >= 2


def _proportional(gold: str, answer: str, ordered: bool) -> bool:
    """Two equations are one when their differences of sides have a constant ratio; of inequalities a positive one."""
    first, second = _difference(gold, ordered), _difference(answer, ordered)
    if first is None or second is None or first[0] != second[0]:
        return False
    if not first[1].free_symbols or first[1].free_symbols != second[1].free_symbols:
        return False
    values = [(_at(first[1], point), _at(second[1], point)) for point in range(_POINTS)]
    ratios = [one / two for one, two in values if one and two]
    if len(ratios) < 3 or not all(_close(ratio, ratios[0], _WRITTEN_TOLERANCE) for ratio in ratios):
        return False
    return bool(ratios[0].is_real) and (not ordered or bool(ratios[0] > 0))


def _difference(text: str, ordered: bool) -> tuple[str, Any] | None:
    signs = r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|\\ne(?![A-Za-z])|<|>" if ordered else "="
    sides, found = re.split(signs, text), re.findall(signs, text)
    if len(sides) != 2:
        return None
    left, right = read(sides[0].strip()), read(sides[1].strip())
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return None
    sign = found[0]
    if sign in ("\\ge", ">"):
        left, right, sign = right, left, {"\\ge": "\\le", ">": "<"}[sign]
    return sign, left - right
