"""A user's own code by its name: `path/to/file.py:function`, or what an installed package declares as an entry point.

    find("topology", "mine.py:debate")      # the function as the file has it
    find("verifier", "haiku")               # of a package with [project.entry-points."pilotfish.verifiers"] haiku = "…"

A file is run each time it is found, as a script is; who calls often keeps what was found.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from pilotfish.missing import looked_in

Kind = Literal["topology", "verifier"]
GROUPS: dict[Kind, str] = {"topology": "pilotfish.topologies", "verifier": "pilotfish.verifiers"}
"""Where packages declare theirs."""


def find(kind: Kind, name: str, known: Iterable[str] = ()) -> Any:
    """What a name stands for.

    Args:
        kind: what is looked for.
        name: `file.py:function`, or an entry point's.
        known: built-in names, for the message.

    Raises:
        ValueError: no such file, function or entry point, or one that does not load.
    """
    if ":" in name:
        return _from_file(kind, *name.rsplit(":", 1))
    entry = _entry(kind, name)
    if entry is not None:
        return _from_package(kind, entry)
    names = ", ".join([*known, *sorted(entry.name for entry in entry_points(group=GROUPS[kind]))])
    raise ValueError(f"{kind} {name!r}: not one of {names}; your own is named `path/to/file.py:function`")


def digest(kind: Kind, name: str) -> str | None:
    """Names the text of the file behind a name; None where there is no such file, as for a built-in one."""
    if ":" in name:
        file = Path(name.rpartition(":")[0]).expanduser()
    else:
        entry = _entry(kind, name)
        spec = importlib.util.find_spec(entry.module) if entry else None
        file = Path(spec.origin) if spec and spec.origin else Path()
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


@lru_cache(maxsize=64)
def _entry(kind: Kind, name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=GROUPS[kind], name=name)), None)


def _from_package(kind: Kind, entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        package = f" of {entry.dist.name}" if entry.dist else ""
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"{kind} {entry.name}: {entry.value}{package} does not load: {why}") from error


def _from_file(kind: Kind, path: str, function: str) -> Any:
    file, name = Path(path).expanduser(), f"{kind} {path}:{function}"
    if not file.is_file():
        raise ValueError(f"{name}: no file {path}{looked_in(file)}")
    spec = importlib.util.spec_from_file_location(f"pilotfish_own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{name}: {path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look their module up by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{name}: the file does not load: {type(error).__name__}: {error}") from error
    return getattr(module, function, None)
