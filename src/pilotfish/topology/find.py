"""Find a topology by its name in a recipe: a built-in one, `path/to/file.py:function`, or a package's entry point."""

from __future__ import annotations

from pilotfish import own
from pilotfish.topology.base import Topology


def find(name: str) -> Topology:
    """The topology of a name.

    Args:
        name: `hint`, `critic`, …, `file.py:function`, or an entry point of the group `pilotfish.topologies`.

    Raises:
        ValueError: no such built-in topology, file, function or entry point.
    """
    from pilotfish.topology import BUILT_IN

    for known in BUILT_IN:
        if known.name == name:
            return known
    found = own.find("topology", name, [known.name for known in BUILT_IN])
    if not isinstance(found, Topology):
        where = "in the file" if ":" in name else "declared by its package"
        raise ValueError(f"topology {name}: not {where} as a function under @topology")
    return found


def digest(name: str) -> str | None:
    """Names the text of the user's own file behind a topology; None for a built-in one."""
    from pilotfish.topology import BUILT_IN

    return None if name in (known.name for known in BUILT_IN) else own.digest("topology", name)
