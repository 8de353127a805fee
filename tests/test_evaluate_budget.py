"""Accuracy over budget, pass@k and majority@k: told from episodes that were played, by asking nobody."""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish import Journal, Sampling, ScriptedEngine, Task, Team, Verdict
from pilotfish.engine.base import Engine
from pilotfish.evaluate.arms import Arm, Field, Played
from pilotfish.evaluate.budget import Point, curve, length_of
from pilotfish.evaluate.budget_table import at_k_section, budget_csv, budget_section
from pilotfish.evaluate.samples import AtK, at_ks, steps_to
from pilotfish.evaluate.stats import Interval
from pilotfish.team import Member, Messages
from pilotfish.topology import Topology, best_of, debate, hint, leader, mixture, reflect, solo, vote
from pilotfish.verify import judge as verify

TASKS = [Task(f"t{number}", f"Task {number}?", "1") for number in range(6)]


class Bench:
    """An actor whose words follow from the seed of the call, and a count of judged answers."""

    def __init__(self, folder: Path, words: Callable[[Messages, Sampling, int], str] | None = None) -> None:
        self.engine = ScriptedEngine(words or (lambda messages, sampling, seed: _drawn(seed)))
        self.judged = 0
        self.field = Field("b", TASKS, Journal(folder), self.judge)
        engines: dict[str, Engine] = dict.fromkeys(("actor", "ann", "leader"), self.engine)
        self.team = Team({name: Member(name, "m", sampling=Sampling(temperature=1)) for name in engines}, engines)

    async def judge(self, task: Task, answer: str, form: str) -> Verdict:
        self.judged += 1
        return verify(task, answer, form)

    def play(self, topology: Topology, samples: int = 1) -> Played:
        arm = Arm(topology.label, topology, self.team)
        return Played(arm, asyncio.run(self.field.sample(arm, samples)))

    def curve(self, played: Played) -> list[Point]:
        return asyncio.run(curve(played, self.field, at_ks(played, TASKS)))


def _drawn(seed: int) -> str:
    return f"The answer is {random.Random(seed).choice([1, 1, 2, 3])}."


def figures(points: list[Point]) -> list[tuple[str, int, float, float]]:
    return [(point.by, point.length, point.accuracy, point.calls) for point in points]


@pytest.mark.parametrize(
    ("topology", "option", "lengths"),
    [
        (vote.bind(samples=6), "samples", range(1, 7)),
        (debate.bind(agents=["actor", "ann"], rounds=3), "rounds", range(1, 4)),
        (leader.bind(agents=["actor", "ann"], rounds=3), "rounds", range(1, 4)),
        (reflect.bind(rounds=3), "rounds", range(1, 4)),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else None,
)
def test_a_shorter_play_is_what_the_method_says_when_it_is_played_for_less(
    topology: Topology, option: str, lengths: range, tmp_path: Path
) -> None:
    bench = Bench(tmp_path)
    points = bench.curve(bench.play(topology))
    calls = bench.engine.calls
    expected = []
    for length in lengths:
        played = bench.play(topology.bind(**{option: length}))
        expected += [point for point in bench.curve(played) if point.length == length]
    assert figures(points) == figures(expected)
    assert [point.tokens for point in points] == [point.tokens for point in expected]
    assert bench.engine.calls == calls, "all of it was in the record"


def test_reflection_that_ends_early_costs_what_it_asked(tmp_path: Path) -> None:
    def words(messages: Messages, sampling: Sampling, seed: int) -> str:
        if "Verdict" not in messages[-1]["content"]:
            return _drawn(seed)
        return "Verdict: right" if "Task 0" in messages[-1]["content"] else "Verdict: wrong"

    bench = Bench(tmp_path, words)
    points = bench.curve(bench.play(reflect.bind(rounds=2)))
    assert [point.calls for point in points] == [pytest.approx((2 + 5 * 3) / 6), pytest.approx((2 + 5 * 5) / 6)]


@pytest.mark.parametrize(
    ("topology", "point"),
    [
        (best_of.bind(samples=3), ("samples", 3, 4)),
        (mixture.bind(agents=["actor", "ann"], aggregator="leader", layers=3), ("layers", 3, 5)),
        (solo, ("whole", 1, 1)),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else None,
)
def test_what_would_have_to_be_asked_is_left_out(
    topology: Topology, point: tuple[str, int, int], tmp_path: Path
) -> None:
    bench = Bench(tmp_path)
    (only,) = bench.curve(bench.play(topology))
    assert (only.by, only.length, only.calls) == point


def test_samples_are_a_majority_at_so_many_times_the_calls(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    played = bench.play(solo, samples=5)
    points = bench.curve(played)
    assert [(point.by, point.length, point.calls) for point in points] == [
        ("whole", 1, 1),
        *(("majority", k, k) for k in range(2, 6)),
    ]
    right = [sum(row) / 5 for row in played.rewards]
    assert points[0].accuracy == pytest.approx(sum(right) / 6)
    assert points[0].tokens * 5 == pytest.approx(points[4].tokens)
    most = [row.count(1) > 5 / 2 for row in played.rewards]
    assert points[4].accuracy >= sum(most) / 6


def test_pass_at_1_is_the_accuracy_and_pass_at_n_whether_any_was_right(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    played = bench.play(solo, samples=4)
    found = {point.k: point for point in at_ks(played, TASKS)}
    assert sorted(found) == [1, 2, 3, 4]
    assert found[1].pass_at.estimate == pytest.approx(sum(map(sum, played.rewards)) / 24)
    assert found[1].majority == found[1].pass_at
    assert found[4].pass_at.estimate == pytest.approx(sum(any(row) for row in played.rewards) / 6)
    assert at_ks(bench.play(solo), TASKS) == []


def test_an_episode_without_a_verdict_is_no_sample(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    lost = iter(range(10_000))

    async def judge(task: Task, answer: str, form: str) -> Verdict:
        return Verdict(None, None, "nobody knows") if task.id == "t0" and next(lost) % 2 else verify(task, answer, form)

    bench.field = Field("b", TASKS, Journal(tmp_path), judge)
    found = {point.k: point for point in at_ks(bench.play(solo, samples=4), TASKS)}
    assert [found[k].pass_at.n for k in (1, 2, 3, 4)] == [6, 6, 5, 5]
    assert found[3].majority.unjudged == 1


def test_a_turn_that_failed_leaves_its_task_out_of_the_point(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine._fail = lambda messages, sampling, seed: "Task 2?" in messages[-1]["content"]
    points = bench.curve(bench.play(vote.bind(samples=2)))
    assert [point.n for point in points] == [5, 5]


def test_many_samples_are_told_at_fewer_ks() -> None:
    assert steps_to(5) == [1, 2, 3, 4, 5]
    assert steps_to(40) == [*range(1, 17), 20, 24, 32, 40]
    assert steps_to(70)[-2:] == [64, 70]


def test_the_first_option_of_several_is_the_length() -> None:
    assert length_of(vote.bind(of="leader", samples=2, options={"rounds": 5})) == ("samples", 2)
    assert length_of(hint) is None


def test_the_tables_tell_what_a_budget_buys() -> None:
    def point(by: str, length: int, accuracy: float, calls: float) -> Point:
        return Point(by, length, accuracy, 0.1, 0.9, 10, calls, 10 * calls)

    curves = {
        "vote": [point("samples", length, length / 10, length) for length in (1, 2, 3, 4, 5)],
        "debate": [point("rounds", 1, 0.3, 3), point("rounds", 2, 0.7, 6)],
    }
    section = budget_section(curves)
    assert [head for head, _ in section.columns] == ["method", "1", "2", "4", "8"]
    assert section.lines() == [("vote", "10.0", "20.0", "40.0", "50.0"), ("debate", "–", "–", "30.0", "70.0")]
    lines = list(csv.DictReader(io.StringIO(budget_csv(curves))))
    assert [(line["arm"], line["by"], line["calls"]) for line in lines[4:6]] == [
        ("vote", "samples", "5"),
        ("debate", "rounds", "3"),
    ]
    shares = [AtK("solo", k, Interval(k / 100, 0, 1, 9), Interval(k / 200, 0, 1, 9)) for k in range(1, 17)]
    heads = [head for head, _ in at_k_section(shares).columns]
    assert heads == ["method", "pass@1", "pass@4", "pass@8", "pass@16", "majority@4", "majority@8", "majority@16"]
