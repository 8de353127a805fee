"""What a run has spent is counted from its record: quickly, without words, and all that was paid."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from pilotfish import ScriptedEngine
from pilotfish.engine.base import Attempt, CallFailed, Completion
from pilotfish.engine.meter import Meter, Metered
from pilotfish.episode import Journal, Turn
from pilotfish.recipe import parse_recipe
from pilotfish.spending import set_meter, spent
from pilotfish.team import Price, Sampling, Usage

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
    assert spent(RECIPE, one) == (1 + 100 + (1 + 10) + 1, 5 * MILLION), (
        "what two processes have both asked, both have paid"
    )


def test_no_words_are_read_for_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    asked(journal, "a", "eval/x|solo", Usage(MILLION, 0))
    journal.close()
    (file,) = tmp_path.glob("*.db")
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE turns SET messages = 'no JSON', sampling = 'none'")
    assert spent(RECIPE, Journal(tmp_path, writable=False)) == (1, MILLION)


def test_a_meter_counts_the_tokens_that_a_run_has_used_before_it(tmp_path: Path) -> None:
    journal, meter = Journal(tmp_path), Meter()
    asked(journal, "a", "eval/x|solo", Usage(100, 20), (Attempt(1.0, "503", Usage(100, 0)),))
    set_meter(meter, RECIPE, journal)
    assert meter.tokens == 220


def test_tries_without_an_answer_are_among_the_tokens() -> None:
    tries = (Attempt(1.0, "503", Usage(100, 5)),)

    async def fail() -> Completion:
        raise CallFailed("503", tries)

    async def answer() -> Completion:
        return Completion("4", "stop", Usage(100, 1), 0.1, attempts=tries)

    meter = Meter()
    metered = Metered(ScriptedEngine(["4"]), meter, Price())
    with pytest.raises(CallFailed):
        asyncio.run(metered.around(fail))
    assert meter.tokens == 105
    asyncio.run(metered.around(answer))
    assert meter.tokens == 105 + 206
