"""What a page shows of a run: who sits in the team, the curves of training, and episodes with all that was said.

Plain values for JSON. Texts are texts: the pages put them in as such, and never as markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from pilotfish.episode import Episode, Journal, Placed
from pilotfish.report.examples import cut, question_of
from pilotfish.run import Run
from pilotfish.view.index import Line

TEXT = 400_000
"""Characters of one text that a page is given at most."""
CURVES = {
    "reward": ("reward", "team/accuracy", "holdout/accuracy"),
    "leak rate": ("trainee/leak_rate", "holdout/leak_rate"),
    "flips against the actor alone": ("flips/wrong_to_right", "flips/right_to_wrong"),
    "tokens a row": ("tokens/",),
}
"""Drawings, and the metrics of each; one that ends in `/` stands for all that begin so."""


def about(run: Run) -> dict[str, Any]:
    """The run's name and team; addresses and keys are nobody's business."""
    recipe = run.recipe
    members = [{"name": name, "model": member.model} for name, member in recipe.team.items()]
    name = run.folder.resolve().name
    return {"run": name, "topology": recipe.topology.name, "trainee": recipe.trainee, "members": members}


def curves(run: Run) -> list[dict[str, Any]]:
    """The drawings of a run, or of each of its stages that has trained: curves of [step, value] by metric."""
    return [found for one in (run, *run.stages()) for found in _drawings(one)]


def _drawings(run: Run) -> Iterator[dict[str, Any]]:
    rows = list(run.logged())
    logged = dict.fromkeys(name for row in rows for name in row)
    for title, wanted in CURVES.items():
        names = [name for one in wanted for name in logged if _is(name, one)]
        drawn = [{"name": name, "marks": _marks(rows, name)} for name in names]
        if kept := [curve for curve in drawn if curve["marks"]]:
            yield {"title": title, "stage": run.stamp, "curves": kept}


def _is(name: str, wanted: str) -> bool:
    return name == wanted or (wanted.endswith("/") and name.startswith(wanted))


def _marks(rows: Sequence[dict[str, Any]], name: str) -> list[list[float]]:
    """In order of steps: a resumed run has logged some of them late."""
    found = {row["step"]: row[name] for row in rows if isinstance(row.get(name), int | float) and isfinite(row[name])}
    return [[step, found[step]] for step in sorted(found)]


def episodes(lines: Sequence[Line], journal: Journal, most: int = TEXT) -> list[dict[str, Any]]:
    """Episodes with their turns.

    Args:
        lines: which.
        journal: of the run.
        most: characters of one text.
    """
    return [_shown(line, journal, most) for line in lines]


def _shown(line: Line, journal: Journal, most: int) -> dict[str, Any]:
    try:
        episode = journal.episode(line.id)
    except LookupError as error:  # a file of the journal was moved away
        return {"mark": line.mark, "missing": str(error)}
    if episode is None:
        return {"mark": line.mark, "missing": f"episode {line.id} is not in the journal any more"}
    verdict = episode.verdict
    return {
        "mark": line.mark,
        "id": episode.id,
        "question": cut(question_of(episode), most),
        "answer": None if episode.answer is None else cut(episode.answer, most),
        "reward": verdict.reward,
        "extracted": cut(verdict.extracted or "", most),
        "why": cut(verdict.why, most),
        "turns": [_turn(placed, episode, most) for placed in episode.turns],
        "tokens": [[member, used.prompt, used.completion] for member, used in episode.usage().items()],
    }


def _turn(placed: Placed, episode: Episode, most: int) -> dict[str, Any]:
    turn, done = placed.turn, placed.turn.completion
    return {
        "member": turn.member,
        "trainee": turn.member == episode.trainee,
        "depth": placed.depth,
        "shared": not placed.salt,
        "final": placed.final,
        "messages": [[message["role"], cut(message["content"], most)] for message in turn.messages],
        "said": cut(turn.text, most) if done else None,
        "error": cut(f"{turn.outcome}: {turn.error}", most) if not done else "",
        "reasoning": cut(done.reasoning or "", most) if done else "",
        "finish": done.finish_reason if done else "",
        "tokens": [turn.usage.prompt, turn.usage.completion],
        "seconds": round(turn.seconds, 3),
        "tries": len(turn.attempts),
    }
