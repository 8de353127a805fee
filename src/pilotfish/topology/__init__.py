"""Who asks whom: the built-in topologies, and how one is found by name."""

from __future__ import annotations

from pilotfish.topology.alone import alone
from pilotfish.topology.base import Topology, topology
from pilotfish.topology.critic import critic
from pilotfish.topology.find import find
from pilotfish.topology.hint import hint
from pilotfish.topology.leader import leader
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.solo import solo
from pilotfish.topology.vote import vote

BUILT_IN = (solo, hint, critic, leader, alone, vote)

__all__ = [
    "BUILT_IN",
    "Prompt",
    "Prompts",
    "Topology",
    "alone",
    "critic",
    "find",
    "hint",
    "leader",
    "solo",
    "topology",
    "vote",
]
