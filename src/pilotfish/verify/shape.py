"""The form of an answer: list, set, tuple or interval, union, matrix, `name = value`, inequality, or one value.

`read_shape` splits a cleaned answer at its outermost commas, brackets and relations and leaves the values as text; it
knows no algebra. `maths` compares two shapes part by part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .latex import ROW
from .number import read_number

MAX_DEPTH = 12
"""Brackets within brackets that are still taken apart; below that an answer is one value."""
MAX_PARTS = 200


@dataclass(frozen=True, slots=True)
class Shape:
    """One answer, taken apart."""

    kind: str
    """`value list set tuple union matrix named equation relation`."""
    text: str
    """As written, cleaned."""
    parts: tuple[Shape, ...] = ()
    """Elements; of `named` the value; of `equation` both sides; of `relation` the members of the chain."""
    name: str = ""
    """Of `named`: the left side. Of `tuple`: its two brackets. Of `relation`: its signs, joined by spaces."""


@lru_cache(maxsize=4096)
def read_shape(text: str, depth: int = 0) -> Shape:
    """Take a cleaned answer apart."""
    text = text.strip().strip(",;").strip()
    if depth > MAX_DEPTH or not text:
        return Shape("value", text)
    for reader in (_matrix, _number, _list, _membership, _relation, _union, _equation, _bracketed):
        shape = reader(text, depth)
        if shape is not None:
            return shape
    return Shape("value", text)


def as_list(text: str) -> Shape | None:
    """The reading of `1,234` as two values rather than one number."""
    return _list(text, 0)


def outer_split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split where no bracket is open."""
    if separator.search(text) is None:
        return [text]
    pieces, start, depth = [], 0, 0
    depths = []
    for index, character in enumerate(text):
        if character in "([{⦃" and not (character == "[" and text[:index].endswith("\\")):
            depth += 1
        depths.append(depth)
        if character in ")]}⦄":
            depth = max(0, depth - 1)
    for match in separator.finditer(text):
        if depths[match.start()] == 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    return [*pieces, text[start:]]


def _number(text: str, depth: int) -> Shape | None:
    return Shape("value", text) if read_number(text) is not None else None


_COMMA = re.compile(r",")
_COARSE = re.compile(r";|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|land|vee|wedge)(?![A-Za-z])")


def _list(text: str, depth: int) -> Shape | None:
    groups = [piece.strip().strip(",").strip() for piece in outer_split(text, _COARSE)]
    groups = [group for group in groups if group]
    fine = [[part.strip() for part in outer_split(group, _COMMA) if part.strip()] for group in groups]
    flat = [part for group in fine for part in group]
    if len(flat) < 2 or len(flat) > MAX_PARTS:
        return None
    if (
        len(groups) > 1
        and len(fine[0]) > 1
        and all(_names(group) and _names(group) == _names(fine[0]) for group in fine)
    ):
        rows = [Shape("list", ", ".join(group), tuple(read_shape(part, depth + 1) for part in group)) for group in fine]
        return Shape("list", text, tuple(rows))
    parts = tuple(element for part in flat for element in _plus_minus(part, depth))
    return Shape("list", text, _by_record(parts, text))


def _names(group: list[str]) -> tuple[str, ...]:
    shapes = [read_shape(part) for part in group]
    return tuple(shape.name for shape in shapes) if all(shape.kind == "named" for shape in shapes) else ()


def _by_record(parts: tuple[Shape, ...], text: str) -> tuple[Shape, ...]:
    """`p=5, q=2, p=7, q=2` is two records, of which each names every variable once."""
    names = [part.name for part in parts if part.kind == "named"]
    width = len(set(names))
    if len(names) != len(parts) or width < 2 or len(names) == width or names != names[:width] * (len(names) // width):
        return parts
    return tuple(Shape("list", text, parts[i : i + width]) for i in range(0, len(parts), width))


def _plus_minus(text: str, depth: int) -> list[Shape]:
    if "\\pm" not in text and "\\mp" not in text:
        return [read_shape(text, depth + 1)]
    upper, lower = text.replace("\\pm", "+").replace("\\mp", "-"), text.replace("\\pm", "-").replace("\\mp", "+")
    return [read_shape(re.sub(r"^\+", "", side), depth + 1) for side in (upper.strip(), lower.strip())]


_MATRIX = re.compile(
    r"\(?\s*\\begin\{(?P<env>[pbvBV]?matrix|smallmatrix|array)\}(?:\{[lcr|]*\})?(?P<body>.*?)\\end\{(?P=env)\}\s*\)?",
    re.DOTALL,
)


def _matrix(text: str, depth: int) -> Shape | None:
    stripped = text[1:-1].strip() if text[:1] + text[-1:] in ("[]", "()") else text
    match = _MATRIX.fullmatch(stripped)
    if match is None or "\\begin" in match["body"] or match["env"] == "vmatrix":
        return None
    body = re.sub(r"\\hline", "", match["body"])
    rows = [row for row in body.split(ROW) if row.strip(" \\")]
    cells = [tuple(read_shape(cell.strip(), depth + 1) for cell in row.split("&")) for row in rows]
    if all(len(row) == 1 for row in cells):
        return Shape("tuple", text, tuple(row[0] for row in cells), "()")
    return Shape("matrix", text, tuple(Shape("tuple", "", row, "()") for row in cells))


_IN = re.compile(r"\\in(?![A-Za-z])")


def _membership(text: str, depth: int) -> Shape | None:
    sides = outer_split(text, _IN)
    if len(sides) != 2 or not is_name(sides[0]):
        return None
    return Shape("named", text, (read_shape(sides[1], depth + 1),), name_key(sides[0]))


SIGN = re.compile(r"\\(?:le|ge|ne)(?![A-Za-z])|[<>]")
"""An inequality sign in a cleaned answer."""
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "\\ne": "\\ne"}


def _relation(text: str, depth: int) -> Shape | None:
    sides = [side.strip() for side in outer_split(text, SIGN)]
    if len(sides) < 2 or not all(sides) or any("=" in side for side in sides):
        return None
    signs = SIGN.findall(text)
    if len(signs) != len(sides) - 1:
        return None
    if signs[0] in (">", "\\ge"):
        sides, signs = sides[::-1], [_FLIPPED[sign] for sign in signs[::-1]]
    interval = _interval(text, sides, signs, depth)
    return interval or Shape("relation", text, tuple(read_shape(side, depth + 1) for side in sides), " ".join(signs))


def _interval(text: str, sides: list[str], signs: list[str], depth: int) -> Shape | None:
    """`a < x \\le b`, `x < b`, `a \\le x` as a named interval."""
    if any(sign not in ("<", "\\le") for sign in signs):
        return None
    names = [is_name(side) and side not in ("e", "\\pi", "\\infty") for side in sides]
    if names == [False, True, False]:
        low, name, high = sides
        brackets = ("[" if signs[0] == "\\le" else "(") + ("]" if signs[1] == "\\le" else ")")
    elif names == [True, False]:
        low, name, high, brackets = "-\\infty", sides[0], sides[1], "(" + ("]" if signs[0] == "\\le" else ")")
    elif names == [False, True]:
        low, name, high, brackets = sides[0], sides[1], "\\infty", ("[" if signs[0] == "\\le" else "(") + ")"
    else:
        return None
    ends = (read_shape(low, depth + 1), read_shape(high, depth + 1))
    return Shape("named", text, (Shape("tuple", "", ends, brackets),), name_key(name))


_CUP = re.compile(r"\\cup(?![A-Za-z])")


def _union(text: str, depth: int) -> Shape | None:
    parts = outer_split(text, _CUP)
    if len(parts) < 2 or not all(part.strip() for part in parts):
        return None
    return Shape("union", text, tuple(read_shape(part, depth + 1) for part in parts))


_EQUALS = re.compile(r"=|\\(?:approx|equiv|to|rightarrow)(?![A-Za-z])|:=")


def _equation(text: str, depth: int) -> Shape | None:
    sides = [side.strip() for side in outer_split(text, _EQUALS)]
    if len(sides) < 2 or not sides[-1]:
        return None
    value = read_shape(sides[-1], depth + 1)
    if len(sides) > 2 or (not is_name(sides[0]) and read_number(sides[0]) is None and not re.search("[A-Za-z]", text)):
        return Shape("named", text, (value,), name_key(sides[0]) if is_name(sides[0]) else "")
    if is_name(sides[0]):
        return Shape("named", text, (value,), name_key(sides[0]))
    if is_name(sides[1]):
        return Shape("named", text, (read_shape(sides[0], depth + 1),), name_key(sides[1]))
    return Shape("equation", text, (read_shape(sides[0], depth + 1), value))


def is_name(text: str) -> bool:
    """Whether this side of an equation only names what is asked for: `x`, `a_{n}`, `f(x)`, `\\angle ABC`, `(p, q)`."""
    text = re.sub(r"_\s*(?:\{[^{}]*\}|\\?\w+)|'", "", text.strip())
    if not re.search(r"[A-Za-z]", text) or text.strip() in ("e", "\\pi", "\\infty", "\\emptyset"):
        return False
    return not re.search(r"\d|[-+*/^<>=!⦃⦄]|\\(?:sqrt|pm|cdot|times|forall|exists|sum|int|prod|ldots|infty)", text)


def name_key(text: str) -> str:
    """The name to compare: case and spaces do not matter, and of `f(x)` only the `f`."""
    text = re.sub(r"\s+|[{}]", "", text)
    function = re.fullmatch(r"(\\?[A-Za-z]+(?:_\w+)?'*)\(.*\)", text)
    return (function.group(1) if function else text).lower()


def _bracketed(text: str, depth: int) -> Shape | None:
    opening, closing = text[0], text[-1]
    if opening not in "([{⦃" or closing not in ")]}⦄" or not _one_group(text):
        return None
    inner = text[1:-1].strip()
    parts = [part for part in outer_split(inner, _COMMA) if part.strip()]
    if len(parts) > MAX_PARTS:
        return None
    if opening in "⦃{":
        return _set(text, inner, parts, depth)
    if len(parts) == 1 and opening == "(" and closing == ")" and not inner.endswith(","):
        return read_shape(inner, depth + 1)
    return Shape("tuple", text, tuple(read_shape(part, depth + 1) for part in parts), opening + closing)


def _set(text: str, inner: str, parts: list[str], depth: int) -> Shape | None:
    if text[0] == "{" and len(parts) == 1:
        return read_shape(inner, depth + 1)
    if re.search(r"\||\\ldots|(?<!:):(?!:)", inner):
        return Shape("value", text)
    inside = read_shape(inner, depth + 1) if len(parts) > 1 else None
    if inside is not None and inside.kind == "list":
        return Shape("set", text, inside.parts)
    return Shape("set", text, tuple(element for part in parts for element in _plus_minus(part, depth)))


def _one_group(text: str) -> bool:
    depth = 0
    for index, character in enumerate(text):
        depth += (character in "([{⦃") - (character in ")]}⦄")
        if depth == 0:
            return index == len(text) - 1
    return False
