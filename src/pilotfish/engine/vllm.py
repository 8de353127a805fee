"""The `vllm` engine: a server that the run starts for itself, and the OpenAI engine in front of it.

    member = MemberConfig(engine="vllm", model="Qwen/Qwen2.5-7B-Instruct", vllm=VllmConfig(gpus=(1,), memory=0.9))
    server = VllmServer("actor", member, Path("runs/hint/logs/actor.log"))
    engine = VllmEngine(server, OpenAIEngine(model=member.model, base_url=server.base_url))
    completion = await engine.complete(messages, sampling, seed)      # the first call starts it and waits
    await engine.close()                                              # the last engine to close stops it

Servers start one after the other: each measures how much of its GPU is free. A watcher process (watcher.py) ends the
server when the run ends, however that comes about. Of several processes the main one has the server, and the others
hold `server.elsewhere()`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pilotfish.engine import watcher
from pilotfish.engine.base import CallFailed, Completion, Refused, SaidElsewhere, Wrapped
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.engine.vllm_command import (
    HOST,
    NOT_INSTALLED,
    WAY_OUT,
    command,
    environment,
    find_vllm,
    free_port,
    is_free,
    is_healthy,
    stamp,
)
from pilotfish.engine.wire import clean
from pilotfish.member import MemberConfig

GRACE_S = 15.0
"""Seconds from SIGTERM to SIGKILL."""
POLL_S = 0.2
"""Seconds between two looks at a server that is starting."""
SAY_EVERY_S = 20.0
"""Seconds between two lines about a server that is starting."""
TAIL_LINES = 20
"""Lines of a log that an error shows."""

_starting_one = threading.Lock()


class VllmServer:
    """A `vllm serve` of this run. It runs from `starting` to `stop`, and can be started again.

    Args:
        name: of the member that it is started for.
        member: which model, and how it is served.
        log: file that gets what it says, after what is there.
        more: arguments that the member's part in the run adds.
        env: variables that it adds; of its GPUs, those that `vllm.gpus` counts.
        scratch: a folder that goes with the server, whoever makes it.
        grace_s: seconds it has to end before it is killed.
        told: takes a line about its start; standard error by default.
    """

    def __init__(
        self,
        name: str,
        member: MemberConfig,
        log: Path,
        *,
        more: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        scratch: Path | None = None,
        grace_s: float = GRACE_S,
        told: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
    ) -> None:
        self.name = name
        self.member = member
        self.log = log
        self.port = member.served.port or free_port()
        self.engines = 0
        """How many have it open."""
        self.scratch = scratch
        self._more, self._env = more, dict(env or {})
        self._grace_s = grace_s
        self._told = told
        self._lock = threading.Lock()
        self._ready: Future[str] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._log_begins = 0

    @property
    def base_url(self) -> str:
        return _url(self.port)

    def elsewhere(self) -> ServerElsewhere:
        """The same server, as other processes of this launch see it."""
        return ServerElsewhere(self.name, self.member, self.log, self.port, self.scratch)

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers.

        Raises:
            Refused: it is not installed, ended, or took too long; with the end of its log.
        """
        if why := self.starting().result():
            raise Refused(why)

    def starting(self) -> Future[str]:
        """Start it unless it runs. The result is empty once it answers, or says why it never will."""
        with self._lock:
            if self._ready is None:
                self._ready = Future()
                self._ready.set_running_or_notify_cancel()  # one waiter's cancellation is not the others'
                threading.Thread(target=self._start, args=(self._ready,), name=f"vllm-{self.name}", daemon=True).start()
            return self._ready

    def ended(self) -> str:
        """Why it no longer runs; empty while it does."""
        process = self._watcher
        code = None if process is None or self._stopping.is_set() else process.poll()
        return "" if code is None else f"{self.name}: vllm serve has ended with code {code}; {self._tail()}"

    def died(self) -> str:
        """As `ended`, where others have met nobody at its port: waits for its watcher to see it too."""
        if self._watcher is not None and is_free(self.port):
            with suppress(subprocess.TimeoutExpired):
                self._watcher.wait(self._grace_s)
        return self.ended()

    def stop(self) -> None:
        """End it and its workers; returns when they are gone, or cannot be ended."""
        self._stopping.set()
        ready = self._ready
        if ready is not None:
            ready.exception()
        self._end()
        with self._lock:
            self._ready, self._stopping = None, threading.Event()

    def _start(self, ready: Future[str]) -> None:
        try:
            with self._turn():
                why = self._begun() or self._waited()
            if why:
                self._end()
            ready.set_result(why)
        except BaseException as error:
            self._end()
            ready.set_exception(error)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for other servers to be ready; a stop ends the wait."""
        held = False
        while not held and not self._stopping.is_set():
            held = _starting_one.acquire(timeout=POLL_S)
        try:
            yield
        finally:
            if held:
                _starting_one.release()

    def _begun(self) -> str:
        if self._stopping.is_set():
            return f"{self.name}: stopped before vllm serve was started"
        executable = find_vllm()
        if executable is None:
            return f"{self.name}: engine vllm: {NOT_INSTALLED}; {WAY_OUT}"
        if not is_free(self.port):
            return f"{self.name}: port {self.port} is taken; leave vllm.port out, or end what listens there"
        gpus = self.member.served.gpus
        place = f" on GPU {', '.join(map(str, gpus))}" if gpus else ""
        self._told(f"{self.name}: starting vllm serve {self.member.model}{place}, port {self.port}; log: {self.log}")
        self._launch(command(executable, self.member, self.port, self._more))
        return ""

    def _launch(self, served: Sequence[str]) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        ending = [str(os.getpid()), str(self._grace_s), str(self.scratch or "")]
        watched = [sys.executable, "-I", watcher.__file__, *ending, *served]
        with self.log.open("ab") as log:
            self._log_begins = log.tell()
            self._watcher = subprocess.Popen(
                watched,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment(self.name, self.member.served.gpus, {**os.environ, **self._env}),
                start_new_session=True,
            )

    def _waited(self) -> str:
        """Empty once it answers, else why it does not."""
        began = said = time.monotonic()
        while not self._stopping.is_set():
            if why := self.ended():
                return why
            now = time.monotonic()
            if is_healthy(self.port):
                self._told(f"{self.name}: vllm serve is ready after {now - began:.0f} s")
                return ""
            if now - began > self.member.served.startup_s:
                return (
                    f"{self.name}: vllm serve is not ready after {self.member.served.startup_s:g} s; raise "
                    f"vllm.startup_s (a first start also fetches the model); {self._tail()}"
                )
            if now - said > SAY_EVERY_S:
                said = now
                self._told(f"{self.name}: vllm serve, {now - began:.0f} s: {''.join(self._lines()[-1:])}")
            self._stopping.wait(POLL_S)
        return f"{self.name}: stopped before vllm serve was ready"

    def _end(self) -> None:
        process, self._watcher = self._watcher, None
        if process is None or process.stdin is None:
            return
        with suppress(BrokenPipeError):  # a byte, since a forked process may hold the pipe open
            process.stdin.write(b".")
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(self._grace_s + 5)

    def _tail(self) -> str:
        lines = "".join(f"\n  {line}" for line in self._lines()[-TAIL_LINES:])
        return f"the end of {self.log}:{lines}" if lines else f"{self.log} is empty"

    def _lines(self) -> list[str]:
        """The last lines since this start, fit to be shown."""
        with self.log.open("rb") as log:
            log.seek(max(self._log_begins, log.seek(0, os.SEEK_END) - 8192))
            text = log.read().decode(errors="replace")
        # A progress bar rewrites its line: only how it ended is shown.
        return [line for line in (clean(part.rpartition("\r")[2]) for part in text.split("\n")) if line]


@dataclass
class ServerElsewhere:
    """A `vllm serve` of this run that the main process has started, and ends. Can be pickled."""

    name: str
    member: MemberConfig
    log: Path
    port: int
    scratch: Path | None = None
    engines: int = 0
    """How many have it open in this process."""

    @property
    def base_url(self) -> str:
        return _url(self.port)

    def start(self) -> None:
        """It runs."""

    def starting(self) -> Future[str]:
        """Done."""
        ready: Future[str] = Future()
        ready.set_result("")
        return ready

    def ended(self) -> str:
        """Empty while it runs.

        Raises:
            SaidElsewhere: it has ended; the main process knows how.
        """
        if is_free(self.port):
            raise SaidElsewhere(f"vllm serve has ended; see {self.log}")
        return ""

    def stop(self) -> None:
        """The main process stops it."""


Server = VllmServer | ServerElsewhere


def _url(port: int) -> str:
    return f"http://{HOST}:{port}/v1"


class VllmEngine(Wrapped):
    """Asks a server of the run's own, which the first call starts.

    Args:
        server: shared by the engines of one deployment.
        openai: set to the server's address.
        version: of the weights, where a member has been trained.
    """

    def __init__(self, server: Server, openai: OpenAIEngine, version: int = 0) -> None:
        super().__init__(openai)
        self.server = server
        self._version = version
        self._stamp = stamp(server.member.model)
        self._closed = False
        server.engines += 1

    @property
    def identity(self) -> str:
        """A folder is named with what stands in it: another export may be written there."""
        return f"{self.engine.identity} {self._stamp}" if self._stamp else f"{self.engine.identity}"

    @property
    def version(self) -> int:
        return self._version

    async def around(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        if self._closed:
            raise CallFailed(f"{self.server.name}: the engine was closed")
        if why := await asyncio.wrap_future(self.server.starting()) or self.server.ended():
            raise Refused(why)
        try:
            return await ask()
        except CallFailed as error:
            await asyncio.sleep(2 * watcher.POLL_S)  # until its watcher has seen that it ended
            if why := self.server.ended():
                raise Refused(why) from error
            raise

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.server.engines -= 1
        try:
            await super().close()
        finally:
            if not self.server.engines:
                await asyncio.to_thread(self.server.stop)
