"""A run's last evaluation as logs of inspect_ai, one `.eval` file for each benchmark and method.

    pilotfish export runs/hint --inspect          # then: inspect view --log-dir runs/hint/inspect
    export(Path("runs/hint"))

The files are written without inspect_ai, which brings some eighty packages; `pip install 'pilotfish[inspect]'` gets the
viewer. A log is a zip of JSON files: a header, a summary of each sample, and each sample. Format: inspect_ai, log
version 2, as `inspect_ai.log.read_eval_log` reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from pilotfish.episode import Episode, Journal
from pilotfish.recipe import Recipe
from pilotfish.report.evaluation import Benchmark, Place, Scored, read_evaluation
from pilotfish.report.inspect_sample import SCORER, by_model, head, sample
from pilotfish.report.page import anchor
from pilotfish.run import Run, RunError
from pilotfish.team import Usage

FOLDER = "inspect"
LOG_VERSION = 2
_SUMMARY = 1_000
"""Characters of a question in the list of samples."""

Told = Callable[[str, int, int], None]
"""A method on a benchmark, episodes written, and of how many."""


def export(folder: Path, out: Path | None = None, told: Told = lambda name, done, of: None) -> list[Path]:
    """Write the logs.

    Args:
        folder: of a run that was evaluated.
        out: where the files go; `inspect/` in the run's folder by default.
        told: called after each episode.

    Returns:
        The files written, one for each benchmark and method.

    Raises:
        RunError: no run there, it was not evaluated, or the journal does not have an episode any more.
    """
    run, found = Run(folder), read_evaluation(folder)
    place = out or folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    journal = run.journal(writable=False)
    try:
        return [
            _write(_Log(run, one, arm, journal), place, told)
            for one in found.benchmarks.values()
            for arm in one.arms
            if arm in one.episodes
        ]
    finally:
        journal.close()


class _Log:
    """One method on one benchmark."""

    def __init__(self, run: Run, one: Benchmark, arm: str, journal: Journal) -> None:
        self.run, self.one, self.arm, self.journal = run, one, arm, journal
        self.models = _models(run.recipe, one.models[arm])
        self.id = hashlib.sha256(f"{run.folder.resolve().name}/{one.name}/{arm}".encode()).hexdigest()[:22]

    @property
    def name(self) -> str:
        return f"{anchor(self.one.name)}_{anchor(self.arm)}.eval"

    def episodes(self) -> Iterator[tuple[Place, Scored, Episode]]:
        for place, played in self.one.episodes[self.arm].items():
            try:
                episode = self.journal.episode(played.id)
            except LookupError as error:
                raise RunError(f"{self.run.folder}: {error}; play it again with `pilotfish eval`") from error
            if episode is None:
                raise RunError(
                    f"{self.run.folder}: the journal lacks episode {played.id}; play it again with `pilotfish eval`"
                )
            yield place, played, episode

    def start(self, began: str) -> dict[str, Any]:
        """What is known before a sample is there."""
        places = list(self.one.episodes[self.arm])
        ids = list(dict.fromkeys(task for task, _ in places))
        roles = {member: {"model": model, "config": {}, "args": {}} for member, model in self.models.items()}
        spec = {
            "eval_id": self.id,
            "run_id": self.id,
            "created": began,
            "task": self.one.name,
            "task_id": self.id,
            "solver": self.arm,
            "dataset": {"name": self.one.name, "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": f"team/{self.arm}",
            "model_roles": roles,
            "config": {"epochs": 1 + max(number for _, number in places)},
            "packages": _packages(),
            "scorers": [{"name": SCORER}],
            "metadata": {"run": self.run.folder.resolve().name, "role": self.one.roles[self.arm]},
        }
        return {"version": LOG_VERSION, "eval": spec, "plan": {"name": self.arm, "steps": [], "config": {}}}

    def header(self, began: str, ended: str) -> dict[str, Any]:
        """The log without its samples."""
        played = list(self.one.episodes[self.arm].values())
        usage: dict[str, Usage] = {}
        for member, used in ((member, used) for one in played for member, used in one.usage.items()):
            usage[member] = usage.get(member, Usage()) + used
        by_role = {member: by_model({member: used}, {})[member] for member, used in usage.items()}
        times = {"started_at": began, "completed_at": ended}
        stats = {**times, "model_usage": by_model(usage, self.models), "role_usage": by_role}
        return {**self.start(began), "status": "success", "results": self._results(played), "stats": stats}

    def _results(self, played: list[Scored]) -> dict[str, Any]:
        row = next(row for row in self.one.rows if row["name"] == self.arm)
        judged = sum(one.reward is not None for one in played)
        figures = {"accuracy": row["accuracy"], "stderr": row.get("standard_error")}
        metrics = {name: {"name": name, "value": value} for name, value in figures.items() if value is not None}
        score = {"name": SCORER, "scorer": SCORER, "scored_samples": judged, "metrics": metrics}
        return {
            "total_samples": len(played),
            "completed_samples": judged,
            "scores": [{**score, "unscored_samples": len(played) - judged}],
        }


def _write(log: _Log, folder: Path, told: Told) -> Path:
    """The file, whole or not at all."""
    file, summaries = folder / log.name, []
    partial, of = file.with_suffix(".part"), len(log.one.episodes[log.arm])
    with ZipFile(partial, "w", ZIP_DEFLATED) as zipped:
        for done, (place, played, episode) in enumerate(log.episodes(), start=1):
            task = log.one.tasks[place[0]]
            _add(
                zipped,
                f"samples/{place[0]}_epoch_{place[1] + 1}.json",
                sample(place, played, task, episode, log.models),
            )
            summaries.append(_summary(head(place, played, task, episode, log.models), len(episode.turns)))
            told(f"{log.one.name}: {log.arm}", done, of)
        began = min(summary["started_at"] for summary in summaries)
        ended = max(summary["completed_at"] for summary in summaries)
        _add(zipped, "_journal/start.json", log.start(began))
        _add(zipped, "summaries.json", summaries)
        _add(zipped, "header.json", log.header(began, ended))
    os.replace(partial, file)
    return file


def _add(zipped: ZipFile, name: str, data: Any) -> None:
    """As UTF-8; a half of a surrogate pair, which a model may write and inspect does not read, becomes a `?`."""
    zipped.writestr(name, json.dumps(data, ensure_ascii=False).encode("utf-8", errors="replace"))


def _summary(found: dict[str, Any], turns: int) -> dict[str, Any]:
    error = found["error"]["message"] if found["error"] else None
    return {**found, "input": found["input"][:_SUMMARY], "error": error, "completed": True, "message_count": 2 * turns}


def _models(recipe: Recipe, name: str) -> Mapping[str, str]:
    """Who sits on which model; nobody is named where the recipe does not know the team any more."""
    team = recipe.teams().get(name)
    return {member: config.model for member, config in team.team.items()} if team else {}


def _packages() -> dict[str, str]:
    try:
        return {"pilotfish": version("pilotfish")}
    except PackageNotFoundError:
        return {}
