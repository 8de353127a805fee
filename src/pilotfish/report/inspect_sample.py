"""An episode as a sample of inspect_ai's logs: messages, calls, score and usage, as plain data for JSON.

Every turn is a call of a member (`role` in inspect's words): its messages and its answer stand one after another in the
sample's messages, and as an event of kind `model` in its transcript. Format: inspect_ai, log version 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pilotfish.episode import Episode, Placed, Turn
from pilotfish.report.evaluation import About, Place, Scored
from pilotfish.report.examples import question_of
from pilotfish.team import Usage

SCORER = "verdict"
_STOPS = {"stop": "stop", "length": "max_tokens"}


def sample(place: Place, played: Scored, task: About, episode: Episode, models: Mapping[str, str]) -> dict[str, Any]:
    """A whole sample.

    Args:
        place: the task's id and the sample's number; inspect counts samples as epochs, from 1.
        played: the episode's figures.
        task: what is known of the task.
        episode: with its turns.
        models: of each member.
    """
    messages = [message for at, placed in enumerate(episode.turns) for message in _messages(at, placed.turn, models)]
    answer = {"role": "assistant", "content": episode.answer or "", "source": "generate"}
    return {
        **head(place, played, task, episode, models),
        "messages": messages,
        "output": {"model": "team", "choices": [{"message": answer, "stop_reason": "stop"}]},
        "events": [_event(at, placed, episode, models) for at, placed in enumerate(episode.turns)],
        "store": {},
        "attachments": {},
    }


def head(place: Place, played: Scored, task: About, episode: Episode, models: Mapping[str, str]) -> dict[str, Any]:
    """What stands of a sample in the list of samples."""
    began = [placed.turn.started for placed in episode.turns]
    ended = [placed.turn.started + placed.turn.seconds for placed in episode.turns]
    usage = {member: _usage(used) for member, used in played.usage.items()}
    score = {"value": played.reward, "answer": played.extracted, "explanation": played.why}
    beside = {"level": task.level, "subject": task.subject, "episode": played.id, "topology": episode.topology}
    return {
        "id": place[0],
        "epoch": place[1] + 1,
        "input": question_of(episode),
        "target": task.gold or "",
        "metadata": {name: value for name, value in beside.items() if value is not None},
        "scores": None if played.reward is None else {SCORER: score},
        "error": None if played.reward is not None else _error(played.why),
        "model_usage": by_model(played.usage, models),
        "role_usage": usage,
        "started_at": iso(min(began, default=0.0)),
        "completed_at": iso(max(ended, default=0.0)),
        "total_time": played.seconds,
        "working_time": played.seconds,
        "uuid": hashlib.sha256(played.id.encode()).hexdigest()[:22],
    }


def by_model(usage: Mapping[str, Usage], models: Mapping[str, str]) -> dict[str, Any]:
    """Usage by model; members on one model are summed."""
    total: dict[str, Usage] = {}
    for member, used in usage.items():
        name = models.get(member, member)
        total[name] = total.get(name, Usage()) + used
    return {name: _usage(used) for name, used in total.items()}


def iso(seconds: float) -> str:
    """Seconds since the epoch as inspect writes times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _usage(used: Usage) -> dict[str, Any]:
    """Inspect counts cached tokens apart from the input."""
    return {
        "input_tokens": used.prompt - used.cached,
        "output_tokens": used.completion,
        "total_tokens": used.total,
        "input_tokens_cache_read": used.cached,
        "reasoning_tokens": used.reasoning,
    }


def _error(why: str) -> dict[str, str]:
    return {"message": why, "traceback": "", "traceback_ansi": ""}


def _messages(at: int, turn: Turn, models: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for number, message in enumerate(turn.messages):
        told = {"role": message["role"], "content": message["content"], "metadata": {"told": turn.member}}
        yield {"id": f"{at}-{number}", "source": "input", **told}
    yield {"id": f"{at}-said", **_said(turn, models)}


def _said(turn: Turn, models: Mapping[str, str]) -> dict[str, Any]:
    reasoning = turn.completion.reasoning if turn.completion else None
    words = turn.text if turn.answered else f"({turn.outcome}: {turn.error})"
    content: Any = words
    if reasoning:
        content = [{"type": "reasoning", "reasoning": reasoning}, {"type": "text", "text": words}]
    return {
        "role": "assistant",
        "content": content,
        "source": "generate",
        "model": models.get(turn.member, turn.member),
        "metadata": {"member": turn.member},
    }


def _event(at: int, placed: Placed, episode: Episode, models: Mapping[str, str]) -> dict[str, Any]:
    """A call, in the order of the topology; calls side by side have each their own time."""
    turn, model = placed.turn, models.get(placed.turn.member, placed.turn.member)
    first = episode.turns[0].turn.started
    stop = _STOPS.get(turn.completion.finish_reason, "unknown") if turn.completion else "unknown"
    output = {
        "model": model,
        "choices": [{"message": _said(turn, models), "stop_reason": stop}],
        "usage": _usage(turn.usage),
        "time": turn.seconds,
        "error": turn.error or None,
    }
    return {
        "event": "model",
        "uuid": f"{episode.id}#{at}",
        "timestamp": iso(turn.started),
        "working_start": max(0.0, turn.started - first),
        "model": model,
        "role": turn.member,
        "input": list(_messages(at, turn, models))[:-1],
        "tools": [],
        "tool_choice": "auto",
        "config": _config(turn),
        "output": output,
        "error": turn.error or None,
        "completed": iso(turn.started + turn.seconds),
        "working_time": turn.seconds,
        "retries": len(turn.attempts) or None,
    }


def _config(turn: Turn) -> dict[str, Any]:
    sampling = turn.sampling
    return {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_tokens": sampling.max_tokens}
