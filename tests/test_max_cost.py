"""`max_cost` is a hard cap: at most the calls in flight go beyond it, what they answered is kept, and a run goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from board import board, said, seat, tasks_file
from collecting import answer
from collecting import recipe as leader_recipe
from mock_server import Call, Failure, MockServer
from pilotfish import Run, Sampling, ScriptedEngine, collect, train
from pilotfish.cli import main
from pilotfish.engine.meter import MaxCostReached, Meter, Metered
from pilotfish.evaluate.bench import evaluate
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.serve.main import open_app
from pilotfish.spending import spent
from pilotfish.team import Price
from serving import running
from tiny import save_tiny


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=said, latency=0.002) as opened:
        yield opened


def money(server: MockServer) -> float:
    """By the server's own count, at the prices of `board.seat`."""
    return (server.prompt_tokens + 2 * server.completion_tokens) / 1e6


def recorded(folder: Path, recipe: Recipe) -> float:
    journal = Run(folder).journal(writable=False)
    try:
        return spent(recipe, journal)[0]
    finally:
        journal.close()


def play(recipe: Recipe, folder: Path) -> None:
    with Run(folder, recipe) as run:
        evaluate(recipe, run)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("places", [1, 4])
def test_an_evaluation_stops_within_the_calls_in_flight_and_goes_on(
    places: int, temperature: float, server: MockServer, tmp_path: Path
) -> None:
    data = board(tmp_path, server.base_url, against=[{"name": "reflect", "options": {"rounds": 2}}])
    data["team"]["actor"] = seat(server.base_url, temperature=temperature, concurrency=places)
    cap = 0.0008
    recipe = parse_recipe({**data, "max_cost": cap})
    with pytest.raises(MaxCostReached, match=r"max_cost is 0\.0008"):
        play(recipe, tmp_path / "run")
    dearest = max(len(str(call.body["messages"]).split()) + 2 * 6 for call in server.requests) / 1e6
    assert cap <= money(server) < cap + places * dearest
    assert recorded(tmp_path / "run", recipe) == pytest.approx(money(server)), "nothing that was paid is lost"

    calls = server.calls
    with pytest.raises(MaxCostReached):
        play(recipe, tmp_path / "run")
    assert server.calls == calls, "all is spent: nobody is asked"

    play(parse_recipe({**data, "max_cost": 1}), tmp_path / "run")
    journal = Run(tmp_path / "run").journal(writable=False)
    assert len(list(journal.turns())) == server.calls, "what was answered was not asked again"
    journal.close()


@pytest.mark.parametrize("retries", [0, 1])
def test_what_tries_without_an_answer_used_counts_and_is_on_the_bill(
    retries: int, server: MockServer, tmp_path: Path
) -> None:
    used = {"prompt_tokens": 1000, "completion_tokens": 1000}
    no_answer = Failure(body=json.dumps({"choices": [{"message": {"content": None}}], "usage": used}))
    server.fault = lambda call: no_answer if call.number == 1 else None
    data = board(tmp_path, server.base_url, against=[])
    data["team"]["actor"] |= {"retries": retries, "concurrency": 1}
    recipe = parse_recipe({**data, "max_cost": 1})
    play(recipe, tmp_path / "run")
    paid = money(server) + 3000 / 1e6
    assert recorded(tmp_path / "run", recipe) == pytest.approx(paid)
    asked = json.loads((tmp_path / "run" / "results.json").read_text())["asked"]
    assert sum(members["actor"]["cost"] for members in asked.values()) == pytest.approx(paid)

    server.fault = lambda call: no_answer
    with pytest.raises(MaxCostReached):
        play(parse_recipe({**data, "max_cost": 0.01}), tmp_path / "capped")
    assert server.calls - server.answered == 1 + 4  # 0.003 a try, and the last call is in flight


def test_what_an_earlier_run_had_answered_costs_nothing(server: MockServer, tmp_path: Path) -> None:
    data = board(tmp_path, server.base_url, against=[])
    data["team"]["actor"] = seat(server.base_url, temperature=0.0)
    play(parse_recipe({**data, "max_cost": 1}), tmp_path / "first")
    recipe = parse_recipe({**data, "max_cost": 1e-9})
    play(recipe, tmp_path / "second")
    assert recorded(tmp_path / "second", recipe) == 0
    asked = json.loads((tmp_path / "second" / "results.json").read_text())["asked"]
    told = [(asked[name]["actor"]["calls"], asked[name]["actor"]["recalled"]) for name in ("first", "second")]
    assert told == [(0, 6), (0, 0)], "both benchmarks have the same questions"


def test_each_models_calls_have_its_own_price(server: MockServer, tmp_path: Path) -> None:
    models = {"big": {"actor": {"model": "big", "price": {"input": 100, "output": 200}}}}
    recipe = parse_recipe({**board(tmp_path, server.base_url, against=[], models=models), "max_cost": 1})
    play(recipe, tmp_path / "run")
    big = [call for call in server.requests if call.body["model"] == "big"]
    assert len(big) == server.calls / 2
    assert recorded(tmp_path / "run", recipe) == pytest.approx(money(server) * 101 / 2)
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["first"]
    assert rows[1]["cost"] == pytest.approx(100 * rows[0]["cost"])


def test_the_search_for_constant_words_is_on_the_bill_at_each_models_price(server: MockServer, tmp_path: Path) -> None:
    big = {"actor": {"model": "big", "price": {"input": 100, "output": 200}}}
    data = board(tmp_path, server.base_url, models={"big": big}, against=["solo"], controls=["constant"], constants=2)
    sampling = {"temperature": 0.7, "max_tokens": 4}
    data["team"]["collaborator"] = {"model": str(save_tiny(tmp_path / "model")), "train": "lora", "sampling": sampling}
    data |= {"topology": "hint", "tasks": {"train": tasks_file(tmp_path / "train.jsonl", 20), "holdout": 3}}
    recipe = parse_recipe({**data, "max_cost": 1})
    with Run(tmp_path / "run", recipe) as run:
        run.mark_best(save_tiny(run.best), 1)
        evaluate(recipe, run)
    by_model = {"small": 1, "big": 100}
    paid = sum(_tokens_cost(call) * by_model[call.body["model"]] for call in server.requests)
    assert recorded(tmp_path / "run", recipe) == pytest.approx(paid)
    asked = json.loads((tmp_path / "run" / "results.json").read_text())["asked"]
    assert asked["search for constant words"]["actor"]["calls"] > 0
    assert sum(members["actor"]["calls"] for members in asked.values()) == server.calls
    assert sum(members["actor"]["cost"] for members in asked.values()) == pytest.approx(paid)


def _tokens_cost(call: Call) -> float:
    """Money for a call, as the server counts its words, at the prices of `board.seat`."""
    prompt = sum(len(message["content"].split()) for message in call.body["messages"])
    return (prompt + 2 * len(said(call.body).split())) / 1e6


def test_a_collection_stops_and_goes_on(tmp_path: Path) -> None:
    with MockServer(reply=answer) as server:
        data = leader_recipe(tmp_path, server.base_url, tasks=8).model_dump(mode="json")
        for name in ("ann", "bob"):
            data["team"][name] |= {"price": {"input": 1, "output": 2}, "concurrency": 2}
        recipe = parse_recipe({**data, "max_cost": 0.0003})
        with pytest.raises(MaxCostReached, match=r"max_cost is 0\.0003"):
            collect(recipe, tmp_path / "run")
        dearest = max(len(str(call.body["messages"]).split()) + 2 * 4 for call in server.requests) / 1e6
        assert 0.0003 <= money(server) < 0.0003 + 4 * dearest
        assert recorded(tmp_path / "run", recipe) == pytest.approx(money(server))
        found = collect(parse_recipe({**data, "max_cost": 1}), tmp_path / "run")
        assert (found.sets, server.calls) == (16, 32)


def test_a_training_stops(server: MockServer, tmp_path: Path) -> None:
    data = board(tmp_path, server.base_url)
    sampling = {"temperature": 0.0, "max_tokens": 4}
    data["team"]["collaborator"] = {"model": str(save_tiny(tmp_path / "model")), "train": "lora", "sampling": sampling}
    data["team"]["actor"]["concurrency"] = 2
    training = {"group_size": 4, "tasks_per_step": 2, "micro_batch": 4, "updates_per_step": 1, "steps": 3}
    evaluate = {"benchmarks": [], "against": ["solo"]}
    data |= {"tasks": {"train": str(tmp_path / "first.jsonl"), "holdout": 0}, "train": training, "evaluate": evaluate}
    recipe = parse_recipe({**data, "topology": "hint", "max_cost": 0.0002})
    with pytest.raises(MaxCostReached, match=r"max_cost is 0\.0002"):
        train(recipe, tmp_path / "run")
    dearest = max(len(str(call.body["messages"]).split()) + 2 * 6 for call in server.requests) / 1e6
    assert 0.0002 <= money(server) < 0.0002 + 2 * dearest
    assert recorded(tmp_path / "run", recipe) == pytest.approx(money(server))


def test_the_command_says_how_to_go_on(
    server: MockServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(json.dumps(board(tmp_path, server.base_url)))
    assert main(["eval", "own.yaml", "--set", "max_cost=0.0002"]) == 2
    err = capfd.readouterr().err
    assert "the same command goes on with --set max_cost=" in err
    assert "of about 36 episodes are played" in err
    assert main(["eval", "own.yaml", "--set", "max_cost=1"]) == 0


@pytest.mark.parametrize("record", [False, True])
def test_a_cap_holds_for_a_server_until_it_ends_and_over_restarts_where_it_records(
    record: bool, server: MockServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = board(tmp_path, server.base_url, against=[])
    play(parse_recipe(data), tmp_path / "run")
    before = money(server)
    recipe = parse_recipe({**data, "max_cost": before + 0.0001, "serve": {"record": record}})
    statuses, spent = [], []
    for _ in range(2):
        with running(open_app(recipe, Run(tmp_path / "run", recipe), lambda line: None)) as served:
            statuses.append([served.chat(f"What is {number} + 1?").status for number in range(20)])
        spent.append(money(server) - before)
    assert statuses[0][0] == 200
    assert statuses[0][-1] == 402
    assert spent[1] == pytest.approx(spent[0] if record else 2 * spent[0], rel=0.2)
    assert (statuses[1][0] == 402) == record
    assert ("What was answered is recorded" in caplog.text) == record
    assert ("--record counts it for good" in caplog.text) != record


def test_a_cap_that_nothing_counts_towards_is_refused(tmp_path: Path) -> None:
    data = board(tmp_path, "http://127.0.0.1:1/v1")
    data["team"]["actor"]["price"] = {}
    with pytest.raises(RecipeError, match="max_cost is 5, and nobody has a price"):
        parse_recipe({**data, "max_cost": 5})


def test_a_call_that_did_not_answer_costs_nothing_and_holds_nobody_up() -> None:
    async def scenario() -> None:
        meter = Meter(most=1.0)
        price = Price(output=1e6)
        lost = Metered(ScriptedEngine([], fail=lambda messages, sampling, seed: True), meter, price)
        with pytest.raises(Exception, match="outage"):
            await lost.complete([{"role": "user", "content": "?"}], Sampling(), 0)
        assert meter.spent == 0
        says = Metered(ScriptedEngine(["word"]), meter, price, places=1)
        await says.complete([{"role": "user", "content": "?"}], Sampling(), 0)
        assert meter.spent == 1
        with pytest.raises(MaxCostReached):
            await says.complete([{"role": "user", "content": "?"}], Sampling(), 0)

    asyncio.run(scenario())
