"""The viewer as a folder: the same pages with their figures beside them, opened from disk without a server.

    written = export(Run("runs/hint"), Path("hint-pages"))       # then open hint-pages/index.html

A page from disk may load scripts and nothing else, so each file of figures is one: `put("rows-0", {…})`. A large run is
sampled, in whole groups, and the page says so.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pilotfish.episode import Journal
from pilotfish.run import Run, RunError
from pilotfish.view import shown
from pilotfish.view.index import CHUNK, Index, Line
from pilotfish.view.pages import PAGE, POLICY, page_files

FOLDER = "data"
EACH = 25
"""Episodes in a file."""
TEXT = 20_000
"""Characters of one text at most."""


def export(run: Run, out: Path, most: int = 2000) -> str:
    """Write the folder.

    Args:
        run: whose episodes.
        out: the folder; it must be new or empty.
        most: episodes at most; groups are left out whole, drawn by chance that is the same at every export.

    Returns:
        What was written, in words.

    Raises:
        RunError: the folder holds something.
    """
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out}: holds something already; name a new folder")
    index, journal = Index(run), run.journal(writable=False)
    try:
        while not index.read():
            pass
        lines = _drawn(index.lines, most)
        note = _note(len(lines), len(index.lines))
        figures = chain(_figures(run, index, lines, note), _words(lines, journal))
        scripts = ((f"{FOLDER}/{name}.js", _script(name, value)) for name, value in figures)
        for name, content in chain(_pages().items(), scripts):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)
    finally:
        index.close()
        journal.close()
    return note


def _drawn(lines: Sequence[Line], most: int) -> list[Line]:
    """Whole groups while there is room, one group behind the other, so that a group stands in few files."""
    groups: dict[int, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    order = list(groups)
    if len(lines) > most:
        random.Random(0).shuffle(order)
    kept, room = set(), most
    for group in order:
        if len(groups[group]) <= room:
            kept.add(group)
            room -= len(groups[group])
    return [line for group in groups if group in kept for line in groups[group]]


def _figures(run: Run, index: Index, lines: Sequence[Line], note: str) -> Iterator[tuple[str, Any]]:
    """By file, all but the episodes' words."""
    chunks = [lines[start : start + CHUNK] for start in range(0, len(lines), CHUNK)]
    yield "about", {**shown.about(run), "note": note}
    yield "state", {"size": CHUNK, "chunks": [1] * len(chunks), "whole": True, "each": EACH}
    yield "curves", shown.curves(run)
    for number, chunk in enumerate(chunks):
        yield f"rows-{number}", index.columns(chunk)


def _words(lines: Sequence[Line], journal: Journal) -> Iterator[tuple[str, Any]]:
    """By file, the episodes with their turns."""
    for start in range(0, len(lines), EACH):
        yield f"episodes-{start // EACH}", shown.episodes(lines[start : start + EACH], journal, TEXT)


def _script(name: str, value: Any) -> bytes:
    return f"put({json.dumps(name)}, {json.dumps(value)});\n".encode("ascii")


def _note(kept: int, of: int) -> str:
    drawn = f"{kept:,} of {of:,} episodes, in whole groups drawn by chance" if kept < of else f"{of:,} episodes"
    return f"{drawn}; texts end at {TEXT:,} characters"


def _pages() -> dict[str, bytes]:
    """The page, told where its figures are, with the policy that a server would send beside it; and its own files."""
    files = {name: content for name, (content, _) in page_files().items()}
    policy = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    told = files[PAGE].decode().replace('<html lang="en">', f'<html lang="en" data-folder="{FOLDER}">')
    return {**files, PAGE: told.replace('<meta charset="utf-8">', policy).encode()}
