"""Where the gains of several arms come from, as tables: in the terminal and in Markdown, as CSV and as JSON.

    for section in attribution_sections({"hint, trained": found, "critic, trained": other}):
        print(markdown_table(section))

Shares are in percent with their 95 % intervals. CSV and JSON carry the unrounded figures; JSON also the tasks' ids.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import isnan
from typing import Any

from pilotfish.evaluate.attribution import SAYS, Attribution, Critique, Flips, Leaks
from pilotfish.evaluate.stats import Interval
from pilotfish.evaluate.table import NOTHING, Column, Section, percent, without_nan

_TELLS = (
    "Critic: whether it tells right drafts from wrong ones (precision and recall of saying wrong; told: wrong drafts "
    "whose comment holds the gold answer)"
)
_CSV = ("arm", "question", "figure", "estimate", "low", "high", "n")


def attribution_sections(arms: Mapping[str, Attribution]) -> list[Section]:
    """All arms of one benchmark, a table or more a question."""
    return list(_sections(arms))


def attribution_csv(arms: Mapping[str, Attribution]) -> str:
    """One line a figure; a count has no interval."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)
    writer.writerows((arm, *line) for arm, found in arms.items() for line in _lines(found))
    return out.getvalue()


def attribution_record(arms: Mapping[str, Attribution]) -> dict[str, Any]:
    """Plain data for JSON, by arm, with the fields of `Attribution`; nan becomes None."""
    return {arm: without_nan(asdict(found)) for arm, found in arms.items()}


def _sections(arms: Mapping[str, Attribution]) -> Iterator[Section]:
    if compared := {arm: found.flips for arm, found in arms.items() if found.flips}:
        against = ("from", [arms[arm].against or "" for arm in compared])
        yield Section(
            "Flips against the actor alone, in tasks", [_names(compared), against, *_flips(compared)], names=2
        )
    if advised := {arm: found.leaks for arm, found in arms.items() if found.leaks}:
        yield Section("Words that already hold the gold answer", [_names(advised), *_leaks(advised)])
    if critics := {arm: found.critique for arm, found in arms.items() if found.critique}:
        yield Section("Critic: what became of the drafts (accuracy, tasks)", [_names(critics), *_revisions(critics)])
        yield Section(_TELLS, [_names(critics), *_verdicts(critics)])
        yield Section("Critic: what its comments say (right drafts / wrong drafts)", [_names(critics), *_says(critics)])


def _flips(arms: Mapping[str, Flips]) -> list[Column]:
    gains = [len(found.wrong_to_right) - len(found.right_to_wrong) for found in arms.values()]
    return [
        ("wrong to right", [f"{len(found.wrong_to_right):,}" for found in arms.values()]),
        ("right to wrong", [f"{len(found.right_to_wrong):,}" for found in arms.values()]),
        ("gain", [f"{gain:+,}" if gain else "0" for gain in gains]),
        ("of", [f"{found.n:,}" for found in arms.values()]),
    ]


def _leaks(arms: Mapping[str, Leaks]) -> list[Column]:
    return [
        ("leak, %", [_share(found.rate) for found in arms.values()]),
        ("right with a leak, %", [_share(found.with_leak) for found in arms.values()]),
        ("right without, %", [_share(found.without_leak) for found in arms.values()]),
    ]


def _revisions(arms: Mapping[str, Critique]) -> list[Column]:
    return [
        ("drafts, %", [percent(found.drafts.estimate) for found in arms.values()]),
        ("revised, %", [percent(found.revised.estimate) for found in arms.values()]),
        ("points", [_share(found.change, "+") for found in arms.values()]),
        ("mended", [f"{len(found.flips.wrong_to_right):,}" for found in arms.values()]),
        ("spoiled", [f"{len(found.flips.right_to_wrong):,}" for found in arms.values()]),
        ("of", [f"{found.flips.n:,}" for found in arms.values()]),
    ]


def _verdicts(arms: Mapping[str, Critique]) -> list[Column]:
    return [
        ("AUROC, %", [_share(found.separation) for found in arms.values()]),
        ("precision, %", [_share(found.precision) for found in arms.values()]),
        ("recall, %", [_share(found.recall) for found in arms.values()]),
        ("told, %", [_share(found.told) for found in arms.values()]),
    ]


def _says(arms: Mapping[str, Critique]) -> list[Column]:
    return [(said, [" / ".join(f"{n:,}" for n in found.comments[said]) for found in arms.values()]) for said in SAYS]


def _names(arms: Mapping[str, Any]) -> Column:
    return "method", list(arms)


def _share(found: Interval, sign: str = "") -> str:
    if isnan(found.estimate):
        return NOTHING
    return f"{percent(found.estimate, sign)} [{percent(found.low, sign)}, {percent(found.high, sign)}]"


def _lines(found: Attribution) -> Iterator[tuple[Any, ...]]:
    if found.flips:
        yield from _flip_lines(f"flips from {found.against}", found.flips)
    if found.leaks:
        yield from _interval_lines("leaks", found.leaks, ("rate", "with_leak", "without_leak"))
    if found.critique:
        yield from _flip_lines("critic", found.critique.flips)
        figures = ("drafts", "revised", "change", "separation", "precision", "recall", "told")
        yield from _interval_lines("critic", found.critique, figures)
        yield from _comment_lines("critic", found.critique)


def _flip_lines(question: str, found: Flips) -> Iterator[tuple[Any, ...]]:
    yield question, "wrong to right", len(found.wrong_to_right), "", "", found.n
    yield question, "right to wrong", len(found.right_to_wrong), "", "", found.n


def _interval_lines(question: str, found: Leaks | Critique, figures: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    for figure in figures:
        interval: Interval = getattr(found, figure)
        shares = ("" if isnan(share) else share for share in (interval.estimate, interval.low, interval.high))
        yield question, figure.replace("_", " "), *shares, interval.n


def _comment_lines(question: str, found: Critique) -> Iterator[tuple[Any, ...]]:
    for said, (right, wrong) in found.comments.items():
        yield question, f"says {said} of right drafts", right, "", "", sum(n for n, _ in found.comments.values())
        yield question, f"says {said} of wrong drafts", wrong, "", "", sum(n for _, n in found.comments.values())
