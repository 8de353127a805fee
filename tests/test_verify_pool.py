"""The pool of verifier processes: order, limits, deaths, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish.task import Task
from pilotfish.verify import VerifierPool

LIMIT = 4.0
FREEZE = "\\boxed{9^{9^9}}"
"""A power whose digits no process can hold."""


def algebra(number: int) -> tuple[Task, str]:
    """A task and a right answer that only algebra can judge."""
    return Task(str(number), "", f"x^2+{number}x"), f"\\boxed{{x(x+{number})}}"


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=2, time_limit=LIMIT) as shared:
        assert all(verdict.correct for verdict in shared.judge_all([algebra(1), algebra(2), algebra(3)]))
        yield shared


def pids(pool: VerifierPool) -> list[int]:
    return [process._process.pid for process in pool._processes if process._process is not None]


def gone(pid: int) -> bool:
    """Whether a process ends in time (a zombie counts as still there)."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.005)
    return False


def test_verdicts_come_in_the_order_of_the_input(pool: VerifierPool) -> None:
    rows = [algebra(n) if n % 3 else (Task(str(n), "", str(n)), f"\\boxed{{{n + n % 2}}}") for n in range(60)]
    found = [verdict.correct for verdict in pool.judge_all(rows)]
    assert found == [bool(n % 3) or n % 2 == 0 for n in range(60)]


def test_a_poisonous_answer_is_wrong_at_its_time_limit(pool: VerifierPool) -> None:
    verdict = asyncio.run(pool.judge(Task("p", "", "42"), FREEZE))
    assert verdict.reward == 0.0
    assert "time limit" in verdict.why


def test_a_poisonous_answer_delays_nothing() -> None:
    async def play() -> None:
        poison = asyncio.create_task(patient.judge(Task("p", "", "42"), FREEZE))
        others = await asyncio.gather(*(patient.judge(*algebra(n)) for n in range(40)))
        assert all(verdict.correct for verdict in others)
        assert not poison.done()

    with VerifierPool(workers=2, time_limit=200.0) as patient:
        asyncio.run(play())


def test_a_limit_that_the_gold_answer_meets_gives_no_verdict(pool: VerifierPool) -> None:
    verdict = asyncio.run(pool.judge(Task("g", "", "9^{9^9}"), "\\boxed{x+1}"))
    assert verdict.reward is None
    assert verdict.why.startswith("the gold answer alone met the time limit")


def test_an_answer_that_eats_memory_is_wrong_and_the_pool_lives_on() -> None:
    with VerifierPool(workers=1, time_limit=20.0, memory_mb=512) as small:
        memory, after = small.judge_all([(Task("m", "", "42"), "\\boxed{(2^{40000000000})+1}"), algebra(5)])
    assert memory.reward == 0.0
    assert "memory limit" in memory.why or "time limit" in memory.why
    assert after.correct


def test_a_worker_killed_during_a_job_gives_no_verdict_and_is_replaced(tmp_path: Path) -> None:
    begun, file = tmp_path / "begun", tmp_path / "mine.py"
    file.write_text(f"def hangs(gold, text):\n    open({str(begun)!r}, 'w').close()\n    while True:\n        pass\n")
    with VerifierPool(workers=1, time_limit=200.0) as single:
        list(single.judge_all([algebra(1)]))
        (pid,) = pids(single)
        job = single.submit(Task("p", "", "42", f"{file}:hangs"), "42")
        while not begun.exists():
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        assert job.result().reward is None
        assert "died" in job.result().why
        assert single.submit(*algebra(4)).result().correct


def test_a_worker_killed_while_idle_costs_no_verdict() -> None:
    with VerifierPool(workers=1) as single:
        list(single.judge_all([algebra(1)]))
        os.kill(pids(single)[0], signal.SIGKILL)
        assert single.submit(*algebra(2)).result().correct


def test_the_pool_serves_event_loops_in_several_threads(pool: VerifierPool) -> None:
    found: list[bool | None] = []

    def loop(number: int) -> None:
        found.append(asyncio.run(pool.judge(*algebra(number))).correct)

    threads = [threading.Thread(target=loop, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_a_cancelled_verdict_harms_no_other(pool: VerifierPool) -> None:
    async def play() -> bool | None:
        waiting = [asyncio.create_task(pool.judge(*algebra(n))) for n in range(20)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return (await pool.judge(*algebra(99))).correct

    assert asyncio.run(play())


def test_a_forked_child_starts_its_own_workers(pool: VerifierPool) -> None:
    child = os.fork()
    if child == 0:
        right = False
        try:
            right = bool(pool.submit(*algebra(7)).result(timeout=200).correct)
            pool.close()
        finally:
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.submit(*algebra(8)).result().correct


def test_close_leaves_no_process_and_answers_what_was_open() -> None:
    closing = VerifierPool(workers=2, time_limit=30.0)
    list(closing.judge_all([algebra(n) for n in range(6)]))
    left = pids(closing)
    jobs = [closing.submit(Task("p", "", "42"), FREEZE) for _ in range(4)]
    closing.close()
    closing.close()
    assert all(job.result(timeout=60).reward is None for job in jobs)
    assert all(gone(pid) for pid in left)
    with pytest.raises(RuntimeError, match="closed"):
        closing.submit(*algebra(1))


def test_workers_end_when_their_parent_is_killed() -> None:
    code = (
        "import os, signal\n"
        "from pilotfish.task import Task\n"
        "from pilotfish.verify import VerifierPool\n"
        "pool = VerifierPool(workers=1)\n"
        "print(pool.submit(Task('t', '', 'x^2+x'), 'x(x+1)').result().correct, flush=True)\n"
        "print(pool._processes[0]._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    right, pid = done.stdout.split()
    assert right == "True"
    assert gone(int(pid))


def test_reasoning_gym_is_judged_in_a_worker(pool: VerifierPool) -> None:
    entry = {"question": "", "answer": "7", "metadata": {"pair": (1, 2)}}
    task = Task("t", "", "7", verifier="reasoning_gym", meta={"dataset": "chain_sum", "entry": entry})
    assert [verdict.correct for verdict in pool.judge_all([(task, "\\boxed{7}"), (task, "\\boxed{8}")])] == [
        True,
        False,
    ]


def test_two_answers_are_compared_in_a_worker(pool: VerifierPool) -> None:
    assert asyncio.run(pool.equivalent("x^2-1", "(x-1)(x+1)"))
    assert not asyncio.run(pool.equivalent("x^2-1", "(x-1)^2"))


def test_a_job_that_cannot_be_sent_gets_no_verdict(pool: VerifierPool) -> None:
    unsendable = Task("t", "", "7", verifier="reasoning_gym", meta={"dataset": "chain_sum", "entry": {"f": lambda: 7}})
    assert pool.submit(unsendable, "7").result().reward is None
    assert pool.submit(*algebra(3)).result().correct


@pytest.mark.parametrize("verifier", ["maths", "reasoning_gym"])
def test_an_unknown_form_is_refused_before_it_is_queued(pool: VerifierPool, verifier: str) -> None:
    with pytest.raises(ValueError, match="'json' is not one of free, answer_tag"):
        pool.submit(Task("t", "", "7", verifier=verifier), "7", "json")


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="time_limit=0"):
        VerifierPool(time_limit=0)
