"""Who asks whom: the built-in topologies, and how one is found by name."""

from __future__ import annotations

from pilotfish.topology.alone import alone
from pilotfish.topology.base import Topology, topology
from pilotfish.topology.best_of import best_of
from pilotfish.topology.cot import cot
from pilotfish.topology.critic import critic
from pilotfish.topology.debate import debate
from pilotfish.topology.evoagent import evoagent
from pilotfish.topology.find import find
from pilotfish.topology.hint import hint
from pilotfish.topology.leader import leader
from pilotfish.topology.mixture import mixture
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.reflect import reflect
from pilotfish.topology.roles import roles
from pilotfish.topology.solo import solo
from pilotfish.topology.vote import vote

BUILT_IN = (solo, cot, reflect, hint, critic, roles, debate, mixture, evoagent, best_of, leader, alone, vote)

__all__ = [
    "BUILT_IN",
    "Prompt",
    "Prompts",
    "Topology",
    "alone",
    "best_of",
    "cot",
    "critic",
    "debate",
    "evoagent",
    "find",
    "hint",
    "leader",
    "mixture",
    "reflect",
    "roles",
    "solo",
    "topology",
    "vote",
]
