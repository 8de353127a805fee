"""`max_cost` holds for two processes together: one stops at its part, both end, and the same command goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from board import board, said, seat
from launching import ended, launch
from mock_server import MockServer
from pilotfish.recipe import parse_recipe
from test_max_cost import money, recorded
from tiny import save_tiny

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(3000)]

CAP = 0.0008
PLACES = 4


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    with MockServer(reply=said, latency=0.002) as opened:
        yield opened


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, server: MockServer) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("capped")
    made = board(folder, server.base_url, against=[{"name": "reflect", "options": {"rounds": 2}}])
    made["team"]["actor"] = seat(server.base_url, temperature=0.0, concurrency=PLACES)
    made["team"]["collaborator"] = {
        "model": str(save_tiny(folder / "model")),
        "train": "lora",
        "sampling": {"temperature": 0.0, "max_tokens": 4},
    }
    training = {"group_size": 4, "tasks_per_step": 2, "micro_batch": 4, "updates_per_step": 1, "steps": 30}
    made |= {"topology": "hint", "tasks": {"train": str(folder / "first.jsonl"), "holdout": 0}, "train": training}
    return made


@pytest.mark.parametrize("command", ["eval", "train"])
def test_two_processes_stop_within_the_calls_in_flight_and_go_on(
    command: str, data: dict[str, Any], server: MockServer, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"evaluate": {"benchmarks": [], "against": ["solo"]}} if command == "train" else {}
    file, run = tmp_path / "own.yaml", tmp_path / "run"
    file.write_text(json.dumps({**data, **changes}))
    before, first = money(server), server.calls

    def job(name: str, cap: float) -> dict[str, Any]:
        do = [command, str(file), "--run", str(run), "--set", f"max_cost={cap}"]
        return {"do": do, "out": str(tmp_path / name), "processes": 2}

    launch(tmp_path, [job("capped", CAP)])
    codes, words = ended(tmp_path / "capped")
    assert sorted(codes) == [1, 2]
    assert "".join(words).count(f"max_cost is {CAP:g}, and one of 2 processes has spent its part of it") == 1
    dearest = max(len(str(call.body["messages"]).split()) + 2 * 6 for call in server.requests[first:]) / 1e6
    assert CAP / 2 <= money(server) - before < CAP + PLACES * dearest
    assert recorded(run, parse_recipe({**data, **changes})) == pytest.approx(money(server) - before)

    asked = server.calls
    launch(tmp_path, [job("more", 1)])
    assert ended(tmp_path / "more")[0] == [0, 0]
    assert server.calls > asked
    assert recorded(run, parse_recipe({**data, **changes})) == pytest.approx(money(server) - before)
