"""Find a topology by the name a recipe gives: a built-in one, or `path/to/file.py:function` of the user's own."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from pilotfish.topology.base import Topology


def find(name: str) -> Topology:
    """The topology of a name.

    Args:
        name: `hint`, `critic`, …, or `file.py:function`.

    Raises:
        ValueError: no such built-in topology, file or function.
    """
    if ":" in name:
        return _from_file(*name.rsplit(":", 1))
    from pilotfish.topology import BUILT_IN

    for known in BUILT_IN:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in BUILT_IN)
    raise ValueError(f"topology {name!r}: not one of {names}; your own is named `path/to/file.py:function`")


def digest(name: str) -> str | None:
    """Names the text of the user's own file behind a topology; None for a built-in one."""
    file = Path(name.rpartition(":")[0]).expanduser()
    return hashlib.sha256(file.read_bytes()).hexdigest() if ":" in name and file.is_file() else None


def _from_file(path: str, function: str) -> Topology:
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"topology {path}:{function}: no file {path}")
    spec = importlib.util.spec_from_file_location(f"pilotfish_own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"topology {path}:{function}: {path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look their module up by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"topology {path}:{function}: {path} does not load: {why}") from error
    found = getattr(module, function, None)
    if not isinstance(found, Topology):
        raise ValueError(f"topology {path}:{function}: not in the file as a function under @topology")
    return found
