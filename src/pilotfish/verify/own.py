"""A verifier of the user's own: a plain function, in a file (`mine.py:score`) or declared by an installed package.

    def score(gold, text):                  # also (gold, text, task), (gold, text, task, form)
        return 0.5 * ("refund" in text) + 0.5 * (len(text) < 200)

`text` is the reply without its thinking; with the form `answer_tag`, the body of `<answer>`. The function returns True
or False, a number from 0 to 1, or a `Verdict`. What it raises, and a limit that it meets, is no verdict and never a 0.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from functools import lru_cache
from numbers import Real
from typing import Any

from ..task import Task
from ..verifier import NAMES, function_of
from .extract import whole
from .verdict import Verdict


def is_own(name: str) -> bool:
    """Whether a verifier is not built in."""
    return name not in NAMES


def load(name: str) -> None:
    """Find the function ahead of time (its imports may take seconds); what fails here is reported by `verify`."""
    with suppress(ValueError):
        _function(name)


def check(name: str) -> None:
    """Raises ValueError: no such file, function or entry point, or one that does not load."""
    _function(name)


def verify(gold: str, text: str, task: Task, form: str = "free") -> Verdict:
    """Judge a reply with the function that `task.verifier` names."""
    found = whole(text, form)
    if found.answer is None:
        return Verdict(0.0, why=found.why)
    function = _function(task.verifier)
    wanted = inspect.signature(function).parameters
    offered = {name: value for name, value in (("task", task), ("form", form)) if name in wanted}
    return _verdict(task.verifier, function(gold, found.answer, **offered))


# A worker judges thousands of replies; the file is run once.
_function = lru_cache(maxsize=64)(function_of)


def _is_numpys_bool(given: Any) -> bool:
    """What comparing numpy's numbers gives; it counts as no number, and its package need not be there."""
    return getattr(given, "shape", None) == () and str(getattr(given, "dtype", "")) == "bool"


def _verdict(name: str, given: Any) -> Verdict:
    verdict = Verdict(float(given)) if isinstance(given, Real) or _is_numpys_bool(given) else given
    if not isinstance(verdict, Verdict):
        return Verdict(None, why=f"{name} gave {given!r:.80}; return True, False, a number from 0 to 1, or a Verdict")
    if verdict.reward is not None and not 0 <= verdict.reward <= 1:
        return Verdict(None, why=f"{name} gave {verdict.reward!r}; a reward lies between 0 and 1")
    return verdict
