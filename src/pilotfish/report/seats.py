"""What single seats did: a leader and its agents by round, an adviser's leaks, a critic's comments.

Figures of the report, from what the evaluation counted where a team has such a seat; see `evaluate.rounds` and
`evaluate.attribution` for how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilotfish.evaluate.record import ATTRIBUTION, ROUNDS
from pilotfish.evaluate.rounds import LEADER, MAJORITY
from pilotfish.evaluate.table import NOTHING, percent
from pilotfish.report.drawing import Curve, Mark, curves
from pilotfish.report.evaluation import Benchmark
from pilotfish.report.figure import Cell, Figure, Row, measured, number, pivoted, share, tabled, text

TABLES = {
    "rounds": ("by-round", "Right by round, %", "who"),
    "right": ("by-right-agents", "Last round: by how many agents were right, %", "agents right"),
    "whose": ("whose-answer", "Last round: whose answer the leader gave, %", "answer"),
    "form": ("leader-form", "Form of the leader's words, %", "fault"),
}
COLUMNS = {"share": "share", LEADER: "leader right", MAJORITY: "majority right"}


def by_seat(one: Benchmark) -> Iterator[Figure]:
    """All that the evaluation tells of single seats."""
    yield from _rounds(one.parts.get(ROUNDS, {}))
    yield from _attribution(one.parts.get(ATTRIBUTION, {}))


def _rounds(teams: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Figure]:
    for table, (name, title, head) in TABLES.items():
        rows = [{"method": arm, **cell} for arm, cells in teams.items() for cell in cells if cell["table"] == table]
        if rows:
            yield pivoted(
                name,
                title,
                rows,
                {"method": "method", head: "line"},
                _column,
                _with_errors,
                note="± two standard errors; n: answers behind a figure.",
                drawings=_drawn(table, rows),
            )


def _column(row: Row) -> str:
    return f"round {row['column']}" if row["table"] == "rounds" else COLUMNS[row["column"]]


def _with_errors(row: Row) -> str:
    if row["mean"] is None:
        return NOTHING
    reach = "" if row["low"] is None else f" ±{percent(row['mean'] - row['low'])}"
    absent = f", {row['absent']} absent" if row["absent"] else ""
    return f"{percent(row['mean'])}{reach} (n {row['n']}{absent})"


def _drawn(table: str, rows: Sequence[Row]) -> list[str]:
    """A picture for each team: over rounds by who answered, over right agents by whose answer it is."""
    if table not in ("rounds", "right"):
        return []
    across, name = ("column", "line") if table == "rounds" else ("line", "column")
    pictures = []
    for arm in dict.fromkeys(row["method"] for row in rows):
        of = [row for row in rows if row["method"] == arm and row["mean"] is not None]
        drawn = [
            Curve(who, [Mark(str(row[across]), row["mean"], row["low"], row["high"]) for row in of if row[name] == who])
            for who in dict.fromkeys(row[name] for row in of)
        ]
        if drawn and any(len(curve.marks) > 1 for curve in drawn):
            pictures.append(curves(drawn, f"{'round' if table == 'rounds' else 'agents right'}: {arm}"))
    return pictures


def _attribution(arms: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    leaks = [{"method": arm, **_flat(found["leaks"])} for arm, found in arms.items() if found["leaks"]]
    if leaks:
        columns = {"method": text("method"), "leak, %": measured("rate")}
        columns |= {"right with a leak, %": measured("with_leak"), "right without, %": measured("without_leak")}
        yield tabled("leaks", "Words that already hold the gold answer", leaks, columns)
    critics = [{"method": arm, **_critique(found["critique"])} for arm, found in arms.items() if found["critique"]]
    if critics:
        yield tabled("critic-drafts", "Critic: what became of the drafts", critics, _DRAFTS)
        note = "Area under the ROC curve: 50 is no better than saying the same of every draft."
        yield tabled("critic-tells", "Critic: does it tell right drafts from wrong ones?", critics, _TELLS, note=note)


_DRAFTS: dict[str, Cell] = {
    "method": text("method"),
    "drafts right, %": share("drafts"),
    "revised right, %": share("revised"),
    "points": measured("change", "+"),
    "mended": number("mended"),
    "spoiled": number("spoiled"),
    "of": number("n"),
}
_TELLS: dict[str, Cell] = {
    "method": text("method"),
    "area under ROC, %": measured("separation"),
    "“wrong”: precision, %": measured("precision"),
    "“wrong”: recall, %": measured("recall"),
    "told the answer, %": measured("told"),
}


def _critique(found: Mapping[str, Any]) -> dict[str, Any]:
    flips = found["flips"]
    counts = {"mended": len(flips["wrong_to_right"]), "spoiled": len(flips["right_to_wrong"]), "n": flips["n"]}
    said = {
        f"says {said} of {kind} drafts": count
        for said, both in found["comments"].items()
        for kind, count in zip(("right", "wrong"), both, strict=True)
    }
    return {**_flat(found), **counts, **said}


def _flat(found: Mapping[str, Any]) -> dict[str, Any]:
    """Intervals with their ends beside them; what is no interval is left out."""
    flat: dict[str, Any] = {}
    for field, value in found.items():
        if isinstance(value, Mapping) and "estimate" in value:
            flat |= {field: value["estimate"], f"{field}_low": value["low"], f"{field}_high": value["high"]}
    return flat
