"""The report as Markdown: the same tables, without drawings, and one example of each kind of flip."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pilotfish.evaluate.table import markdown_table
from pilotfish.report.examples import Example, Said, Side
from pilotfish.report.figure import Figure
from pilotfish.report.page import Chapter

_WORDS = 1_500
"""Characters of what somebody said."""
_EXAMPLES = 12
"""Examples of a benchmark."""


def markdown(title: str, lead: Sequence[Figure], chapters: Sequence[Chapter]) -> str:
    """The whole report."""
    parts = [f"# {_line(title)}", *map(_figure, lead)]
    for one in chapters:
        parts.append(f"## {_line(one.name)}")
        for figure in one.figures:
            parts.append(_figure(figure))
            if figure.name == "flips":
                parts += _examples(one.examples)
    return "\n\n".join(parts) + "\n"


def _figure(figure: Figure) -> str:
    return markdown_table(figure.section()) + (f"\n\n{_line(figure.note)}" if figure.note else "")


def _examples(found: Sequence[Example]) -> Iterator[str]:
    first = {(example.arm, example.kind): example for example in reversed(found)}
    for example in list(first.values())[::-1][:_EXAMPLES]:
        gold = f", gold answer {_code(example.gold)}" if example.gold is not None else ""
        yield f"### {_line(example.arm)}: {example.kind}, task {_line(example.task)}{gold}"
        for side in example.sides:
            yield from _side(side)


def _side(side: Side) -> Iterator[str]:
    read = f", read as {_code(side.extracted)}" if side.extracted else ""
    yield f"**{_line(side.arm)}: {'right' if side.right else 'wrong'}**{read}"
    for said in side.said:
        yield f"{_line(said.member)}:\n\n{_fenced(said)}"


def _fenced(said: Said) -> str:
    """A block that nothing in the text can end."""
    text = said.text if len(said.text) <= _WORDS else f"{said.text[:_WORDS]}\n[…]"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _code(text: str) -> str:
    plain = " ".join(text.split()).replace("`", "'")
    return f"`{plain}`"


def _line(text: str) -> str:
    """Words in one line that open no tag and start no markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
