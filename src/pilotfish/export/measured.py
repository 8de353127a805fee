"""The evaluation that a card may carry: of these very weights, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from huggingface_hub import EvalResult

from pilotfish.episode import Journal
from pilotfish.evaluate.table import markdown_table
from pilotfish.export.trained import Trained
from pilotfish.report.comparison import compared
from pilotfish.report.evaluation import Benchmark, read_evaluation
from pilotfish.report.page import anchor
from pilotfish.run import Run, RunError

SHOWN = ("methods", "differences", "usage")
"""The report's tables that stand in a card."""


@dataclass(frozen=True)
class Measured:
    """Benchmarks on which the weights were evaluated, or why there are none."""

    benchmarks: list[Benchmark] = field(default_factory=list)
    arms: dict[str, list[str]] = field(default_factory=dict)
    """By benchmark, the methods that these weights sat in."""
    why_not: str = ""


def measured(run: Run, found: Trained) -> Measured:
    """Read the run's last evaluation, if it is of these weights: a run may have been trained further since."""
    try:
        evaluation = read_evaluation(run.folder)
    except RunError:
        return Measured(why_not="The team has not been evaluated with these weights yet.")
    journal = run.journal(writable=False)
    try:
        arms = {name: _arms(one, found, journal) for name, one in evaluation.benchmarks.items()}
    finally:
        journal.close()
    benchmarks = [one for name, one in evaluation.benchmarks.items() if arms[name]]
    why = "" if benchmarks else "The run's last evaluation was of other weights, so its figures are left out."
    return Measured(benchmarks, arms, why)


def _arms(one: Benchmark, found: Trained, journal: Journal) -> list[str]:
    named = [arm for arm in one.arms if one.roles.get(arm) == "trained" and arm.endswith(f", {found.outcome.name}")]
    return [arm for arm in named if _version(one, arm, journal) == found.version]


def _version(one: Benchmark, arm: str, journal: Journal) -> int | None:
    """Of the weights that sat in the trainee's seat; None where the record does not tell."""
    try:
        played = (journal.episode(scored.id) for scored in one.episodes.get(arm, {}).values())
        return next((said.turn.version for episode in played if episode for said in episode.decisions()), None)
    except LookupError:
        return None


def results(found: Measured) -> Iterator[EvalResult]:
    """Each method's accuracy as Hugging Face's model index has it, in percent."""
    for one in found.benchmarks:
        for row in one.rows:
            if row["name"] in found.arms[one.name] and row["accuracy"] is not None:
                yield EvalResult(
                    task_type="text-generation",
                    task_name="Answers of the team",
                    dataset_type=anchor(one.name),
                    dataset_name=one.name,
                    metric_type="accuracy",
                    metric_name=f"accuracy of the team ({row['name']}), %",
                    metric_value=round(100 * row["accuracy"], 2),
                )


def tables(one: Benchmark) -> Iterator[str]:
    """Accuracy with intervals, differences, and tokens by member, as Markdown."""
    for figure in compared(one):
        if figure.name in SHOWN:
            yield markdown_table(figure.section())
            if figure.note:
                yield figure.note
