"""What an evaluation left in a run's folder, read for the report: `results.json` and `scores.jsonl`.

    found = read_evaluation(Path("runs/hint"))
    found.benchmarks["math500"].rows[0]["accuracy"]
    found.benchmarks["math500"].episodes["solo"][("7", 0)].reward

The words of an episode stay in the journal; `Scored.id` names it there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from pilotfish.evaluate.record import ASKED, AT_K, ATTRIBUTION, BUDGET, ROUNDS, SEEDS, WEIGHTS
from pilotfish.evaluate.scores import FILE
from pilotfish.run import RunError
from pilotfish.team import Usage
from pilotfish.verify.verdict import RIGHT

RESULTS = "results.json"

Place = tuple[str, int]
"""A task and the number of its sample."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One episode, without its words."""

    id: str
    reward: float | None
    """None where it has failed."""
    why: str
    extracted: str | None
    calls: int
    seconds: float
    cost: float | None
    usage: Mapping[str, Usage]

    @property
    def right(self) -> bool:
        return self.reward is not None and self.reward >= RIGHT


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a task."""

    level: str | None
    subject: str | None
    gold: str | None
    """None where the scores do not tell it."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark's comparison."""

    name: str
    rows: list[dict[str, Any]]
    """As the evaluation wrote them, one an arm."""
    episodes: dict[str, dict[Place, Scored]] = field(default_factory=dict)
    """Of each arm, in the order of the tasks."""
    tasks: dict[str, About] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    """What each arm is there for: `baseline`, `untrained`, `trained` or `control`."""
    models: dict[str, str] = field(default_factory=dict)
    """Whose models each arm plays with: a name in `evaluate.models`, empty for the recipe's own."""
    parts: dict[str, Any] = field(default_factory=dict)
    """Further figures by the part of `results.json` they stand in, where there are any."""
    weights: dict[str, Any] = field(default_factory=dict)
    """Those of step 0 by name: whether any training is in them, and what is to be told of them."""

    @property
    def arms(self) -> list[str]:
        return [row["name"] for row in self.rows]

    @property
    def notes(self) -> list[str]:
        """What is to be told of the weights that were measured."""
        measured = [name for name in self.weights if any(arm.endswith(f", {name}") for arm in self.arms)]
        return [self.weights[name]["note"] for name in measured]

    def played(self, arm: str) -> int:
        """Episodes of an arm over all tasks and samples; 1 where none is there, since sums are divided by it."""
        return max(1, len(self.episodes.get(arm, ())))

    @property
    def averaged(self) -> str:
        """What means a task are over."""
        earlier = any(row["failed"] and "cost_per_task" not in row for row in self.rows)
        return "all episodes, also those without a verdict" if earlier else "episodes with a verdict"

    def cost(self, row: Mapping[str, Any]) -> float | None:
        """Mean money a task; None where no member has a price."""
        over_all = None if row["cost"] is None else row["cost"] / self.played(row["name"])
        mean: float | None = row.get("cost_per_task", over_all)
        return mean

    def counted(self, row: Mapping[str, Any]) -> tuple[Mapping[str, Mapping[str, Any]], int]:
        """What means a task are made of: what members used in so many episodes (`Row.counted`)."""
        played = self.played(row["name"])
        if judged := row.get("judged"):
            return judged, max(1, played - row["failed"])
        return row.get("usage", {}), played

    def reference(self, arm: str) -> str | None:
        """Whom an arm is compared with, on the same models: the actor alone, or the first arm where that was not
        played; None for that one itself."""
        beside = [other for other in self.arms if self.models.get(other) == self.models.get(arm)]
        alone = self.parts.get(ATTRIBUTION, {}).get(arm, {}).get("against")
        reference = alone or beside[0]
        return None if reference == arm else reference


@dataclass(frozen=True)
class Evaluation:
    """All benchmarks of a run's last evaluation."""

    benchmarks: dict[str, Benchmark]


def read_evaluation(folder: Path) -> Evaluation:
    """Read what `pilotfish eval` wrote.

    Args:
        folder: of a run.

    Raises:
        RunError: the run was not evaluated, or a file is damaged.
    """
    results = _results(folder)
    weights = results.get(WEIGHTS, {})
    found = {name: Benchmark(name, rows, weights=weights) for name, rows in results.items() if isinstance(rows, list)}
    for part in (ROUNDS, BUDGET, AT_K, SEEDS, ASKED, ATTRIBUTION):
        for name, figures in results.get(part, {}).items():
            if name in found:
                found[name].parts[part] = figures
    for score in _scores(folder):
        if score["benchmark"] not in found:
            raise RunError(f"{folder}: {RESULTS} knows no {score['benchmark']!r}; write it again with `pilotfish eval`")
        _add(found[score["benchmark"]], score)
    return Evaluation(found)


def _results(folder: Path) -> dict[str, Any]:
    file = folder / RESULTS
    if not file.exists() or not (folder / FILE).exists():
        missing = RESULTS if not file.exists() else FILE
        raise RunError(f"{folder / missing} is not there; evaluate the run first with {_again(folder)}")
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise RunError(f"{file}: not JSON ({error}); write it again with {_again(folder)}") from error


def _again(folder: Path) -> str:
    return f"`pilotfish eval {quote(str(folder))}`"


def _scores(folder: Path) -> Iterator[dict[str, Any]]:
    with (folder / FILE).open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RunError(
                    f"{folder / FILE}, line {number}: not JSON ({error}); write it again with {_again(folder)}"
                ) from error


def _add(benchmark: Benchmark, score: dict[str, Any]) -> None:
    arm, task = score["arm"], str(score["task"])
    benchmark.roles[arm], benchmark.models[arm] = score["role"], score["model"]
    benchmark.tasks.setdefault(task, About(_word(score["level"]), _word(score["subject"]), score.get("gold")))
    benchmark.episodes.setdefault(arm, {})[task, score["sample"]] = Scored(
        score["episode"],
        score["reward"],
        score["why"],
        score["extracted"],
        score["calls"],
        score["seconds"],
        score["cost"],
        {member: Usage(**used) for member, used in score["usage"].items()},
    )


def _word(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)
