"""Where commands write: results to standard output, everything else to standard error.

Nothing that comes from a task or a model is read as markup, and its control characters never reach the terminal.
"""

from __future__ import annotations

import sys

from rich.console import Console


def out() -> Console:
    """Standard output."""
    return Console(markup=False, highlight=False, emoji=False)


def err() -> Console:
    """Standard error."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


def say_error(message: str) -> None:
    """A message on standard error, in one line a complaint whatever the width of the terminal."""
    print(printable(message), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """The text with a mark in place of each character that could steer a terminal; line breaks stay."""
    return "".join(char if char.isprintable() or char == "\n" else " " if char == "\t" else "�" for char in text)
