"""Collecting: every agent is asked once a task and set, a resume asks what lacks, and training asks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collecting import Led, answer, collect_led, recipe, step
from mock_server import Call, MockServer
from pilotfish import Run, collect
from pilotfish.collect.store import Store
from pilotfish.recipe import RecipeError
from pilotfish.run import RunError
from pilotfish.train.rollout import TooManyOutages

STORED = {"train": {"group_size": 2, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 4, "prefix": "stored"}}
SHAPED = {"train": {**STORED["train"], "prefix": "shaped", "decision": [1, 2], "horizon": "decision"}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=answer) as opened:
        yield opened


def test_each_agent_answers_each_task_in_each_set_once(server: MockServer, tmp_path: Path) -> None:
    news: list[tuple[str, int, dict[str, float]]] = []
    found = collect(
        recipe(tmp_path, server.base_url), tmp_path / "run", told=lambda *new: news.append((new[0], new[1], {**new[2]}))
    )
    assert server.calls == 4 * 2 * 2
    assert len({call.body["seed"] for call in server.requests}) == 16
    assert (found.sets, found.answers, found.absent, found.unusable) == (8, 16, 0, ())
    assert news[0] == ("collect", 0, {"of": 8, "answers": 0, "absent": 0})
    assert news[-1] == ("collect", 8, {"of": 8, "answers": 16, "absent": 0})
    right = {name: [call.body["seed"] % 2 == 0 for call in server.requests if call.body["model"] == f"model-{name}"]
             for name in ("ann", "bob")}  # fmt: skip
    assert found.rounds[0].accuracy == {name: sum(marks) / 8 for name, marks in right.items()}
    assert sum(count * sets for count, sets in found.rounds[0].right.items()) == sum(map(sum, right.values()))
    assert f"ann {found.rounds[0].accuracy['ann']:.3f}" in str(found)


@pytest.mark.parametrize("agents", [["ann"], ["ann", "bob", "eve"], [f"agent{n}" for n in range(16)]])
def test_training_on_stored_answers_asks_no_agent(agents: list[str], server: MockServer, tmp_path: Path) -> None:
    trained = recipe(tmp_path, server.base_url, agents=agents, **STORED)
    collect(trained, tmp_path / "run")
    assert server.calls == 8 * len(agents)
    rows = step(trained, tmp_path / "run")
    assert server.calls == 8 * len(agents)
    assert [row.trained for row in rows] == [True] * 16


def test_copies_of_an_agent_have_answers_of_their_own(server: MockServer, tmp_path: Path) -> None:
    copies = {"name": "leader", "options": {"agents": ["ann", "ann", "bob"]}}
    trained = recipe(tmp_path, server.base_url, topology=copies, **STORED)
    collect(trained, tmp_path / "run")
    step(trained, tmp_path / "run")
    assert server.calls == 8 * 3
    assert all(line.agents == ("ann", "ann", "bob") for line in Store(tmp_path / "run").lines())


@pytest.mark.parametrize("decision", [1, 2])
def test_training_on_shaped_answers_asks_neither_agents_nor_the_earlier_leader(
    decision: int, server: MockServer, tmp_path: Path
) -> None:
    trained = recipe(tmp_path, server.base_url, **SHAPED)
    found = collect_led(trained, tmp_path / "run", (1, 2), leader := Led())
    assert (server.calls, leader.calls) == (8 * 2 * 3, 8 * 2)
    assert [round.round for round in found.rounds] == [1, 2]
    store = Store(tmp_path / "run")
    assert store.rounds == (0, 1, 2)
    store.expect(trained, rounds=(1, 2))
    rows = step(trained, tmp_path / "run", decision)
    assert server.calls == 8 * 2 * 3
    said = {placed.turn.text for row in rows for placed in row.episodes[0].decisions(decision - 1)}
    assert all("leader-1" in text for text in said)
    assert all("policy" in row.text for row in rows)


def test_shuffled_orders_are_the_same_in_training(server: MockServer, tmp_path: Path) -> None:
    shuffled = {"name": "leader", "options": {"order": "shuffled", "rounds": 3}}
    trained = recipe(tmp_path, server.base_url, topology=shuffled, **SHAPED)
    collect_led(trained, tmp_path / "run", (1, 2), Led())
    step(trained, tmp_path / "run", 2)
    assert server.calls == 8 * 2 * 3


def test_the_answers_of_two_leaders_are_kept_apart(server: MockServer, tmp_path: Path) -> None:
    trained = recipe(tmp_path, server.base_url, **SHAPED)
    collect_led(trained, tmp_path / "run", (1,), Led("first"))
    calls = server.calls
    collect_led(trained, tmp_path / "run", (1,), Led("second"))
    assert server.calls == calls + 8 * 2, "round 0 is shared, round 1 is not"
    rows = step(trained, tmp_path / "run", 1)
    assert server.calls == calls + 8 * 2
    assert all("second" in row.episodes[0].decisions(0)[0].turn.text for row in rows)


def test_what_a_stopped_collection_recorded_is_not_asked_again(server: MockServer, tmp_path: Path) -> None:
    def stop(kind: str, done: int, figures: Any) -> None:
        if kind == "collect" and done == 3:
            raise ZeroDivisionError

    collected = recipe(tmp_path, server.base_url, collect={"concurrency": 1})
    with pytest.raises(ZeroDivisionError):
        collect(collected, tmp_path / "run", told=stop)
    assert server.calls == 6
    file = tmp_path / "run" / "collected.jsonl"
    file.write_bytes(file.read_bytes()[:-9])  # what a kill in the midst of a line leaves
    found = collect(collected, tmp_path / "run")
    assert server.calls == 16
    assert (found.sets, found.answers) == (8, 16)
    assert len(Store(tmp_path / "run").lines()) == 8


def test_a_collection_that_is_not_finished_is_not_trained_on(server: MockServer, tmp_path: Path) -> None:
    server.fault = lambda call: "401" if call.number > 8 else None  # type: ignore[assignment]
    collected = recipe(tmp_path, server.base_url, collect={"concurrency": 1})
    with pytest.raises(Exception, match=r"ann|bob"):
        collect(collected, tmp_path / "run")
    with pytest.raises(RecipeError, match="collect is not finished; training needs round 0: run `pilotfish collect"):
        Store(tmp_path / "run").expect(collected, rounds=(0,))


def test_an_absent_agent_leaves_its_set_usable_and_is_asked_again_later(server: MockServer, tmp_path: Path) -> None:
    def away(call: Call) -> str | None:
        return "500" if call.body["model"] == "model-bob" else None

    server.fault = away  # type: ignore[assignment]
    trained = recipe(tmp_path, server.base_url, **STORED)
    found = collect(trained, tmp_path / "run")
    assert (found.answers, found.absent, found.unusable) == (8, 8, ())
    assert all(rewards[1] is None for rewards in Store(tmp_path / "run").verdicts().values())
    server.fault = None
    calls = server.calls
    collect_led(trained, tmp_path / "run", (0,))
    assert server.calls == calls, "a finished stage stays as it is"
    step(trained, tmp_path / "run")
    assert server.calls == calls, "training takes the stored sets as they are"
    found = collect(trained, tmp_path / "run")
    assert server.calls == calls + 8
    assert (found.answers, found.absent) == (16, 0)
    assert all(None not in rewards for rewards in Store(tmp_path / "run").verdicts().values())


def test_sets_in_which_nobody_answered_are_listed(server: MockServer, tmp_path: Path) -> None:
    def away(call: Call) -> str | None:
        return "500" if "What is 2" in call.body["messages"][-1]["content"] else None

    server.fault = away  # type: ignore[assignment]
    notes: list[str] = []
    collected = recipe(tmp_path, server.base_url)
    found = collect(collected, tmp_path / "run", told=lambda kind, done, figures: notes.append(kind))
    assert found.unusable == (("t2", 0), ("t2", 1))
    assert "note: 2 sets without an answer: t2 set 0, t2 set 1" in notes


def test_too_many_outages_stop_the_collection_and_a_resume_goes_on(server: MockServer, tmp_path: Path) -> None:
    server.fault = lambda call: "500" if call.number > 4 else None  # type: ignore[assignment]
    collected = recipe(tmp_path, server.base_url, tasks=8, collect={"concurrency": 1})
    with pytest.raises(TooManyOutages, match=r"collect: \d of \d+ sets cannot be used \(\w+: .*collect again"):
        collect(collected, tmp_path / "run")
    assert server.calls < 32
    server.fault = None
    answered = server.answered
    found = collect(collected, tmp_path / "run")
    assert (server.answered, found.answers, answered) == (32, 32, 4)


def test_no_more_sets_are_in_flight_than_allowed(server: MockServer, tmp_path: Path) -> None:
    """Three sets of two agents; the server answers nobody until as many are there."""
    server.held = lambda call: server.most_in_flight < 6
    collect(recipe(tmp_path, server.base_url, tasks=8, collect={"concurrency": 3}), tmp_path / "run")
    assert server.most_in_flight == 6


def test_sets_at_temperature_0_are_one_and_it_is_said_once_for_each_agent(server: MockServer, tmp_path: Path) -> None:
    notes: list[str] = []
    greedy = recipe(tmp_path, server.base_url, temperature=0.0, sets=4, **STORED)
    collect(greedy, tmp_path / "run", told=lambda kind, done, figures: notes.append(kind))
    assert server.calls == 4 * 2
    assert [note for note in notes if "temperature 0" in note] == [
        f"note: agent {name} is sampled at temperature 0: its 4 sets are one; set team.{name}.sampling.temperature"
        for name in ("ann", "bob")
    ]
    step(greedy, tmp_path / "run")
    assert server.calls == 4 * 2


def test_a_topology_that_asks_the_trainee_first_has_nothing_to_collect(server: MockServer, tmp_path: Path) -> None:
    hint = {"name": "hint", "options": {"collaborator": "leader", "actor": "ann"}}
    with pytest.raises(RecipeError, match="hint asks leader before anybody else: there is nothing to collect"):
        collect(recipe(tmp_path, server.base_url, topology=hint), tmp_path / "run")
    assert server.calls == 0


def test_a_topology_that_never_comes_to_the_trainee_cannot_be_collected_for(server: MockServer, tmp_path: Path) -> None:
    solo = {"name": "solo", "options": {"member": "ann"}}
    with pytest.raises(TooManyOutages, match="ends without decision 1"):
        collect_led(recipe(tmp_path, server.base_url, topology=solo), tmp_path / "run", (1,), Led())


def test_without_a_trainee_there_is_nothing_to_collect_for(server: MockServer, tmp_path: Path) -> None:
    whole = recipe(tmp_path, server.base_url)
    frozen = whole.model_copy(
        update={"team": {**whole.team, "leader": whole.team["leader"].model_copy(update={"train": None})}}
    )
    with pytest.raises(RecipeError, match="no member has `train`: there is nothing to collect for"):
        collect(frozen, tmp_path / "run")


def test_a_leader_without_trained_weights_is_refused_by_name(server: MockServer, tmp_path: Path) -> None:
    collected = recipe(tmp_path, server.base_url)
    Run(tmp_path / "other", collected)
    with pytest.raises(RecipeError, match="other: has no trained weights to lead"):
        collect(collected, tmp_path / "run", rounds=(1,), leader=tmp_path / "other")
    with pytest.raises(RunError, match="no run there"):
        collect(collected, tmp_path / "run", rounds=(1,), leader=tmp_path / "nowhere")


def test_overlaps_with_a_benchmark_are_told_when_they_are_found(server: MockServer, tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"question": "What is 2 + 7?", "answer": "9"}\n')
    notes: list[str] = []
    evaluated = recipe(tmp_path, server.base_url, evaluate={"benchmarks": [str(tmp_path / "test.jsonl")]})
    collect(evaluated, tmp_path / "run", told=lambda kind, done, figures: notes.append(kind))
    assert server.calls == 3 * 2 * 2
    assert any(
        note.startswith("note: training tasks that stand in a benchmark (all in overlap.json): ") for note in notes
    )
