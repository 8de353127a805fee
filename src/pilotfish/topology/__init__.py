"""Who asks whom: the built-in topologies, and how one is found by name."""

from __future__ import annotations

from pilotfish.topology.base import Topology, topology
from pilotfish.topology.critic import critic
from pilotfish.topology.find import find
from pilotfish.topology.hint import hint
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.solo import solo

BUILT_IN = (solo, hint, critic)

__all__ = ["BUILT_IN", "Prompt", "Prompts", "Topology", "critic", "find", "hint", "solo", "topology"]
