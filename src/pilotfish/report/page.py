"""The report as one HTML file that asks nobody for anything: style, script and drawings stand in it.

What tasks and models said is text, never markup: everything is escaped here, and the page's own policy lets no script
run but the one whose hash it names, and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from pilotfish.report.breakdown import KINDS, Flips, Kind
from pilotfish.report.examples import Example, Said, Side, cut
from pilotfish.report.figure import Figure

_TITLE = 110
"""Characters of a question beside its example."""


@dataclass(frozen=True)
class Chapter:
    """One benchmark's part of the report."""

    name: str
    figures: Sequence[Figure]
    flips: Sequence[Flips]
    examples: Sequence[Example]


Shown = Sequence[tuple[Example, str]]
"""Examples with their HTML."""


def html(title: str, lead: Sequence[Figure], chapters: Sequence[Chapter], shown: Sequence[Shown]) -> str:
    """The whole page.

    Args:
        title: of the report.
        lead: figures above the chapters.
        chapters: in their order.
        shown: of each chapter, the examples that the page has room for; see `example_html`.
    """
    style, script = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    links = "".join(f'<a href="#{anchor(one.name)}">{escape(one.name)}</a>' for one in chapters)
    body = "".join([*map(_figure, lead), *map(_chapter, chapters, shown)])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"<nav>{links}</nav>\n{body}<script>{script}</script>\n</body></html>\n"
    )


def anchor(name: str) -> str:
    """A name as part of an address or of a file's name; what it lost is told apart by a hash."""
    plain = re.sub(r"[^\w.-]", "-", name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _chapter(one: Chapter, shown: Shown) -> str:
    parts = [f'<h2 id="{anchor(one.name)}">{escape(one.name)}</h2>\n']
    for figure in one.figures:
        parts.append(_figure(figure))
        if figure.name == "flips":
            parts += _examples(one, shown)
    return "".join(parts)


def _figure(figure: Figure) -> str:
    drawn = "".join(f"<div>{drawing}</div>" for drawing in figure.drawings if drawing)
    drawing = f'<div class="drawings">{drawn}</div>' if drawn else ""
    note = f'<p class="note">{escape(figure.note)}</p>' if figure.note else ""
    return f"<figure><h3>{escape(figure.title)}</h3>{drawing}{_table(figure)}{note}</figure>\n"


def _table(figure: Figure) -> str:
    kinds = [' class="name"' if at < figure.names else "" for at in range(len(figure.head))]
    pairs = zip(figure.head, kinds, strict=True)
    head = "".join(f'<th scope="col"{kind}><button>{escape(title)}</button></th>' for title, kind in pairs)
    shades = figure.shades or [[None] * len(figure.head)] * len(figure.lines)
    body = "".join(_line(*line, kinds) for line in zip(figure.lines, shades, strict=True))
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _line(cells: Sequence[str], shades: Sequence[float | None], kinds: Sequence[str]) -> str:
    shown = (
        f"<td{kind}>{escape(cut(cell, 400))}</td>"
        if shade is None
        else f'<td class="shaded" style="--share:{shade:.3f}">{escape(cell)}</td>'
        for cell, shade, kind in zip(cells, shades, kinds, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"


def _examples(one: Chapter, shown: Shown) -> Iterator[str]:
    """Below the table of flips, folded by method."""
    for flip in one.flips:
        kinds = "".join(_kind(flip, kind, shown) for kind in KINDS)
        if kinds:
            title = f"{escape(flip.arm)} against {escape(flip.reference)}: examples"
            yield f'<details class="examples"><summary>{title}</summary>{kinds}</details>\n'


def _kind(flip: Flips, kind: Kind, shown: Shown) -> str:
    found = [html for example, html in shown if (example.arm, example.kind) == (flip.arm, kind)]
    of = f"{len(found)} of {len(flip.places[kind]):,}"
    return f'<h4>{kind} <span class="quiet">{of}</span></h4>{"".join(found)}' if found else ""


def example_html(example: Example) -> str:
    """One example, closed until a reader opens it."""
    question = " ".join(example.question.split())
    start = question if len(question) <= _TITLE else f"{question[:_TITLE]}…"
    sample = f", sample {example.sample}" if example.sample else ""
    gold = f"<p>Gold answer: <b>{escape(example.gold)}</b></p>" if example.gold is not None else ""
    sides = "".join(map(_side, example.sides))
    return (
        f'<details class="example"><summary><b>{escape(example.task)}{sample}</b> {escape(start)}</summary>'
        f'<pre>{escape(example.question)}</pre>{gold}<div class="sides">{sides}</div></details>'
    )


def _side(side: Side) -> str:
    word = "right" if side.right else "wrong"
    read = f", read as {escape(side.extracted)}" if side.extracted else ""
    why = f'<p class="quiet">{escape(side.why)}</p>' if side.why else ""
    more = f'<p class="quiet">{side.left_out} further turns in the journal</p>' if side.left_out else ""
    head = f'<p class="verdict">{escape(side.arm)}: <span class="{word}">{word}</span>{read}</p>'
    return f"<div>{head}{why}{''.join(map(_turn, side.said))}{more}</div>"


def _turn(said: Said) -> str:
    seat = " trainee" if said.trainee else ""
    spent = f"{said.tokens:,} tokens, {said.seconds:.1f} s" if said.answered else "no answer"
    thought = _folded("reasoning", said.reasoning) if said.reasoning else ""
    return (
        f'<div class="turn{seat}"><p><b>{escape(said.member)}</b>{", the trainee" if seat else ""} '
        f'<span class="quiet">{spent}</span></p>{_folded("what it was told", said.prompt)}{thought}'
        f"<pre>{escape(said.text)}</pre></div>"
    )


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"
