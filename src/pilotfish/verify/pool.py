"""Verification in processes that can be killed: one poisonous answer costs its own time limit and nothing else.

    pool = VerifierPool(workers=2, time_limit=5.0, memory_mb=1024)
    verdict = await pool.judge(task, reply)              # from any event loop
    for verdict in pool.judge_all([(task, reply), ...]): ...   # in input order
    pool.close()

What needs no algebra is judged at once in the calling process. The rest waits in one queue; a thread for each worker
takes from it, watches the clock and kills. Workers are started when they are first needed.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..task import Task
from .process import WorkerProcess
from .registry import check, quick_judge
from .verdict import Verdict


@dataclass
class _Job:
    task: Task
    text: str
    form: str
    future: Future[Verdict] = field(default_factory=Future)


class VerifierPool:
    """Judges replies in worker processes.

    Args:
        workers: processes; by default one a core, from 2 to 4.
        time_limit: seconds for one reply, in the worker, once it is ready.
        memory_mb: address space of a worker, in megabytes.

    Raises:
        ValueError: a limit that is not positive.
    """

    def __init__(self, workers: int | None = None, time_limit: float = 5.0, memory_mb: int = 1536) -> None:
        self.workers = min(4, max(2, os.cpu_count() or 2)) if workers is None else workers
        if self.workers < 1 or time_limit <= 0 or memory_mb < 512:
            raise ValueError(
                f"workers={workers}, time_limit={time_limit}, memory_mb={memory_mb}: "
                "at least one worker, a positive limit and 512 MB are needed"
            )
        self.time_limit = time_limit
        self.memory_mb = memory_mb
        self._reset()
        _POOLS.add(self)

    def _reset(self) -> None:
        """A new pool's state; also that of a forked child, in which the parent's threads do not run."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._processes: list[WorkerProcess] = []
        self._waiting = 0
        self._closed = False

    async def judge(self, task: Task, text: str, form: str = "free") -> Verdict:
        """Judge one reply; never raises for what the reply holds.

        Raises:
            ValueError: an unknown verifier or form.
            RuntimeError: the pool is closed.
        """
        return await asyncio.wrap_future(self.submit(task, text, form))

    async def equivalent(self, first: str, second: str, verifier: str = "maths") -> bool:
        """Whether two answers are one (majority vote), `first` being taken for the gold one."""
        name = "exact" if verifier == "reasoning_gym" else verifier
        return bool((await self.judge(Task(id="", question="", answer=first, verifier=name), second)).correct)

    def judge_all(self, rows: Iterable[tuple[Task, str]], form: str = "free") -> Iterator[Verdict]:
        """Judge many, in the order of the input, reading only a little ahead of what was given back."""
        ahead: deque[Future[Verdict]] = deque()
        for task, text in rows:
            ahead.append(self.submit(task, text, form))
            while ahead and (ahead[0].done() or len(ahead) > 64 * self.workers):
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    def submit(self, task: Task, text: str, form: str = "free") -> Future[Verdict]:
        """Judge one reply; the future has its verdict. Safe from any thread. Raises as `judge` does."""
        if self._pid != os.getpid():
            self._reset()
        check(task, form)
        job = _Job(task, text, form)
        verdict = _quick(job)
        with self._lock:
            if self._closed:
                raise RuntimeError("the verifier pool is closed")
            if verdict is None:
                self._start_thread()
                self._jobs.put(job)
        if verdict is not None:
            job.future.set_result(verdict)
        return job.future

    def close(self) -> None:
        """Kill the workers and wait for them; verdicts still open become None."""
        with self._lock:
            if self._closed or self._pid != os.getpid():
                return
            self._closed = True
            threads, processes = list(self._threads), list(self._processes)
        for _ in threads:
            self._jobs.put(None)
        for process in processes:
            process.stop()
        for thread, process in zip(threads, processes, strict=True):
            thread.join()
            process.reap()
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None and job.future.set_running_or_notify_cancel():
                job.future.set_result(_CLOSED)

    def __enter__(self) -> VerifierPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_thread(self) -> None:
        """One more, where none is free and there may be more; the lock is held."""
        if len(self._threads) < self.workers and self._waiting <= self._jobs.qsize():
            process = WorkerProcess(self.time_limit, self.memory_mb)
            thread = threading.Thread(target=self._serve, args=(process,), daemon=True, name="pilotfish-verify")
            self._processes.append(process)
            self._threads.append(thread)
            thread.start()

    def _serve(self, process: WorkerProcess) -> None:
        while True:
            with self._lock:
                self._waiting += 1
            job = self._jobs.get()
            with self._lock:
                self._waiting -= 1
            if job is None:
                return
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(_CLOSED if self._closed else _in_worker(process, job))


def _quick(job: _Job) -> Verdict | None:
    """The verdict that needs no worker; whatever a reply breaks here is left to one."""
    try:
        return quick_judge(job.task, job.text, job.form)
    except Exception:
        return None


def _in_worker(process: WorkerProcess, job: _Job) -> Verdict:
    """The worker's verdict; the thread that asks for it must outlive any error."""
    try:
        return process.judge(job.task, job.text, job.form)
    except Exception as error:
        process.reap()
        return Verdict(None, why=f"the verifier worker could not be used: {type(error).__name__}: {error}")


_CLOSED = Verdict(None, why="the verifier pool was closed")
_POOLS: weakref.WeakSet[VerifierPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_POOLS):
        pool.close()
