"""The lab: generated, verified rows that make members of one small model good at different things.

    python -m pilotfish.lab actor --size 5 --seed 1

`rows("actor", …)` and `rows("collaborator", …)` are what `recipes/lab/` trains on with supervised fine-tuning. Tasks
of both splits are kept out of them by question.
"""

from __future__ import annotations

from pilotfish.lab.members import FAMILIES, MEMBERS, Family, rows, task_source
from pilotfish.lab.row import Row

__all__ = ["FAMILIES", "MEMBERS", "Family", "Row", "rows", "task_source"]
