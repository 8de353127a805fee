"""A process between a run and its server: it starts the server, and ends it whatever becomes of the run.

    python -I watcher.py RUN_PID GRACE_S FOLDER COMMAND …

The server leads a process group of its own, so that Ctrl-C in a terminal does not reach it before the run has closed.
The group is ended, by SIGTERM and after GRACE_S seconds by SIGKILL, as soon as anything comes on standard input, the
process RUN_PID is no longer the parent, or the server has ended and may have left workers behind. FOLDER is then
removed; it may be an empty string. A watcher that is killed itself takes the server along, on Linux. It is a script on
the standard library alone: it starts at once and holds little memory. Its exit code is the server's.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

POLL_S = 0.2
"""Seconds between two looks at the run and the server."""
PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when its parent dies."""


def main() -> None:
    run, grace_s, folder, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_ends_with_watcher()
    )
    while server.poll() is None and os.getppid() == run:
        if select.select([sys.stdin], [], [], POLL_S)[0]:
            break
    _end(server, grace_s)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(server.returncode if server.returncode >= 0 else 128 - server.returncode)


def _end(server: subprocess.Popen[bytes], grace_s: float) -> None:
    _signal_group(server.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(grace_s)
    _signal_group(server.pid, signal.SIGKILL)
    server.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody is left in it
        os.killpg(group, number)


def _ends_with_watcher() -> Callable[[], object] | None:
    """What the server does before it becomes itself; None where there is no prctl."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main()
