"""Diagnostics: what is logged of a step's rows beside what TRL logs, and of the holdout; see docs/metrics.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pilotfish.episode import Episode
from pilotfish.evaluate.arms import words_of
from pilotfish.task import Task
from pilotfish.team import Usage
from pilotfish.train.credit import mean
from pilotfish.train.row import Row
from pilotfish.verify.form import form_fault
from pilotfish.verify.registry import leaks
from pilotfish.verify.verdict import RIGHT

MOST_LOST = 0.1
"""Share of the holdout that may lack a verdict where its accuracy chooses weights."""


def diagnose(
    rows: Sequence[Row],
    alone: Mapping[str, float | None],
    tasks: Mapping[str, Task],
    size: int,
    mixed: Sequence[str] = (),
) -> dict[str, float]:
    """What is logged of a step's rows; docs/metrics.md explains each name.

    Args:
        rows: groups of `size`, one behind the other.
        alone: reward of the answering member alone, by task.
        tasks: by id.
        size: rows in a group.
        mixed: names of the topologies of a mix, by their number; each has its own accuracy then.
    """
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    judged = [(row.id.task, reward) for row in rows for reward in _verdicts(row)]
    pairs = [(before, after) for task, after in judged if (before := alone.get(task)) is not None]
    said = [row for row in rows if row.trained]
    metrics = {
        "team/no_verdict": mean([row.lost for row in rows]),
        "group/ended_early": mean([row.ended_early for row in rows]),
        "group/no_spread": mean([len({row.reward for row in group} - {None}) <= 1 for group in groups]),
    }
    if judged:
        metrics["team/accuracy"] = mean([reward for _, reward in judged])
    for number, name in enumerate(mixed):
        if rewards := [reward for row in rows if row.id.topology == number for reward in _verdicts(row)]:
            metrics[f"team/accuracy/{name}"] = mean(rewards)
    if said:
        metrics["trainee/tokens"] = mean([len(row.completion_ids) for row in said])
        metrics["trainee/leak_rate"] = mean([leaks(tasks[row.id.task], row.text) for row in said])
        metrics |= _form_faults([row for row in said if row.form != "free"])
    if pairs:
        metrics["flips/wrong_to_right"] = mean([before < RIGHT <= after for before, after in pairs])
        metrics["flips/right_to_wrong"] = mean([after < RIGHT <= before for before, after in pairs])
    for member, usage in _usage(rows).items():
        metrics[f"tokens/{member}"] = usage.total / len(rows)
    return metrics


def holdout_figures(tasks: Sequence[Task], played: Mapping[str, Sequence[Episode]]) -> dict[str, float]:
    """What is logged of an evaluation on the holdout.

    Args:
        tasks: of the holdout.
        played: an episode a task, by topology; of several, the accuracy is the mean over them.

    Returns:
        Without an accuracy where more than `MOST_LOST` of the tasks have no verdict: it would be of other tasks than
        that of another step.
    """
    leaked = [
        leaks(task, words_of(episode))
        for episodes in played.values()
        for task, episode in zip(tasks, episodes, strict=True)
    ]
    verdicts = {name: [episode.verdict.reward for episode in episodes] for name, episodes in played.items()}
    lost = sum(None in rewards for rewards in zip(*verdicts.values(), strict=True))
    figures = {"holdout/leak_rate": mean(leaked), "holdout/no_verdict": lost}
    judged = {name: [reward for reward in rewards if reward is not None] for name, rewards in verdicts.items()}
    if lost > MOST_LOST * len(tasks) or not all(judged.values()):
        return figures
    accuracy = {name: mean(rewards) for name, rewards in judged.items()}
    if len(played) > 1:
        figures |= {f"holdout/accuracy/{name}": value for name, value in accuracy.items()}
    return figures | {"holdout/accuracy": mean(list(accuracy.values()))}


def holdout_note(figures: Mapping[str, float], played: Mapping[str, Sequence[Episode]]) -> str:
    """What is to be said of holdout tasks without a verdict; empty where there are none.

    Args:
        figures: see `holdout_figures`.
        played: as there.
    """
    lost = [episode for episodes in played.values() for episode in episodes if episode.verdict.reward is None]
    if not lost:
        return ""
    counts = "the accuracy is that of the others" if "holdout/accuracy" in figures else "this is no measurement"
    why = next((episode.verdict.why for episode in lost if episode.verdict.why), "no reason")
    of = len(next(iter(played.values())))
    return f"{figures['holdout/no_verdict']} of {of} holdout tasks have no verdict ({why}); {counts}"


def _form_faults(rows: Sequence[Row]) -> dict[str, float]:
    """The share of words that break their form, in all and by fault, of rows that have one."""
    if not rows:
        return {}
    faults = [form_fault(row.text, row.form) for row in rows]
    kinds = sorted({fault for fault in faults if fault})
    named = {f"form/{re.sub('[^a-z]+', '_', kind).strip('_')}": mean([f == kind for f in faults]) for kind in kinds}
    return {"form/broken": mean([fault is not None for fault in faults]), **named}


def _verdicts(row: Row) -> list[float]:
    """The team's rewards on a row, without the terms: one for each of its judged answers."""
    return [episode.verdict.reward for episode in row.episodes if episode.verdict.reward is not None]


def _usage(rows: Sequence[Row]) -> dict[str, Usage]:
    """Tokens that the step cost: a call that rows share counts once."""
    seen: dict[str, tuple[str, Usage]] = {}
    for row in rows:
        for episode in row.played:
            seen.update({turn.key: (turn.member, turn.usage) for turn in episode.asked})
    total: dict[str, Usage] = {}
    for member, usage in seen.values():
        total[member] = total.get(member, Usage()) + usage
    return total
