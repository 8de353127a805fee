"""A run is served with the weights it has trained: which models it offers, and how its own engines stream."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from pilotfish import Sampling
from pilotfish.cli import main
from pilotfish.engine.base import complete
from pilotfish.engine.batches import BatchTokens
from pilotfish.engine.continuous import ContinuousTokens
from pilotfish.engine.lease import Device, Leased
from pilotfish.engine.meter import Meter, Metered
from pilotfish.engine.tokens import TokenEngine
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.run import Run
from pilotfish.serve.asked import Manner, manner_of
from pilotfish.serve.main import open_app
from pilotfish.team import Message, Price
from serving import Served, running
from tiny import halted, save_tiny, tiny_model, tiny_tokenizer

torch.set_num_threads(1)
CHAT = [Message(role="user", content="What is 12 and 7?")]


def recipe(folder: Path, topology: str = "hint", **more: Any) -> Recipe:
    """The trainee on one tiny model, the others on another."""
    leads = topology == "leader"
    trainee, frozen = ("leader", ("ann", "bob")) if leads else ("collaborator", ("actor",))
    sampling = {"sampling": {"max_tokens": 12, "temperature": 0.7}, "dtype": "float32"}
    team: dict[str, Any] = {trainee: {"model": str(save_tiny(folder / "before", 1)), "train": "full", **sampling}}
    team |= {name: {"model": str(save_tiny(folder / "frozen", 2)), **sampling} for name in frozen}
    return parse_recipe({"team": team, "topology": topology, **more})


def trained(recipe: Recipe, folder: Path) -> Run:
    """A run whose best weights are a third tiny model."""
    run = Run(folder / "run", recipe)
    save_tiny(run.best, 3)
    run.mark_best(run.best, 5)
    return run


@contextmanager
def serving(recipe: Recipe, run: Run) -> Iterator[tuple[Served, list[str]]]:
    said: list[str] = []
    with running(open_app(recipe, run, said.append)) as server:
        yield server, said


def of_members(answer: Any) -> dict[str, str]:
    return {turn["member"]: turn["text"] for turn in answer.json["pilotfish"]["turns"][0]}


def test_the_trained_weights_speak_in_the_trainees_seat(tmp_path: Path) -> None:
    mine = recipe(tmp_path)
    run = trained(mine, tmp_path)
    with serving(mine, run) as (server, told):
        models = {model["id"]: model["pilotfish"]["trained"] for model in server.get("/v1/models").json["data"]}
        team = of_members(server.chat(CHAT[0]["content"], seed=1, pilotfish={"turns": True}))
        alone = of_members(
            server.chat(CHAT[0]["content"], seed=1, model="alone", temperature=0, pilotfish={"turns": True})
        )
    untrained = Run(tmp_path / "other", mine)
    with serving(mine, untrained) as (server, warned):
        before = of_members(server.chat(CHAT[0]["content"], seed=1, pilotfish={"turns": True}))
    assert models == {"team": True, "collaborator": True, "actor": False, "alone": True}
    assert before["collaborator"] != team["collaborator"]
    assert alone["collaborator"] == asyncio.run(_said(run.best, "What is 12 and 7?"))
    assert any("as before training" in line for line in warned)
    assert not any("as before training" in line for line in told)


async def _said(folder: Path, question: str) -> str:
    engine = TransformersEngine.load(str(folder), dtype="float32")
    done = await engine.complete([Message(role="user", content=question)], Sampling(temperature=0, max_tokens=12), 0)
    await engine.close()
    return done.text


def test_a_leader_alone_thinks_in_its_own_form_and_the_first_agent_is_the_actor(tmp_path: Path) -> None:
    mine = recipe(tmp_path, "leader")
    with serving(mine, trained(mine, tmp_path)) as (server, _):
        data = server.get("/v1/models").json["data"]
        asked = server.chat("2 + 2?", model="actor", pilotfish={"turns": True}).json["pilotfish"]["turns"][0]
    assert {model["id"]: model["pilotfish"]["topology"] for model in data} == {
        "team": "leader",
        "alone": "alone",
        "actor": "solo",
        "leader": "solo",
        "ann": "solo",
        "bob": "solo",
    }
    assert [turn["member"] for turn in asked] == ["ann"]


@pytest.mark.parametrize(
    ("fields", "manner"),
    [
        ({}, Manner()),
        ({"evaluate": {"benchmarks": ["math500"]}}, manner_of(parse_recipe(
            {"team": {"a": {"model": "m"}}, "topology": "solo", "tasks": {"train": "math8k"}}))),
        ({"tasks": {"train": {"source": "x.jsonl", "verifier": "choice"}}}, Manner(
            "Work through it step by step and put the letter of the right option, and nothing else, inside \\boxed{}.",
            "choice")),
        ({"tasks": {"train": {"source": "x.jsonl", "instruction": "Be brief.", "verifier": "exact"}}}, Manner(
            "Be brief.", "exact")),
        ({"tasks": {"train": "math8k"}, "serve": {"instruction": ""}}, Manner("", "maths")),
    ],
)  # fmt: skip
def test_answers_are_written_as_the_runs_tasks_want_them(fields: dict[str, Any], manner: Manner) -> None:
    assert manner_of(parse_recipe({"team": {"actor": {"model": "m"}}, "topology": "solo", **fields})) == manner


# How engines stream


def batches(model: Any) -> TokenEngine:
    return BatchTokens(model)


def continuous(model: Any) -> TokenEngine:
    return ContinuousTokens(model, cache_tokens=2048, page=16)


@pytest.mark.parametrize("template", [True, False])
@pytest.mark.parametrize("tokens", [batches, continuous])
def test_weights_in_process_give_their_words_on_as_tokens_come(
    template: bool, tokens: Callable[[Any], TokenEngine]
) -> None:
    async def ask() -> None:
        model, tokenizer = tiny_model(4), tiny_tokenizer() if template else tiny_tokenizer(None)
        engine = TransformersEngine(model, tokenizer, tokens=tokens(model))
        behind = Metered(Leased(engine, Device()), Meter(), Price())
        stops: list[tuple[str, ...]] = [(), (" the",), ("e",), ("\n", "o")]
        calls = [(Sampling(max_tokens=30, stop=stop), seed) for stop in stops for seed in range(4)]
        heard: list[list[str]] = [[] for _ in calls]
        streamed = await asyncio.gather(
            *(complete(behind, CHAT, *call, pieces.append) for call, pieces in zip(calls, heard, strict=True))
        )
        plain = await asyncio.gather(*(engine.complete(CHAT, *call) for call in calls))
        await behind.close()
        assert (
            ["".join(pieces) for pieces in heard] == [done.text for done in streamed] == [done.text for done in plain]
        )
        assert sum(len(pieces) for pieces in heard) > 5 * len(calls)

    asyncio.run(ask())


def test_a_client_that_leaves_drops_its_request_in_process(tmp_path: Path) -> None:
    async def leave() -> float:
        model = tiny_model(4)
        engine = TransformersEngine(model, tiny_tokenizer())
        _, let_go = halted(model, after=100)
        heard = asyncio.Event()
        long = Sampling(max_tokens=450, temperature=1.0)
        calls = [
            asyncio.ensure_future(complete(engine, CHAT, long, seed, lambda piece: heard.set())) for seed in range(4)
        ]
        await heard.wait()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        let_go.set()
        running = engine._tokens._running  # type: ignore[attr-defined]
        assert all(row.over and len(row.tokens) < 450 for row in running)
        done = await engine.complete(CHAT, Sampling(max_tokens=2), 0)
        await engine.close()
        return done.seconds

    asyncio.run(leave())


# The command


def test_the_command_says_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    team = {"actor": {"engine": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}}
    file.write_text(json.dumps({"team": team, "topology": "solo"}))
    assert main(["serve", str(file), "--run", str(tmp_path / "none")]) == 2
    told = capsys.readouterr().err
    assert "no run there" in told
    assert "or with `pilotfish eval RECIPE` where nobody is trained" in told, "nobody is, so `train` would refuse it"
    Run(tmp_path / "run", parse_recipe({"team": team, "topology": "solo"}))
    assert main(["serve", str(tmp_path / "run"), "--host", "0.0.0.0"]) == 2
    assert "serve.key_env" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "run"), "--key-env", "NOBODY_SET_THIS"]) == 2
    assert "no key in $NOBODY_SET_THIS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("topology", "words"),
    [("critic", "no member 'collaborator'"), ("vote", "note: topology vote failed in a rehearsal")],
)
def test_a_topology_that_does_not_fit_the_team_is_told_before_anybody_asks(
    topology: str, words: str, tmp_path: Path
) -> None:
    seat = {"engine": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    mine = parse_recipe({"team": {"actor": {**seat, "sampling": {"temperature": 0}}}, "topology": topology})
    said: list[str] = []
    try:
        open_app(mine, Run(tmp_path, mine), said.append)
    except RecipeError as error:
        said.append(str(error))
    assert any(words in line for line in said)


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    team = {"actor": {"engine": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}}
    Run(tmp_path / "run", parse_recipe({"team": team, "topology": "solo"}))
    command = [sys.executable, "-c", "import sys; from pilotfish.cli import main; sys.exit(main())"]
    with subprocess.Popen(
        [*command, "serve", str(tmp_path / "run"), "--port", "0"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        assert process.stderr.readline() == "models: team, actor\n"
        port = int(process.stderr.readline().partition("/v1")[0].rpartition(":")[2])
        assert Served(port).get("/health").json == {"status": "ok"}
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert (process.returncode, rest) == (130, "stopped\n")
