"""Real clients of a served team: the openai package, inspect_ai and lm-evaluation-harness.

The last two bring versions of their own of many packages, so they live in an environment of their own, in which only
the clients run:

    python -m venv .venv-clients && .venv-clients/bin/pip install '.[clients]'
    PILOTFISH_CLIENTS=.venv-clients/bin .venv/bin/pytest -m clients
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from mock_server import MockServer
from pilotfish import evaluate
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.run import Run
from pilotfish.serve.main import open_app
from pilotfish.topology import hint
from seated import seats
from serving import Served, running, served

pytestmark = pytest.mark.clients
TASKS = 12

INSPECT = r"""
from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate


@task
def sums():
    rows = json_dataset("tasks.jsonl", FieldSpec(input="question", target="answer"))
    return Task(dataset=rows, solver=generate(), scorer=pattern(r"\\boxed\{(.*?)\}"))
"""
LM_EVAL = r"""
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: tasks.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["</end>"], temperature: 0.0}
filter_list:
  - {name: boxed, filter: [{function: regex, regex_pattern: '\\boxed\{(.*?)\}'}, {function: take_first}]}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


def client(program: str) -> str:
    """Where a client's program is."""
    found = shutil.which(program, path=os.environ.get("PILOTFISH_CLIENTS")) or shutil.which(program)
    if not found:
        pytest.skip(f"needs the command {program}: see the beginning of this file")
    return str(Path(found).absolute())


# The openai package


@pytest.fixture
def team() -> Iterator[Served]:
    with served(hint, seats(collaborator=lambda m, s, seed: "Add.", actor=lambda m, s, seed: "It is 4")) as server:
        yield server


def asked(**fields: Any) -> Any:
    return {"model": "team", "messages": [{"role": "user", "content": "2 + 2?"}], **fields}


def test_the_openai_package_gets_answers_models_and_errors(team: Served) -> None:
    with openai.OpenAI(base_url=team.base_url, api_key="none", max_retries=0) as ask:
        said = ask.chat.completions.create(**asked(n=2, max_tokens=2, extra_body={"pilotfish": {"turns": True}}))
        assert [choice.message.content for choice in said.choices] == ["It is", "It is"]
        assert said.choices[0].finish_reason == "length"
        assert said.usage.completion_tokens == 5
        assert said.usage.members["actor"]["completion_tokens"] == 4
        assert said.pilotfish["turns"][0][0]["text"] == "Add."
        assert {model.id for model in ask.models.list()} == {"team", "collaborator", "actor"}
        assert ask.completions.create(model="actor", prompt="2 + 2?").choices[0].text == "It is 4"
        with pytest.raises(openai.NotFoundError, match="no model 'gpt'"):
            ask.chat.completions.create(**asked(model="gpt"))
        with pytest.raises(openai.BadRequestError, match="no such setting"):
            ask.chat.completions.create(**asked(top_p=0.5))


def test_the_openai_package_streams(team: Served) -> None:
    with openai.OpenAI(base_url=team.base_url, api_key="none") as ask:
        *pieces, usage = ask.chat.completions.create(**asked(stream=True, stream_options={"include_usage": True}))
    assert [piece.choices[0].delta.content for piece in pieces] == ["It", " is", " 4", None]
    assert pieces[-1].choices[0].finish_reason == "stop"
    assert usage.usage.completion_tokens == 4


def test_the_openai_package_asks_many_at_once(team: Served) -> None:
    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=team.base_url, api_key="none") as ask:
            plain = (ask.chat.completions.create(**asked()) for _ in range(10))
            said = [done.choices[0].message.content or "" for done in await asyncio.gather(*plain)]
            stream = await ask.chat.completions.create(**asked(stream=True))
            return [*said, "".join([piece.choices[0].delta.content or "" async for piece in stream])]

    assert asyncio.run(all_of_them()) == ["It is 4"] * 11


# Harnesses: what they measure is what `pilotfish eval` measures


def reply(body: dict[str, Any]) -> str:
    """Right or wrong by all that was said."""
    drawn = int(hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest(), 16)
    return f"So it is \\boxed{{{drawn % 2}}}."


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Recipe, Run]]:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "tasks.jsonl"
    rows = [{"question": f"Is {n} so?", "answer": str(n % 2)} for n in range(TASKS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with MockServer(reply=reply) as server:
        member = {"engine": "openai", "base_url": server.base_url}
        team = {"collaborator": {**member, "model": "advises"}, "actor": {**member, "model": "answers"}}
        recipe = parse_recipe({"team": team, "topology": "hint", "evaluate": {"benchmarks": [str(file)]}})
        yield recipe, Run(tmp_path / "run", recipe)


def accuracy(recipe: Recipe, run: Run) -> float:
    """What `pilotfish eval` finds."""
    [result] = evaluate(recipe, run)
    rewards = [episode.verdict.reward or 0.0 for episode in result.episodes["hint"]]
    found = sum(rewards) / len(rewards)
    assert 0 < found < 1
    return found


def test_inspect_ai_measures_what_eval_measures(run: tuple[Recipe, Run], tmp_path: Path) -> None:
    program = client("inspect")
    (tmp_path / "sums.py").write_text(INSPECT)
    with running(open_app(*run, print)) as server:
        variables = {
            "TEAM_BASE_URL": server.base_url,
            "TEAM_API_KEY": "none",
            "INSPECT_LOG_DIR": str(tmp_path / "logs"),
        }
        command = [program, "eval", "sums.py", "--model", "openai-api/team/team", "--log-format", "json"]
        _run([*command, "--display", "plain"], tmp_path, variables)
    [log] = (tmp_path / "logs").glob("*.json")
    [score] = json.loads(log.read_text())["results"]["scores"]
    assert score["metrics"]["accuracy"]["value"] == pytest.approx(accuracy(*run))


def test_lm_evaluation_harness_measures_what_eval_measures(run: tuple[Recipe, Run], tmp_path: Path) -> None:
    program = client("lm_eval")
    (tmp_path / "sums.yaml").write_text(LM_EVAL)
    with running(open_app(*run, print)) as server:
        where = f"model=team,base_url={server.base_url}/chat/completions,tokenizer_backend=none,num_concurrent=4"
        command = [program, "run", "--model", "local-chat-completions", "--model_args", where, "--tasks", "sums"]
        _run([*command, "--include_path", ".", "--apply_chat_template", "--output_path", "out"], tmp_path, {})
    [results] = (tmp_path / "out").rglob("results*.json")
    assert json.loads(results.read_text())["results"]["sums"]["exact_match,boxed"] == pytest.approx(accuracy(*run))


def _run(command: list[str], folder: Path, variables: dict[str, str]) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), **variables}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **offline}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
