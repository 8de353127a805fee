"""One worker process as the pool sees it: started when needed, given one job at a time, killed when it is late."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ..task import Task
from .own import is_own
from .verdict import Verdict

START_LIMIT = 120.0
"""Seconds in which a worker has to become ready."""
LATE = 1.0
"""Seconds that a verifier of the user's own, which may wait for something, is given beyond its limit."""
PATIENCE = 20
"""So many times its limit of processor time a job may take on a busy machine; after that nobody knows the verdict."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


class _Gone(Exception):
    """The worker ended or did not answer in time."""


class WorkerProcess:
    """Owned by one thread; only `stop` may be called from another."""

    def __init__(self, time_limit: float, memory_mb: int) -> None:
        self.time_limit = time_limit
        self.memory_mb = memory_mb
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._lock = threading.Lock()
        self._closed = False

    def judge(self, task: Task, text: str, form: str) -> Verdict:
        """The worker's verdict, or what its end says about this job."""
        job = pickle.dumps((task, text, form))
        for _ in range(2):  # a worker that ended while it was idle has nothing to do with this job
            if not self._start():
                return Verdict(None, why="no verifier worker could be started")
            try:
                self._write(job)
                self._read(time.monotonic() + START_LIMIT)
            except (OSError, TimeoutError, _Gone):
                self.reap()
            else:
                return self._outcome(task)
        return Verdict(None, why="the verifier worker ended before it took the job")

    def _outcome(self, task: Task) -> Verdict:
        gold_done = False
        own = is_own(task.verifier)
        patience = self.time_limit + LATE if own else PATIENCE * self.time_limit
        deadline = time.monotonic() + patience
        try:
            while True:
                message = self._read(deadline)
                if "verdict" in message:
                    return Verdict(*message["verdict"])
                gold_done = True
        except TimeoutError:
            self.reap()
            if own:
                return met(task, gold_done, f"the time limit of {self.time_limit:g} s")
            return Verdict(None, why=f"the machine is too busy: no verdict after {patience:g} s")
        except _Gone:
            return self._death(task, gold_done, self.reap())

    def _death(self, task: Task, gold_done: bool, code: int | None) -> Verdict:
        if code == -signal.SIGVTALRM:
            return met(task, gold_done, f"the time limit of {self.time_limit:g} s")
        if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
            return met(task, gold_done, "the memory limit")
        return Verdict(None, why=f"the verifier worker died (exit {code})")

    def _start(self) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._process is not None and self._process.poll() is None:
                return True
            _end(self._process)
            self._buffer = b""
            self._process = _spawn(self.time_limit, self.memory_mb)
        try:
            self._read(time.monotonic() + START_LIMIT)
        except (TimeoutError, _Gone):
            self.reap()
            return False
        return True

    def _write(self, job: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(job)
        self._process.stdin.flush()

    def _read(self, deadline: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(stream, 65536)
            if not chunk:
                raise _Gone
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def reap(self) -> int | None:
        """End the process, wait for it and close its pipes; its exit code, negative for a signal."""
        with self._lock:
            process, self._process = self._process, None
        return _end(process)

    def stop(self) -> None:
        """Kill it for good, from any thread; a job in progress gets no verdict. `reap` once its thread has ended."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()


def _spawn(time_limit: float, memory_mb: int) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "pilotfish.verify.worker", str(time_limit), str(memory_mb)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
    )


def _end(process: subprocess.Popen[bytes] | None) -> int | None:
    if process is None:
        return None
    try:
        code = process.wait(timeout=0.05)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                continue
    return code


def met(task: Task, gold_done: bool, limit: str) -> Verdict:
    """A limit that the answer met is a 0; one that the gold answer met, or a verifier of the user's own, is no verdict.

    Args:
        task: whose verifier was at work.
        gold_done: whether it was done with the gold answer.
        limit: which.
    """
    if is_own(task.verifier):
        return Verdict(None, why=f"{task.verifier} met {limit}")
    if gold_done:
        return Verdict(0.0, why=f"the answer met {limit}")
    return Verdict(None, why=f"the gold answer alone met {limit}")
