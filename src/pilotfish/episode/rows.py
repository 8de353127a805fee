"""How turns and episodes are laid down in the journal's tables: small columns in the open, the rest as JSON."""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from pilotfish.engine.base import Attempt, Completion, billed
from pilotfish.episode.turn import Bill, Episode, Placed, Turn
from pilotfish.team import Sampling, Usage
from pilotfish.verify.verdict import Verdict

TURN_COLUMNS = (
    "key,scope,member,version,outcome,asker,started,messages,sampling,error,attempts,completion,"
    "prompt_ids,completion_ids,logprobs"
)

BILL_COLUMNS = "asker,member,json_extract(completion,'$[4]'),attempts"
"""Of a turn: who asked, and what it used."""


def of_turn(turn: Turn) -> tuple[Any, ...]:
    done = turn.completion
    return (
        turn.key,
        turn.scope,
        turn.member,
        turn.version,
        turn.outcome,
        turn.asker,
        turn.started,
        json.dumps(turn.messages),
        turn.sampling.model_dump_json(),
        json.dumps(turn.error),
        json.dumps([_of_attempt(attempt) for attempt in turn.attempts]),
        _of_completion(done) if done else None,
        _pack("q", done.prompt_ids) if done else None,
        _pack("q", done.completion_ids) if done else None,
        _pack("d", done.logprobs) if done else None,
    )


def turn(row: tuple[Any, ...]) -> Turn:
    key, scope, member, version, outcome, asker, started, messages, sampling, error, attempts, done = row[:12]
    return Turn(
        key=key,
        scope=scope,
        member=member,
        version=version,
        outcome=outcome,
        asker=asker,
        started=started,
        messages=json.loads(messages),
        sampling=Sampling.model_validate_json(sampling),
        completion=_completion(done, row[12:]) if done else None,
        error=json.loads(error),
        attempts=tuple(_attempt(*attempt) for attempt in json.loads(attempts)),
    )


def bill(row: tuple[Any, ...]) -> Bill:
    asker, member, used, attempts = row
    tries = () if attempts == "[]" else tuple(_attempt(*attempt) for attempt in json.loads(attempts))
    return Bill(asker, member, billed(tries, Usage(*json.loads(used)) if used else None))


def _of_attempt(attempt: Attempt) -> list[Any]:
    return [attempt.seconds, attempt.error, *([_of_usage(attempt.usage)] if attempt.usage.total else [])]


def _attempt(seconds: float, error: str, usage: Sequence[Any] = ()) -> Attempt:
    return Attempt(seconds, error, Usage(*usage))


def _of_usage(used: Usage) -> list[Any]:
    return [used.prompt, used.completion, used.cached, used.reasoning, used.estimated]


def _of_completion(done: Completion) -> str:
    return json.dumps([done.text, done.finish_reason, done.seconds, done.reasoning, _of_usage(done.usage)])


def _completion(record: str, blobs: tuple[bytes | None, ...]) -> Completion:
    text, finish_reason, seconds, reasoning, usage = json.loads(record)
    return Completion(
        text=text,
        finish_reason=finish_reason,
        usage=Usage(*usage),
        seconds=seconds,
        reasoning=reasoning,
        prompt_ids=_unpack("q", blobs[0]),
        completion_ids=_unpack("q", blobs[1]),
        logprobs=_unpack("d", blobs[2]),
    )


def of_episode(episode: Episode) -> str:
    placed = [[p.position, p.turn.key, _lost(p.turn), p.depth, p.salt, p.final] for p in episode.turns]
    judged = episode.verdict
    verdict = [judged.reward, judged.extracted, judged.why, *(turn.key for turn in judged.turns)]
    whole = [episode.id, episode.task, episode.topology, episode.scope, placed, episode.answer, verdict]
    return json.dumps([*whole, episode.trainee, episode.seconds, episode.unused])


def episode(record: str, find: Callable[[str], Turn | None]) -> Episode:
    id, task, topology, scope, placed, answer, verdict, trainee, seconds, unused = json.loads(record)

    def of(key: str) -> Turn:
        if (turn := find(key)) is None:
            raise LookupError(f"episode {id}: its turn {key} is not in the journal")
        return turn

    turns = []
    for position, key, lost, depth, salt, final in placed:
        found = of(key)
        if lost:
            # Another episode may have asked the same again since, and been answered: this one was not.
            found = dataclasses.replace(found, outcome=lost[0], error=lost[1], completion=None)
        turns.append(Placed(tuple(position), found, depth, tuple(salt), final))
    reward, extracted, why, *judged = verdict
    given = Verdict(reward, extracted, why, tuple(map(of, judged)))
    return Episode(id, task, topology, scope, tuple(turns), answer, given, trainee, seconds, tuple(unused))


def _lost(turn: Turn) -> list[str] | None:
    return None if turn.answered else [turn.outcome, turn.error]


def _pack(code: str, values: tuple[Any, ...] | None) -> bytes | None:
    return None if values is None else array(code, values).tobytes()


def _unpack(code: str, blob: bytes | None) -> tuple[Any, ...] | None:
    return None if blob is None else tuple(array(code, blob))
