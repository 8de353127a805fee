"""A verifier process: `python -m pilotfish.verify.worker SECONDS MEGABYTES`, started and killed by `pool`.

It reads pickled (task, text, form) from its standard input and writes JSON lines: `ready` once, then for each job
`started`, `gold` (all that depends on the gold answer alone is done) and the verdict. It ends when its input does, when
its parent is gone, or when a job outlives its limit: the alarm's default action ends it even inside one long operation.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import select
import signal
import sys
from typing import Any, BinaryIO

from ..task import Task
from . import gym, maths, own, symbolic
from .process import met
from .registry import golds, judge
from .verdict import Verdict

GRACE = 0.5
"""Seconds between the limit that a job can survive and the one that ends the process, both of processor time."""


class _Timeout(BaseException):
    """Not an Exception, so that a library's own handlers let it pass."""


def main() -> None:
    """Serve jobs until the input ends."""
    seconds, megabytes = float(sys.argv[1]), int(sys.argv[2])
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    sys.setrecursionlimit(3_000)
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    symbolic.equal("value", "\\sqrt{4}", "x+1")
    _send(out, {"ready": True})
    parent = os.getppid()
    while _wait(parent):
        try:
            task, text, form = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        _serve(out, seconds, task, text, form)


def _wait(parent: int) -> bool:
    """Until there is a job; False once the parent is gone."""
    while not select.select([sys.stdin.fileno()], [], [], 5.0)[0]:
        if os.getppid() != parent:
            return False
    return True


def _interrupt(*_: Any) -> None:
    raise _Timeout


def _serve(out: BinaryIO, seconds: float, task: Task, text: str, form: str) -> None:
    if task.verifier == "reasoning_gym":
        gym.load(task)
    elif own.is_own(task.verifier):
        own.load(task.verifier)
    _send(out, {"started": True})
    phase = "gold"
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds + GRACE)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        if task.verifier == "maths":
            for gold in golds(task):
                maths.prepare(gold)
        phase = "answer"
        _send(out, {"gold": True})
        verdict = judge(task, text, form)
    except _Timeout:
        verdict = met(task, phase == "answer", f"the time limit of {seconds:g} s")
    except MemoryError:
        verdict = met(task, phase == "answer", "the memory limit")
    except RecursionError:
        verdict = met(task, phase == "answer", "the depth limit")
    except Exception as error:
        verdict = Verdict(None, why=f"the verifier failed: {type(error).__name__}: {str(error)[:200]}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    _send(out, {"verdict": [verdict.reward, verdict.extracted, verdict.why]})


def _send(out: BinaryIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
