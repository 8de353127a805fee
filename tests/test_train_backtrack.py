"""Backtracking: which tasks and chains are kept, what the file holds, what is asked, and what is learned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer

from pilotfish import ScriptedEngine
from pilotfish.collect.main import collect_in
from pilotfish.lab.data import read_rows
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.run import Run
from pilotfish.train.backtrack import backtrack, batches
from pilotfish.train.main import train_one
from pilotfish.train.profile import BacktrackConfig
from pilotfish.train.rollout import TooManyOutages
from pilotfish.train.stages import whole_weights
from pilotfish.workshop import Workshop
from tiny import save_tiny

torch.set_num_threads(1)
SAMPLES, SETS = 4, 2
RIGHT = "<think>7 and 7 make 14.</think><answer>14</answer>"
WRONG = "<think>7 and 7 make 13.</think><answer>13</answer>"
FORMLESS = "It is thirteen"
CHAIN = "<think>7 and 7 make 13. Wait, that does not seem right. They make 14.</think>\n<answer>14</answer>"
MENDING = "One solution, which ends in a wrong result"
ANSWERS = {"both": [WRONG, RIGHT], "easy": [RIGHT], "hard": [WRONG], "formless": [FORMLESS, RIGHT]}
"""What the leader says to a task, in turn."""


class Killed(Exception):
    """Stands for the end of the process."""


class Scripted:
    """A team in place of models: a leader that says its lines, two agents, one of them right on `easy` tasks."""

    def __init__(self, chain: str = CHAIN, fail: Callable[[Any], Any] | None = None) -> None:
        self.chain = chain
        self.samples: dict[str, int] = {}
        self.said: dict[str, list[str]] = {}
        self.leader = ScriptedEngine(self.say, fail=lambda messages, sampling, seed: fail and fail(messages))
        self.agents = {name: ScriptedEngine(self.solve, identity=None) for name in ("ann", "bob")}
        self.temperatures: set[float] = set()

    def say(self, messages: Any, sampling: Any, seed: int) -> str:
        self.temperatures.add(sampling.temperature)
        asked = messages[-1]["content"]
        if MENDING in asked:
            return self.chain
        name = asked.split("\n")[0].rpartition(" ")[2]
        self.samples[name] = self.samples.get(name, -1) + 1
        answer = ANSWERS[name][self.samples[name] % len(ANSWERS[name])]
        self.said.setdefault(answer, []).append(asked)
        return answer

    def solve(self, messages: Any, sampling: Any, seed: int) -> str:
        return f"Draft {seed % 10_000}: {14 if 'easy' in messages[-1]['content'] else 12}"

    def frozen(self) -> dict[str, ScriptedEngine]:
        return dict(self.agents)

    def engine(self, name: str) -> ScriptedEngine:
        return self.leader if name == "leader" else self.agents[name]

    async def vacate(self) -> None:
        """Nothing is held."""

    async def close(self) -> None:
        """Nothing is held."""

    @property
    def drafts(self) -> int:
        return sum(engine.calls for engine in self.agents.values())

    @property
    def chats(self) -> list[str]:
        """What the leader was asked for chains."""
        return [chat[-1]["content"] for chat in self.leader.asked if MENDING in chat[-1]["content"]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def recipe(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    return made(model, tmp_path, "both", "easy", "hard", "formless")


def made(model: Path, folder: Path, *tasks: str, topology: str = "leader", **train: Any) -> Recipe:
    file = folder / "tasks.jsonl"
    rows = [{"id": name, "question": f"What is 7 and 7, if it is {name}", "answer": "14"} for name in tasks]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sampling = {"temperature": 1.0, "max_tokens": 64}
    team: dict[str, Any] = {name: {"model": "scripted", "sampling": sampling} for name in ("ann", "bob")}
    team["leader"] = {"model": str(model), "train": "full", "dtype": "float32", "sampling": {"max_tokens": 64}}
    return parse_recipe(
        {
            "tasks": {"train": {"source": str(file), "verifier": "exact"}, "holdout": 0},
            "team": team,
            "topology": topology,
            "train": {"method": "backtrack", "samples": SAMPLES, "batch": 2, "learning_rate": 1e-3, **train},
            "collect": {"sets": SETS},
            "evaluate": {"against": []},
        }
    )


@contextmanager
def at_work(recipe: Recipe, folder: Path, seats: Scripted) -> Iterator[tuple[Run, Workshop]]:
    with Run(folder, recipe) as run, Workshop(recipe, run) as workshop:
        workshop.seats = seats  # type: ignore[assignment]
        yield run, workshop


def learn(recipe: Recipe, folder: Path, seats: Scripted) -> tuple[Run, list[str]]:
    """Backtracking as a whole; the run and the news."""
    news: list[str] = []
    with at_work(recipe, folder, seats) as (run, workshop):
        backtrack(recipe, run, workshop, lambda kind, step, figures: news.append(kind))
    return run, news


def rows(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / "backtrack.jsonl").read_text().splitlines()]


def changed(recipe: Recipe, **train: Any) -> Recipe:
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=train)})


def test_chains_are_made_of_tasks_with_a_right_and_a_wrong_answer_in_a_usable_form(recipe, tmp_path):
    # `exact` reads no answer out of a reply without tags: such a reply is wrong, and of no use for a chain
    run, news = learn(recipe, tmp_path / "run", seats := Scripted())
    report = run.state("backtrack")
    assert report["counts"] == {**dict.fromkeys(report["counts"], 0), "kept": 1, "no wrong": 2, "no right": 1}
    assert (report["tasks"], report["samples"], report["unjudged"]) == (4, 16, 0)
    assert [row["task"] for row in rows(run)] == ["both"]
    assert len(seats.chats) == 1
    assert news[-1] == "note: backtracking: 1 chains from 4 tasks (left out: no right 1, no wrong 2)"


@pytest.mark.parametrize(
    ("chain", "outcome"),
    [
        (CHAIN, "kept"),
        (CHAIN.replace("<answer>14", "<answer>15"), "chain wrong"),
        (CHAIN + " I hope", "broken form"),
        (CHAIN.replace("</think>", ""), "broken form"),
        (CHAIN.replace("13", "130"), "not wrong first"),
        ("<think>7 and 7 make 14.</think><answer>14</answer>", "not wrong first"),
    ],
)
def test_a_chain_is_kept_where_it_is_whole_ends_right_and_was_wrong_before(model, recipe, tmp_path, chain, outcome):
    run, _ = learn(made(model, tmp_path, "both"), tmp_path / "run", Scripted(chain))
    assert {name for name, count in run.state("backtrack")["counts"].items() if count} == {outcome}
    assert len(rows(run)) == (outcome == "kept")


def test_a_row_is_the_chain_behind_the_prompt_that_the_right_answer_had(model, recipe, tmp_path):
    run, _ = learn(made(model, tmp_path, "both"), tmp_path / "run", seats := Scripted(f"Here you are: {CHAIN}"))
    (row,) = rows(run)
    prompt, said = row["messages"]
    assert said == {"role": "assistant", "content": CHAIN}
    assert prompt["content"] in seats.said[RIGHT]
    assert "Answer of agent 2:\nDraft" in prompt["content"]
    assert len({*seats.said[RIGHT], *seats.said[WRONG]}) == SETS
    journal = run.journal(writable=False)
    stored = [turn.text for turn in journal.turns() if turn.scope == f"stored/both/{row['set']}"]
    journal.close()
    assert len(stored) == 2
    assert all(text in prompt["content"] for text in stored)
    assert (row["family"], row["kind"], row["wrong"], row["right"]) == ("backtrack", "asked", WRONG, RIGHT)
    assert [read["messages"] for read in read_rows(str(run.folder / "backtrack.jsonl"), 0, 0)] == [row["messages"]]


def test_the_leader_is_shown_both_answers_and_sampled_at_the_stages_temperature(model, recipe, tmp_path):
    learn(made(model, tmp_path, "both", temperature=0.7), tmp_path / "run", seats := Scripted())
    (chat,) = seats.chats
    assert WRONG in chat
    assert RIGHT in chat
    assert seats.temperatures == {0.7}


def test_several_chains_of_a_task_come_of_different_pairs(model, recipe, tmp_path, monkeypatch):
    lines = [f"<think>{n}</think><answer>{13 + n % 2}</answer>" for n in range(4)]
    monkeypatch.setitem(ANSWERS, "both", lines)
    run, _ = learn(made(model, tmp_path, "both", per_task=3), tmp_path / "run", Scripted())
    assert len({(row["wrong"], row["right"]) for row in rows(run)}) == len(rows(run)) == 3


def test_spliced_chains_join_both_thoughts_and_ask_nobody(model, recipe, tmp_path):
    run, _ = learn(made(model, tmp_path, "both", chains="spliced"), tmp_path / "run", seats := Scripted())
    (row,) = rows(run)
    assert row["messages"][-1]["content"] == (
        "<think>7 and 7 make 13. Wait, that does not seem right. 7 and 7 make 14.</think>\n<answer>14</answer>"
    )
    assert (row["kind"], seats.chats) == ("spliced", [])


def test_answers_without_thoughts_are_not_spliced(model, recipe, tmp_path, monkeypatch):
    monkeypatch.setitem(ANSWERS, "both", ["<answer>13</answer>", RIGHT])
    run, _ = learn(made(model, tmp_path, "both", chains="spliced"), tmp_path / "run", Scripted())
    assert run.state("backtrack")["counts"]["broken form"] == 1
    assert not rows(run)


def test_a_leader_without_a_team_learns_too(model, recipe, tmp_path):
    run, _ = learn(made(model, tmp_path, "both", topology="alone"), tmp_path / "run", seats := Scripted())
    assert len(rows(run)) == 1
    assert (seats.leader.calls, seats.drafts) == (SAMPLES + 1, 0)


def test_agents_answer_once_a_set_and_nothing_where_answers_were_collected(recipe, tmp_path):
    learn(recipe, tmp_path / "run", seats := Scripted())
    assert seats.drafts == 4 * SETS * 2
    collected = Scripted()
    with at_work(recipe, tmp_path / "collected", collected) as (run, workshop):
        collect_in(recipe, run, workshop, (0,), told=lambda kind, step, figures: None)
        before = collected.drafts
        backtrack(recipe, run, workshop, lambda kind, step, figures: None)
    assert collected.drafts == before == 4 * SETS * 2
    assert run.state("filter")["kept"] == ["both", "hard", "formless"]
    assert run.state("backtrack")["tasks"] == 3


def test_a_killed_run_asks_nothing_twice(recipe, tmp_path):
    whole = Scripted()
    expected, _ = learn(recipe, tmp_path / "whole", whole)
    killed = Scripted(fail=lambda messages: Killed() if MENDING in messages[-1]["content"] else None)
    with pytest.raises(Killed):
        learn(recipe, tmp_path / "run", killed)
    resumed = Scripted()
    run, _ = learn(recipe, tmp_path / "run", resumed)
    assert (resumed.leader.calls, resumed.drafts) == (1, 0)
    assert rows(run) == rows(expected)


def test_chains_that_are_made_are_not_made_again_when_learning_was_killed(recipe, tmp_path):
    def killed(*args: Any, **more: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "training_step", killed)
        with pytest.raises(Killed):
            learn(recipe, tmp_path / "run", Scripted())
    run, _ = learn(recipe, tmp_path / "run", seats := Scripted())
    assert (seats.leader.calls, seats.drafts) == (0, 0)
    assert run.state("finished")["chains"] == 1


def test_what_is_learned_is_in_best_and_a_finished_stage_stays(recipe, tmp_path):
    run, _ = learn(recipe, tmp_path / "run", Scripted())
    record = json.loads((run.best / "sft.json").read_text())
    assert (record["metrics"]["rows"], record["settings"]["max_length"]) == (1, 4096)
    assert run.state("finished")["steps"] == run.best_step == 1
    assert whole_weights(run) == run.best
    with at_work(recipe, tmp_path / "run", seats := Scripted()) as (run, workshop):
        train_one(recipe, run, workshop, lambda kind, step, figures: None)
    assert seats.leader.calls == 0


def test_without_a_chain_nothing_is_learned_and_what_follows_has_the_same_weights(model, recipe, tmp_path):
    run, news = learn(made(model, tmp_path, "easy"), tmp_path / "run", Scripted())
    assert run.state("finished") == {"chains": 0}
    assert whole_weights(run) is None
    assert news[-2:] == [
        "note: backtracking: 0 chains from 1 tasks (left out: no wrong 1)",
        "note: no chain to learn from; what follows starts from the same weights",
    ]


def test_an_outage_stops_the_run_and_once_mended_it_goes_on(recipe, tmp_path):
    with pytest.raises(TooManyOutages, match=r"samples have no verdict \(leader: scripted outage\)"):
        learn(recipe, tmp_path / "run", Scripted(fail=lambda messages: True))
    run, _ = learn(recipe, tmp_path / "run", Scripted())
    assert run.state("finished")["chains"] == 1


@pytest.mark.parametrize(
    ("batch", "micro", "rows", "expected"),
    [(32, 8, 40, (32, 8)), (32, None, 32, (32, None)), (32, None, 5, (5, 5)), (32, 8, 21, (16, 8)), (32, 8, 3, (3, 3))],
)
def test_a_batch_is_no_larger_than_the_rows_and_whole_micro_batches(batch, micro, rows, expected):
    config = BacktrackConfig(method="backtrack", batch=batch, micro_batch=micro)
    assert batches(config, rows) == expected


def test_the_batch_of_a_few_rows_divides_among_processes() -> None:
    config = BacktrackConfig(method="backtrack", batch=32)
    assert [batches(config, rows, 2) for rows in (1, 2, 5)] == [(2, 2), (2, 2), (4, 4)]
