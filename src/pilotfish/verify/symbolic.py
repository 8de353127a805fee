"""The last resort: read two formulas with the parser under math-verify and see whether they are equal, by value at high precision.

Formulas without variables are compared to 40 digits, relative to their size (1/2004! is not 1/2006!); formulas with
variables at several points. Nothing here is bounded in time or memory: `pool` runs it in processes that can be killed.
"""

from __future__ import annotations

import re
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
_POINTS = (
    (sympy.Rational(137, 100), sympy.Rational(271, 500), sympy.Rational(523, 300), sympy.Rational(89, 70)),
    (sympy.Integer(7), sympy.Integer(3), sympy.Integer(5), sympy.Integer(2)),
    (sympy.Rational(-137, 90), sympy.Rational(-61, 50), sympy.Rational(-223, 100), sympy.Rational(-17, 30)),
    (sympy.Rational(31, 100), sympy.Rational(-77, 60), sympy.Rational(19, 90), sympy.Rational(-113, 40)),
)


def equal(kind: str, gold: str, answer: str) -> bool:
    """Whether two cleaned formulas are equal; a formula that cannot be read equals nothing."""
    if kind == "value":
        first, second = read(gold), read(answer)
        return first is not None and second is not None and _same_expression(first, second, gold, answer)
    return _proportional(gold, answer, ordered=kind == "relation")


def prepare(text: str) -> None:
    """Read a formula and evaluate it once; later comparisons find both done."""
    expression = read(text)
    if expression is not None and isinstance(expression, sympy.Expr):
        _value(expression)


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
    if isinstance(first, sympy.MatrixBase | sympy.MatrixExpr) or isinstance(second, sympy.MatrixBase | sympy.MatrixExpr):
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


@lru_cache(maxsize=1024)
def _value(expression: Any) -> Any:
    """The value to `DIGITS` digits; None when it has none."""
    try:
        value = sympy.N(expression.doit(), DIGITS)
    except (TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError):
        return None
    return value if value.is_number and value.is_finite is not False else None


def _close(first: Any, second: Any, tolerance: Any) -> bool:
    size = max(abs(first), abs(second))
    return bool(size == 0 or abs(first - second) <= tolerance * size)


def _same_constant(first: Any, second: Any, gold: str, answer: str) -> bool:
    one, two = _value(first), _value(second)
    if one is None or two is None:
        return False
    tolerance = _WRITTEN_TOLERANCE if first.has(sympy.Float) or second.has(sympy.Float) else _TOLERANCE
    if _close(one, two, tolerance):
        return True
    return _rounded(one, read_number(answer)) or _rounded(two, read_number(gold))


def _rounded(value: Any, written: Number | None) -> bool:
    if written is None or not value.is_real:
        return False
    exact = sympy.Rational(value)
    return rounds_to(Fraction(int(exact.p), int(exact.q)), written)


def _same_function(first: Any, second: Any) -> bool:
    """Equal at every point at which both have a real value, and at two points at least."""
    symbols = sorted(first.free_symbols | second.free_symbols, key=str)
    compared = 0
    for point in _POINTS:
        values = [point[i % len(point)] + i // len(point) for i in range(len(symbols))]
        one, two = (_at(side, symbols, values) for side in (first, second))
        if one is None or two is None or one.is_real != two.is_real:
            continue
        if not _close(one, two, _WRITTEN_TOLERANCE):
            return False
        compared += 1
    return compared >= 2


def _at(expression: Any, symbols: list[Any], values: list[Any]) -> Any:
    return _value(expression.subs(dict(zip(symbols, values, strict=True)), simultaneous=True))


def _proportional(gold: str, answer: str, ordered: bool) -> bool:
    """Two equations are one when their differences of sides have a constant ratio; of inequalities a positive one."""
    first, second = _difference(gold, ordered), _difference(answer, ordered)
    if first is None or second is None or first[0] != second[0]:
        return False
    one, two = first[1], second[1]
    if not one.free_symbols or one.free_symbols != two.free_symbols:
        return False
    ratio = sympy.simplify(one / two)
    value = _value(ratio) if not ratio.free_symbols else None
    return value is not None and bool(value.is_real) and value != 0 and (not ordered or bool(value > 0))


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
