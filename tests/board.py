"""A small scoreboard behind a loopback server: tasks whose answers depend on the call's seed, so that no two samples
share an answer unless they share a call.

    with MockServer(reply=said) as server:
        results = evaluate(parse_recipe(board(folder, server.base_url)), Run(folder / "run", recipe))
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

SHARE = {"small": 0.5, "big": 0.8}
"""How often each model is right."""


def said(body: dict[str, Any]) -> str:
    """An answer that is right or wrong by seed and model."""
    number = int(re.findall(r"What is (\d+)", str(body["messages"]))[0])
    draw = random.Random(f"{body['seed']} {body['model']}")
    wrong = draw.choice([2, 3])
    return f"So. The answer is {number + (1 if draw.random() < SHARE.get(body['model'], 0.5) else wrong)}."


def tasks_file(file: Path, count: int) -> str:
    rows = [
        {"id": f"t{n}", "question": f"What is {n} + 1?", "answer": str(n + 1), "level": n % 3, "subject": "sums"}
        for n in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def seat(base_url: str, model: str = "small", temperature: float = 0.7, **more: Any) -> dict[str, Any]:
    """A member behind the server, at a price of 1 for a prompt token and 2 for a completion token, in millionths."""
    sampling = {"temperature": temperature, "max_tokens": 99}
    return {
        "engine": "openai",
        "base_url": base_url,
        "model": model,
        "retries": 0,
        "sampling": sampling,
        "price": {"input": 1, "output": 2},
        **more,
    }


def board(folder: Path, base_url: str, *, tasks: int = 6, **evaluate: Any) -> dict[str, Any]:
    """Solo, a vote and two rounds of reflection on two benchmarks."""
    return {
        "team": {"actor": seat(base_url)},
        "topology": "solo",
        "evaluate": {
            "benchmarks": [tasks_file(folder / f"{name}.jsonl", tasks) for name in ("first", "second")],
            "against": [
                {"name": "vote", "options": {"samples": 3}},
                {"name": "reflect", "options": {"rounds": 2}},
            ],
            **evaluate,
        },
    }
