"""What a run has spent is counted from its record: quickly, without words, and all that was paid."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pilotfish.engine.base import Attempt, Completion
from pilotfish.episode import Journal, Turn
from pilotfish.recipe import parse_recipe
from pilotfish.spending import spent
from pilotfish.team import Sampling, Usage

MILLION = 1_000_000
SEAT = {"engine": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
RECIPE = parse_recipe(
    {
        "team": {"actor": {**SEAT, "price": {"input": 1, "output": 10}}},
        "topology": "solo",
        "evaluate": {
            "benchmarks": ["math500"],
            "models": {"large": {"actor": {"model": "l", "price": {"input": 100, "output": 0}}}},
        },
    }
)


def asked(journal: Journal, key: str, asker: str, usage: Usage, tries: tuple[Attempt, ...] = ()) -> None:
    done = Completion("words", "stop", usage, 0.1)
    messages = [{"role": "user", "content": "?"}]
    journal.record(Turn(key, "s", "actor", 0, messages, Sampling(), "answered", done, asker=asker, attempts=tries))


def test_all_that_a_run_has_asked_is_paid_and_nothing_else(tmp_path: Path) -> None:
    one, other = Journal(tmp_path), Journal(tmp_path)
    asked(one, "a", "eval/x|solo", Usage(MILLION, 0))
    asked(one, "b", "eval/x|solo|large: solo", Usage(MILLION, 0))
    asked(one, "c", "", Usage(MILLION, 0))
    asked(one, "d", "eval/x|solo", Usage(0, MILLION), (Attempt(1.0, "503", Usage(MILLION, 0)),))
    asked(other, "a", "eval/x|solo", Usage(MILLION, 0))
    assert spent(RECIPE, one) == 1 + 100 + (1 + 10) + 1, "what two processes have both asked, both have paid"


def test_no_words_are_read_for_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    asked(journal, "a", "eval/x|solo", Usage(MILLION, 0))
    journal.close()
    (file,) = tmp_path.glob("*.db")
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE turns SET messages = 'no JSON', sampling = 'none'")
    assert spent(RECIPE, Journal(tmp_path, writable=False)) == 1
