"""Verification: the pool against one process and against math-verify, and what one poisonous answer costs the rest.

    python bench/verify.py [--rows 400] [--workers 2] [--limit 3]

Times are wall seconds. `judge` is the same code in this process without protection; math-verify is its own `parse` of
both sides and `verify`, in this process too. The rows are all different, so nothing is answered from a cache.
Each figure ends as a line `ratio NAME VALUE`.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from math_verify import parse, verify

from pilotfish.task import Task
from pilotfish.verify import Verdict, VerifierPool, judge

Row = tuple[Task, str]

POISON = (Task("poison", "", "42"), "\\boxed{9^{9^9}}")


def algebra_rows(count: int, first: int) -> list[Row]:
    """Right answers that only algebra can judge."""
    shapes: list[Callable[[int], tuple[str, str]]] = [
        lambda n: (f"x^2+{n}x", f"x(x+{n})"),
        lambda n: (f"{n}\\sqrt{{8}}", f"{2 * n}\\sqrt{{2}}"),
        lambda n: (f"\\frac{{x+{n}}}{{7}}", f"\\frac{{x}}{{7}}+\\frac{{{n}}}{{7}}"),
        lambda n: (f"y={n}x-3", f"{n}x-y-3=0"),
    ]
    pairs = [shapes[n % len(shapes)](n) for n in range(first, first + count)]
    return [(Task(str(i), "", gold), f"So it is $\\boxed{{{answer}}}$.") for i, (gold, answer) in enumerate(pairs)]


def number_rows(count: int) -> list[Row]:
    """Right answers that are numbers, in other spellings than the gold answer's."""
    return [(Task(str(n), "", f"{n}/8"), f"So it is $\\boxed{{\\frac{{{n}}}{{8}}}}$.") for n in range(1, 2 * count, 2)]


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_process(rows: list[Row]) -> None:
    """Judge each row here."""
    assert all(judge(task, text).correct for task, text in rows)


def in_pool(pool: VerifierPool, rows: list[Row]) -> None:
    """Judge all rows in the pool."""
    assert all(verdict.correct for verdict in pool.judge_all(rows))


def by_math_verify(rows: list[Row]) -> None:
    """Judge each row with math-verify alone."""
    for task, text in rows:
        gold = parse(f"${task.answer}$", parsing_timeout=None)
        verify(gold, parse(text, parsing_timeout=None), timeout_seconds=None)


def last_of(jobs: list[Future[Verdict]]) -> None:
    """Wait for all."""
    assert all(job.result().correct for job in jobs)


def warm(pool: VerifierPool) -> None:
    """Have every worker started before the clock."""
    jobs = [pool.submit(*row) for row in algebra_rows(40 * pool.workers, 90_000)]
    last_of(jobs)
    in_process(algebra_rows(4, 95_000))
    by_math_verify(number_rows(1))


def throughput(pool: VerifierPool, count: int) -> None:
    """Rows a second: one process, the pool, math-verify."""
    rows = algebra_rows(count, 1_000)
    one, many, stock = (
        seconds(lambda: in_process(rows)),
        seconds(lambda: in_pool(pool, algebra_rows(count, 1_000 + count))),
        seconds(lambda: by_math_verify(algebra_rows(count, 1_000 + 2 * count))),
    )
    numbers = number_rows(count)
    quick, stock_numbers = seconds(lambda: in_pool(pool, numbers)), seconds(lambda: by_math_verify(numbers))
    for name, took in (("judge", one), ("pool", many), ("math-verify", stock)):
        print(f"algebra, {count} rows: {name:12} {took:6.2f} s {count / took:8.0f} rows/s")
    for name, took in (("pool", quick), ("math-verify", stock_numbers)):
        print(f"numbers, {count} rows: {name:12} {took:6.2f} s {count / took:8.0f} rows/s")
    print(f"ratio verify_pool_over_one_process {one / many:.2f}")
    print(f"ratio verify_pool_over_math_verify {stock / many:.2f}")
    print(f"ratio verify_numbers_over_math_verify {stock_numbers / quick:.1f}")


def poison(pool: VerifierPool, count: int) -> None:
    """The same number of rows with and without one answer that never ends."""
    clean = seconds(lambda: last_of([pool.submit(*row) for row in algebra_rows(count, 20_000)]))
    started = time.perf_counter()
    ended: list[float] = []
    bad = pool.submit(*POISON)
    bad.add_done_callback(lambda _: ended.append(time.perf_counter() - started))
    last_of([pool.submit(*row) for row in algebra_rows(count, 40_000)])
    others = time.perf_counter() - started
    verdict = bad.result()
    own = ended[0]
    print(
        f"{count} rows: {clean:.2f} s; beside one poisonous answer {others:.2f} s; it took {own:.2f} s: {verdict.why}"
    )
    print(f"ratio verify_rest_beside_poison {others / clean:.2f}")
    print(f"ratio verify_poison_over_its_limit {own / pool.time_limit:.2f}")


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=400, help="rows of each kind")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--limit", type=float, default=3.0, help="time limit for one answer, in seconds")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with VerifierPool(workers=options.workers, time_limit=options.limit) as pool:
        warm(pool)
        throughput(pool, options.rows)
        poison(pool, options.rows)


if __name__ == "__main__":
    main()
