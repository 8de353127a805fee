"""A run that was really evaluated, on a loopback server, for the tests of reports.

    folder = evaluated(tmp_path, answers=lambda model, question: "…")

Members are called by their model's name, so a reply can depend on who is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mock_server import Body, Call, Fault, MockServer
from pilotfish.evaluate.bench import evaluate
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.run import Run

Answers = Callable[[str, str], str]
"""What is said, by model and by the last message."""


SEATS = {name: {"model": name} for name in ("collaborator", "actor")}


def tasks(folder: Path, name: str, count: int) -> str:
    """A file of sums with levels and subjects."""
    rows = [
        {
            "id": f"{name}-{n}",
            "question": f"{name} task {n}: what is {n} + 1?",
            "answer": str(n + 1),
            "level": 1 + n % 3,
            "subject": ("even", "odd")[n % 2],
        }
        for n in range(count)
    ]
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def recipe(
    folder: Path,
    base_url: str,
    *,
    count: int = 12,
    benchmarks: Sequence[str] = ("sums",),
    seats: Mapping[str, Mapping[str, Any]] = SEATS,
    **more: Any,
) -> Recipe:
    """A team behind a server, by default of the topology hint; `more` replaces the recipe's fields."""
    member = {"engine": "openai", "base_url": base_url, "retries": 0, "price": {"input": 1.0, "output": 2.0}}
    evaluate = {"benchmarks": [tasks(folder, name, count) for name in benchmarks], "against": ["solo"]}
    data = {
        "team": {name: {**member, **seat} for name, seat in seats.items()},
        "topology": "hint",
        "evaluate": {**evaluate, **more.pop("evaluate", {})},
        **more,
    }
    return parse_recipe(data)


def evaluated(
    folder: Path,
    answers: Answers,
    *,
    fault: Callable[[Call], Fault] | None = None,
    choices: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """The folder of a run that was evaluated.

    Args:
        folder: for the run and its tasks.
        answers: what is said.
        fault: what goes wrong; see `mock_server`.
        choices: merged into each choice, such as a reasoning text.
        more: see `recipe`.
    """

    def reply(body: Body) -> str | Body:
        said = answers(body["model"], body["messages"][-1]["content"])
        return {"message": {"role": "assistant", "content": said, **choices}} if choices else said

    with MockServer(reply=reply, fault=fault) as server:
        run = Run(folder / "run", recipe(folder, server.base_url, **more))
        evaluate(run.recipe, run)
    return run.folder
