"""Verification: from a reply to a verdict.

    judge(task, reply)                      in this process, without protection
    VerifierPool().judge(task, reply)       in worker processes that can be killed (what training and evaluation use)

`extract.py` finds the answer; `maths.py`, `choice.py`, `exact.py` and `gym.py` judge it by rule, `own.py` by a function
of the user's; `registry.py` picks one. `by_member.py`, `judge.py` and `reward_model.py` are for a member that judges.
"""

from .extract import FORMS, Extraction, extract_answer
from .pool import VerifierPool
from .registry import VERIFIERS, contains_answer, equivalent, judge, leaks
from .verdict import Verdict

__all__ = [
    "FORMS",
    "VERIFIERS",
    "Extraction",
    "Verdict",
    "VerifierPool",
    "contains_answer",
    "equivalent",
    "extract_answer",
    "judge",
    "leaks",
]
