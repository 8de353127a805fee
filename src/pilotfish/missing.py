"""Where a missing file was looked for: what a recipe names goes by the working directory, not by the recipe."""

from __future__ import annotations

from pathlib import Path


def here(path: Path | str) -> str:
    """What follows "no such file": the working directory; empty for an absolute path."""
    return "" if Path(path).expanduser().is_absolute() else f" in {Path.cwd()}"


def looked_in(path: Path | str) -> str:
    """The same with the way out."""
    way_out = "; run from the folder that it is relative to, or give an absolute path"
    return f"{found}{way_out}" if (found := here(path)) else ""
