"""A leader's evaluation: figures by round on a team whose answers are known, and the arms that are compared."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from mock_server import MockServer
from pilotfish import Journal, Sampling, ScriptedEngine, Task, Team, Verdict
from pilotfish.cli import main
from pilotfish.engine.base import Engine
from pilotfish.evaluate.arms import Arm, Field, answering, baselines, control, leading, variants
from pilotfish.evaluate.bench import Result, compare
from pilotfish.evaluate.comparison import compared
from pilotfish.evaluate.lineup import standard_arms
from pilotfish.evaluate.record import names, write
from pilotfish.evaluate.rounds import Cell, by_round
from pilotfish.evaluate.rounds_table import rounds_rich
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.run import Run
from pilotfish.team import Member, Messages
from pilotfish.topology import Topology, alone, hint, leader, solo, vote
from pilotfish.verify import judge as verify

GONE = "gone"
"""An agent that does not answer."""


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return verify(task, answer, form)


def tagged(answer: str) -> str:
    return f"<think>why</think><answer>{answer}</answer>"


# What each agent and the leader say on each task, round by round. Right is 1.
SAID: list[list[tuple[list[str], str]]] = [
    [(["1", "1", "5"], tagged("1")), (["1", "1", "1"], tagged("1"))],
    [(["1", "5", "5"], tagged("5")), (["5", "5", "1"], tagged("1"))],
    [(["5", "6", "7"], tagged("1")), (["1", GONE, "5"], tagged("9"))],
    [(["1", "1", "1"], "It is 1."), (["5", "5", ""], "<answer>1</answer>")],
]
TASKS = [Task(f"t{number}", f"Task {number}?", "1") for number in range(len(SAID))]
AGENTS = ("ann", "bob", "cy")


class Script:
    """Engines that say what a script has for the task, the round and the seat."""

    def __init__(self, said: Sequence[Sequence[tuple[Sequence[str], str]]], agents: Sequence[str] = AGENTS) -> None:
        self.said = said
        self.heard: dict[tuple[str, str], int] = {}
        self.engines: dict[str, Engine] = {name: self.seat(name, at) for at, name in enumerate(agents)}
        self.engines["leader"] = ScriptedEngine(lambda messages, sampling, seed: self.next("leader", messages)[1])

    def seat(self, name: str, at: int) -> ScriptedEngine:
        def gone(messages: Messages, sampling: Sampling, seed: int) -> bool:
            return self.peek(name, messages)[0][at] == GONE and bool(self.next(name, messages))

        return ScriptedEngine(lambda messages, sampling, seed: self.next(name, messages)[0][at], fail=gone)

    def peek(self, name: str, messages: Messages) -> tuple[Sequence[str], str]:
        task = re.findall(r"Task (\d+)\?", messages[-1]["content"])[0]
        return self.said[int(task)][self.heard.get((name, task), 0)]

    def next(self, name: str, messages: Messages) -> tuple[Sequence[str], str]:
        task, found = re.findall(r"Task (\d+)\?", messages[-1]["content"])[0], self.peek(name, messages)
        self.heard[name, task] = self.heard.get((name, task), 0) + 1
        return found


def team(engines: Mapping[str, Engine], trainee: str | None = "leader") -> Team:
    sampling = Sampling(temperature=1.0)
    return Team({name: Member(name, "m", name == trainee, sampling) for name in engines}, engines)


def cells(program: Topology, seats: Team, tasks: Sequence[Task], folder: Path) -> list[Cell]:
    async def both() -> list[Cell]:
        episodes = await Field("b", tasks, Journal(folder), judge).play(Arm("leader", program, seats))
        return await by_round(program, tasks, episodes, judge)

    return asyncio.run(both())


def told(found: Sequence[Cell], table: str) -> dict[tuple[str, str], tuple[float | None, int, int]]:
    return {
        (cell.line, cell.column): (None if isnan(cell.mean) else round(cell.mean, 4), cell.n, cell.absent)
        for cell in found
        if cell.table == table
    }


# -- the figures


@pytest.mark.parametrize("trainee", ["leader", None])
def test_the_figures_of_a_team_that_is_known(trainee: str | None, tmp_path: Path) -> None:
    found = cells(leader.bind(rounds=2), team(Script(SAID).engines, trainee), TASKS, tmp_path)
    assert told(found, "rounds") == {
        ("leader", "0"): (0.5, 4, 0),
        ("majority of agents", "0"): (0.5, 4, 0),
        ("mean of agents", "0"): (0.5, 4, 0),
        ("ann", "0"): (0.75, 4, 0),
        ("bob", "0"): (0.5, 4, 0),
        ("cy", "0"): (0.25, 4, 0),
        ("leader", "1"): (0.75, 4, 0),
        ("majority of agents", "1"): (0.5, 4, 0),
        ("mean of agents", "1"): (0.4583, 4, 1),
        ("ann", "1"): (0.5, 4, 0),
        ("bob", "1"): (0.3333, 3, 1),
        ("cy", "1"): (0.5, 4, 0),
    }
    assert told(found, "right") == {
        ("0 of 3", "leader"): (1.0, 1, 0),
        ("0 of 3", "majority of agents"): (0.0, 1, 0),
        ("1 of 3", "leader"): (0.5, 2, 0),
        ("1 of 3", "majority of agents"): (0.5, 2, 0),
        ("2 of 3", "leader"): (None, 0, 0),
        ("2 of 3", "majority of agents"): (None, 0, 0),
        ("3 of 3", "leader"): (1.0, 1, 0),
        ("3 of 3", "majority of agents"): (1.0, 1, 0),
    }
    assert told(found, "whose") == {
        ("the majority's", "share"): (0.25, 1, 0),
        ("the majority's", "leader"): (1.0, 1, 0),
        ("a minority's", "share"): (0.25, 1, 0),
        ("a minority's", "leader"): (1.0, 1, 0),
        ("no agent's", "share"): (0.5, 2, 0),
        ("no agent's", "leader"): (0.5, 2, 0),
        ("not to be read", "share"): (0.0, 0, 0),
        ("not to be read", "leader"): (None, 0, 0),
    }
    assert told(found, "form") == {
        ("none", "share"): (0.75, 6, 0),
        ("no <answer> tag", "share"): (0.125, 1, 0),
        ("no <think>…</think> before <answer>", "share"): (0.125, 1, 0),
    }
    last = next(cell for cell in found if (cell.table, cell.line, cell.column) == ("rounds", "leader", "1"))
    assert (last.low, last.high) == pytest.approx((0.25, 1.25)), "two standard errors of 1, 1, 0, 1"


def test_one_agent_is_a_team(tmp_path: Path) -> None:
    said = [[(["1"], tagged("1"))], [(["5"], "<think>5</think><answer>5"), (["5"], tagged("5"))]]
    found = cells(leader, team(Script(said, ["ann"]).engines), TASKS[:2], tmp_path)
    assert told(found, "right") == {
        ("0 of 1", "leader"): (0.0, 1, 0),
        ("0 of 1", "majority of agents"): (0.0, 1, 0),
        ("1 of 1", "leader"): (1.0, 1, 0),
        ("1 of 1", "majority of agents"): (1.0, 1, 0),
    }
    assert told(found, "whose")["not to be read", "share"] == (0.5, 1, 0)
    assert told(found, "form")["the <answer> tag is not closed", "share"] == (0.5, 1, 0)


def test_sixteen_agents_some_of_them_copies(tmp_path: Path) -> None:
    answers = iter(["1"] * 5 + ["5"] * 8)
    engines: dict[str, Engine] = {
        "ann": ScriptedEngine(lambda messages, sampling, seed: next(answers)),
        "bob": ScriptedEngine(["1"] * 3),
        "leader": ScriptedEngine([tagged("1")]),
    }
    program = leader.bind(agents=["ann"] * 13 + ["bob"] * 3)
    found = cells(program, team(engines), TASKS[:1], tmp_path)
    rounds = told(found, "rounds")
    assert rounds["ann", "0"] == rounds["ann 5", "0"] == rounds["bob 3", "0"] == (1.0, 1, 0)
    assert rounds["ann 6", "0"] == rounds["ann 13", "0"] == (0.0, 1, 0)
    assert rounds["mean of agents", "0"] == (0.5, 1, 0)
    assert told(found, "right")["8 of 16", "leader"] == (1.0, 1, 0)
    assert len({line for line, _ in told(found, "right")}) == 17
    assert rounds["majority of agents", "0"] == (1.0, 1, 0), "eight against eight: the first agent's"


def test_a_task_on_which_nobody_answered_has_no_leader_and_only_absences(tmp_path: Path) -> None:
    said = [[([GONE, GONE], "")], [(["1", GONE], tagged("1"))]]
    found = cells(leader, team(Script(said, ["ann", "bob"]).engines), TASKS[:2], tmp_path)
    assert told(found, "rounds") == {
        ("leader", "0"): (1.0, 1, 0),
        ("majority of agents", "0"): (1.0, 1, 0),
        ("mean of agents", "0"): (1.0, 1, 3),
        ("ann", "0"): (1.0, 1, 1),
        ("bob", "0"): (None, 0, 2),
    }
    assert told(found, "right")["1 of 2", "leader"] == (1.0, 1, 0)
    assert told(found, "whose")["the majority's", "share"] == (1.0, 1, 0)


def test_a_task_whose_last_round_nobody_led_counts_in_the_rounds_before_it_only(tmp_path: Path) -> None:
    said = [[(["1"], tagged("1")), ([GONE], "")], [(["1"], tagged("1")), (["5"], tagged("5"))]]
    found = cells(leader.bind(rounds=2), team(Script(said, ["ann"]).engines), TASKS[:2], tmp_path)
    assert told(found, "rounds")["leader", "0"] == (1.0, 2, 0)
    assert told(found, "rounds")["leader", "1"] == (0.0, 1, 0)
    assert told(found, "whose")["the majority's", "share"] == (1.0, 1, 0)
    assert told(found, "right")["1 of 1", "leader"] == (None, 0, 0)


def test_an_answer_without_a_verdict_is_left_out(tmp_path: Path) -> None:
    tasks = [Task("t0", "Task 0?", ""), TASKS[1]]
    found = cells(leader, team(Script([one[:1] for one in SAID[:2]]).engines), tasks, tmp_path)
    assert told(found, "rounds")["leader", "0"] == (0.0, 1, 0)
    assert told(found, "rounds")["mean of agents", "0"] == (0.3333, 1, 0)
    assert sum(n for (_, column), (_, n, _) in told(found, "right").items() if column == "leader") == 1


def test_agents_that_are_there_and_cannot_be_read_are_no_majority_and_wrong(tmp_path: Path) -> None:
    found = cells(leader, team(Script([[(["", ""], tagged("1"))]], ["ann", "bob"]).engines), TASKS[:1], tmp_path)
    assert told(found, "rounds")["majority of agents", "0"] == (0.0, 1, 0)
    assert told(found, "whose")["no agent's", "leader"] == (1.0, 1, 0)


def test_a_task_with_an_agent_that_nobody_could_judge_is_in_no_line_of_right_agents(tmp_path: Path) -> None:
    async def undecided(task: Task, answer: str, form: str) -> Verdict:
        return Verdict(None) if answer == "7" else verify(task, answer, form)

    async def both() -> list[Cell]:
        seats = team(Script([[(["1", "7"], tagged("1"))], SAID[0][:1]], ["ann", "bob"]).engines)
        episodes = await Field("b", TASKS[:2], Journal(tmp_path), judge).play(Arm("leader", leader, seats))
        return await by_round(leader, TASKS[:2], episodes, undecided)

    found = asyncio.run(both())
    assert told(found, "rounds")["mean of agents", "0"] == (1.0, 2, 0)
    assert told(found, "rounds")["bob", "0"] == (1.0, 1, 0)
    assert [told(found, "right")[f"{right} of 2", "leader"][1] for right in range(3)] == [0, 0, 1]


def test_a_leader_that_is_also_one_of_its_agents_is_told_apart_by_where_it_speaks(tmp_path: Path) -> None:
    engines: dict[str, Engine] = {"leader": ScriptedEngine(["1", tagged("5")]), "ann": ScriptedEngine(["5"])}
    found = cells(leader.bind(agents=["leader", "ann"]), team(engines, None), TASKS[:1], tmp_path)
    assert [line for line, _ in told(found, "rounds")][3:] == ["leader (as agent)", "ann"]
    assert told(found, "rounds")["leader", "0"] == (0.0, 1, 0)
    assert told(found, "form") == {("none", "share"): (1.0, 1, 0)}


def test_a_topology_without_a_leader_has_no_rounds() -> None:
    with pytest.raises(ValueError, match="topology hint has no option `leader`"):
        asyncio.run(by_round(hint, [], [], judge))


# -- the arms

MEMBERS: dict[str, dict[str, Any]] = {
    "leader": {"model": "m", "train": "lora", "sampling": {"temperature": 1.0}},
    **{name: {"model": name, "sampling": {"temperature": 1.0}} for name in (*AGENTS, "weaker")},
}
OWN = {"name": "leader", "options": {"rounds": 2, "agents": list(AGENTS)}}
WEAKER = {"name": "leader", "options": {"rounds": 2, "leader": "weaker", "agents": list(AGENTS)}}


def recipe(*against: Any, topology: Any = OWN, **evaluation: Any) -> Recipe:
    return parse_recipe({"team": MEMBERS, "topology": topology, "evaluate": {"against": list(against), **evaluation}})


def arms(made: Recipe, folder: Path, *, best: bool = True) -> list[Arm]:
    """Standard arms with scripted engines; trained weights give the right answer, untrained ones a wrong one."""
    run = Run(folder, made)
    if best:
        run.best.mkdir()
        run.mark_best(run.best, 3)

    def engine(name: str) -> ScriptedEngine:
        words = tagged("5") if name in ("leader", "weaker") else "1"
        return ScriptedEngine(lambda messages, sampling, seed: words)

    trained = ScriptedEngine(lambda messages, sampling, seed: tagged("1"), version=9)
    seats = SimpleNamespace(engine=engine, trained=lambda best, version: trained)
    return standard_arms(made, run, seats)  # type: ignore[arg-type]


def test_a_leader_is_compared_with_a_weaker_one_with_itself_alone_and_with_its_own_votes(tmp_path: Path) -> None:
    made = recipe(
        WEAKER,
        "solo",
        {"name": "vote", "options": {"members": list(AGENTS), "samples": 20}},
        {"name": "vote", "options": {"of": "leader", "samples": 2, "options": OWN["options"]}},
        {"name": "leader", "options": {"rounds": 2, "agents": ["ann", "ann", "ann"]}},
        alone=True,
    )
    compared = arms(made, tmp_path / "run")
    others = [
        "vote(of: leader, samples: 2, rounds: 2, agents: ann+bob+cy)",
        "leader(agents: ann+ann+ann)",
        "alone",
        "leader",
    ]
    assert [(arm.name, arm.role) for arm in compared] == [
        ("leader(leader: weaker)", "baseline"),
        ("vote(samples: 20, members: ann+bob+cy)", "baseline"),
        *((f"{name}, untrained", "untrained") for name in others),
        *((f"{name}, trained", "trained") for name in others),
    ]
    assert leading(compared) is compared[-1]
    played = asyncio.run(
        compare(Field("b", TASKS[:2], Journal(tmp_path / "j"), judge), compared, made, lambda *_: None)
    )
    figures = {row.name: row for row in played.rows}
    assert figures["leader, trained"].accuracy == figures["alone, trained"].accuracy == 1.0
    assert (
        figures["leader, untrained"].accuracy
        == figures["alone, untrained"].accuracy
        == figures[compared[0].name].accuracy
        == 0.0
    )
    assert set(figures["leader, trained"].difference_to) == {arm.name for arm in compared[:-1]}
    assert set(figures["alone, trained"].difference_to) == {compared[0].name, "alone, untrained"}
    assert [figures[arm.name].calls for arm in compared[:5]] == [8, 20, 16, 8, 1]
    assert all(row.leak_rate is None for row in played.rows), "who answers cannot leak"
    assert set(played.rounds) == {arm.name for arm in compared if arm.topology.name == "leader"}


def test_trained_weights_are_compared_in_their_topology_with_all_weights_before_them() -> None:
    team = Team({}, {})
    weights = [("untrained", "untrained"), ("zero-shot", "trained"), ("mlpo", "trained"), ("mlpo+", "trained")]
    found = [Arm("solo", solo, team)]
    found += [Arm(f"{t.name}, {name}", t, team, role) for name, role in weights for t in (alone, leader)]
    found += [control("empty words", found[-1], lambda task: "")]
    by_name = {arm.name: arm for arm in found}
    assert compared(by_name["alone, mlpo+"], found) == ["solo", *(f"alone, {name}" for name, _ in weights[:3])]
    assert compared(by_name["leader, mlpo"], found) == ["solo", "leader, untrained", "leader, zero-shot"]
    assert compared(by_name["alone, untrained"], found) == ["solo"]
    assert compared(by_name["leader, mlpo+"], found) == [arm.name for arm in found if arm.name != "leader, mlpo+"]
    assert compared(by_name["empty words"], found) == ["solo"]


def test_before_training_the_untrained_leader_leads(tmp_path: Path) -> None:
    compared = arms(recipe(WEAKER, alone=True), tmp_path / "run", best=False)
    assert [arm.role for arm in compared] == ["baseline", "untrained", "untrained"]
    assert leading(compared) is compared[-1]
    assert leading(compared[:1]) is None
    assert control("empty words", compared[-1], lambda task: "").role == "control"


def test_the_alone_arm_is_there_once_and_not_beside_itself() -> None:
    assert [other.name for other in variants(recipe("alone", alone=True))] == ["alone"]
    assert variants(recipe(topology="alone", alone=True)) == []
    assert variants(recipe()) == []


def test_who_answers_is_told_by_options_also_of_a_vote() -> None:
    assert answering(hint) == ["actor"]
    assert answering(leader.bind(leader="weaker")) == ["weaker"]
    assert answering(vote) == ["actor"]
    assert answering(vote.bind(of="alone", samples=40)) == ["leader"]
    assert answering(vote.bind(members=["ann", "bob"], samples=3)) == ["ann", "bob"]
    assert answering(vote.bind(of="leader", options={"leader": "weaker"})) == ["weaker"]


def test_a_frozen_leader_is_a_baseline_and_solo_without_its_actor_is_left_out() -> None:
    made = recipe("solo", WEAKER)
    assert [other.label for other in baselines(made)] == [WEAKER_LABEL]
    assert variants(made) == []


WEAKER_LABEL = "leader(agents=['ann', 'bob', 'cy'],leader=weaker,rounds=2)"


# -- the files


def result(folder: Path) -> Result:
    found = cells(leader.bind(rounds=2), team(Script(SAID).engines), TASKS, folder)
    return Result("owner/b", [], {}, {"leader, trained": found})


def test_the_figures_are_written_beside_the_comparison(tmp_path: Path) -> None:
    one = result(tmp_path / "journal")
    plain = Result("plain", [], {}, {})
    write([one, plain], tmp_path)
    assert names([one, plain]) == [
        "results.md",
        "results.json",
        "results-owner-b.csv",
        "results-owner-b-rounds.csv",
        "results-plain.csv",
        "scores.jsonl",
    ]
    record = json.loads((tmp_path / "results.json").read_text())
    assert set(record) == {"owner/b", "plain", "by round", "written"}
    figures = record["by round"]["owner/b"]["leader, trained"]
    nobody = [cell for cell in figures if (cell["table"], cell["line"]) == ("right", "2 of 3")]
    assert [(cell["mean"], cell["n"]) for cell in nobody] == [(None, 0), (None, 0)]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "results-owner-b-rounds.csv").read_text())))
    assert len(lines) == len(figures)
    assert {line["arm"] for line in lines} == {"leader, trained"}
    page = (tmp_path / "results.md").read_text()
    assert "### leader, trained" in page
    assert "| bob | 50.0 ±57.7 | 33.3 ±66.7 | 4 | 1 |" in page
    assert "| 1 of 3 | 2 | 50.0 ±100.0 | 50.0 ±100.0 |" in page
    assert "| no &lt;answer> tag | 1 | 12.5 ±25.0 |" in page


def test_the_tables_fit_a_terminal_of_80_columns(tmp_path: Path) -> None:
    cells_of_7 = [Cell("rounds", who, str(n), 0.5, 0.4, 0.6, 1000) for n in range(7) for who in ("leader", "ann")]
    for found in (result(tmp_path).rounds["leader, trained"], cells_of_7):
        console = Console(width=80, file=io.StringIO(), force_terminal=False)
        with console.capture() as capture:
            console.print(rounds_rich(found))
        text = capture.get()
        assert max(map(len, text.splitlines())) <= 80
        assert "±" in text
    assert text.count("round 6") == 1
    assert re.search(r"ann +50\.0 ±10\.0 +50\.0 ±10\.0 +1,000", text), "rounds 5 and 6 stand below"


# -- the command


def test_eval_prints_and_writes_the_figures_of_each_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{"id": task.id, "question": task.question, "answer": task.answer} for task in TASKS]
    Path("tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = {"ann": "1", "bob": "The answer is 5.", "cy": "1", "boss": tagged("1"), "weaker": "<answer>5"}
    with MockServer(reply=lambda body: said[body["model"]]) as server:
        seat = {"engine": "openai", "base_url": server.base_url, "sampling": {"temperature": 0.7, "max_tokens": 99}}
        lead = {"rounds": 2, "agents": list(AGENTS)}
        data = {
            "name": "lead",
            "team": {name: {**seat, "model": name} for name in said},
            "topology": {"name": "leader", "options": {**lead, "leader": "boss"}},
            "evaluate": {
                "benchmarks": ["tasks.jsonl"],
                "against": [
                    {"name": "leader", "options": {**lead, "leader": "weaker"}},
                    {"name": "vote", "options": {"of": "leader", "samples": 5, "options": {**lead, "leader": "boss"}}},
                ],
            },
        }
        Path("lead.yaml").write_text(json.dumps(data))
        assert main(["eval", "lead.yaml"]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^ leader\(leader: weaker\) +0\.0 ", out, re.MULTILINE)
    assert re.search(r"^ vote +100\.0 ", out, re.MULTILINE)
    assert "tasks: leader" in out
    assert re.search(r"^ majority of agents +100\.0 ±0\.0 +100\.0 ±0\.0 +4 *$", out, re.MULTILINE)
    assert re.search(r"^ the <answer> tag is not closed +8 +100\.0 ±0\.0 *$", out, re.MULTILINE)
    assert "results-tasks-rounds.csv" in out
    record = json.loads(Path("runs/lead/results.json").read_text())
    assert [(row["name"], row["accuracy"], row["calls"]) for row in record["tasks"]] == [
        ("leader(leader: weaker)", 0.0, 8),
        ("vote", 1.0, 40),
        ("leader", 1.0, 8),
    ]
    assert list(record["by round"]["tasks"]) == ["leader(leader: weaker)", "leader"]
