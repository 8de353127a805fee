"""The lab: generated, verified rows that make members of one small model good at different things.

    python -m pilotfish.lab actor --size 5 --seed 1          # look at some rows
    pilotfish train recipes/lab/actor.yaml                   # fine-tune the actor on them

An actor and a collaborator for AgentPO's topologies, a second actor (`panel.py`), an abler one, which knows more
animals, and the collaborator's twin, which knows no more than the actor; three agents and a leader for MLPO's
(`team.py`, `lead.py`). No row asks a question of either split of `task_source`.
"""

from __future__ import annotations

from pilotfish.lab.data import read_rows
from pilotfish.lab.members import FAMILIES, MEMBERS, Family, rows, task_source, tasks
from pilotfish.lab.row import Row

__all__ = ["FAMILIES", "MEMBERS", "Family", "Row", "read_rows", "rows", "task_source", "tasks"]
