"""Stored answers that a member judges: it is no agent, its verdicts are recorded, and an outage of it is mended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collecting import answer, recipe, step
from mock_server import Call, MockServer
from pilotfish import Recipe, collect
from pilotfish.collect.store import Store
from pilotfish.recipe import parse_recipe
from pilotfish.verify.judge import example

STORED = {"train": {"group_size": 2, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 4, "prefix": "stored"}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


def reply(body: dict[str, Any]) -> str:
    return example(body["messages"]) if body["model"] == "model-judge" else answer(body)


def judged_recipe(folder: Path, server: MockServer) -> Recipe:
    """The team of `collecting`, whose answers a further member behind the same server judges."""
    data = recipe(folder, server.base_url, **STORED).model_dump(mode="json")
    data["team"]["judge"] = {**data["team"]["ann"], "model": "model-judge", "sampling": {"temperature": 0}}
    verifier = {"name": "judge", "rubric": "It is right.", "scale": 1}
    data["tasks"]["train"] = [{"source": data["tasks"]["train"][0]["source"], "verifier": verifier}]
    return parse_recipe(data)


def asked(server: MockServer) -> Counter[str]:
    return Counter(call.body["model"] for call in server.requests)


def test_stored_answers_are_judged_once_and_their_judge_is_no_agent(tmp_path: Path) -> None:
    with MockServer(reply=reply) as server:
        trained = judged_recipe(tmp_path, server)
        collected = collect(trained, tmp_path / "run")
        assert asked(server) == {"model-ann": 8, "model-bob": 8, "model-judge": 16}
        assert collected.rounds[0].accuracy == {"ann": 1.0, "bob": 1.0}
        collect(trained, tmp_path / "run")
        assert asked(server).total() == 32
        rows = step(trained, tmp_path / "run")
        assert {name: count for name, count in asked(server).items() if name != "model-judge"} == {
            "model-ann": 8,
            "model-bob": 8,
        }
    assert {row.reward for row in rows} == {1.0}


def test_collecting_again_mends_an_outage_of_the_judge(tmp_path: Path) -> None:
    down = [True]

    def fault(call: Call) -> str | None:
        return "503" if down[0] and call.body["model"] == "model-judge" else None

    with MockServer(reply=reply, fault=fault) as server:
        trained = judged_recipe(tmp_path, server)
        collect(trained, tmp_path / "run")
        assert Store(tmp_path / "run").line("t0", 0, 0).rewards == (None, None)  # type: ignore[union-attr]
        down[0] = False
        before = asked(server)
        assert collect(trained, tmp_path / "run").rounds[0].accuracy == {"ann": 1.0, "bob": 1.0}
    assert asked(server) - before == {"model-judge": 16}
