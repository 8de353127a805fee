"""Write the report of a run's last evaluation: `report.html`, `report.md`, `report.csv`, `report.json`, and a CSV for
every figure in `figures/`.

    pilotfish report runs/hint
    report(Path("runs/hint"))

Everything is read from what `pilotfish eval` left in the folder; nobody is asked, nothing is judged anew, and the same
evaluation gives the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pilotfish.episode import Journal
from pilotfish.evaluate.table import without_nan
from pilotfish.report.breakdown import broken_down, failures, flips
from pilotfish.report.comparison import compared, overview
from pilotfish.report.evaluation import Benchmark, Evaluation, read_evaluation
from pilotfish.report.examples import examples
from pilotfish.report.figure import Figure, as_csv
from pilotfish.report.frontier import against_cost, over_budget
from pilotfish.report.markdown import markdown
from pilotfish.report.page import Chapter, anchor, example_html, html
from pilotfish.report.seats import by_seat
from pilotfish.report.team import seated
from pilotfish.run import Run

PAGE_BYTES = 3_000_000
"""What examples may take of the page, all benchmarks together."""
FIGURES = "figures"


def report(folder: Path, out: Path | None = None) -> list[Path]:
    """Write the report.

    Args:
        folder: of a run that was evaluated.
        out: where the files go; the run's folder by default.

    Returns:
        The files written, `report.html` first.

    Raises:
        RunError: no run there, or it was not evaluated.
    """
    run = Run(folder)
    found = read_evaluation(folder)
    journal = run.journal(writable=False)
    try:
        lead, chapters = _lead(run, found), [_chapter(one, journal) for one in found.benchmarks.values()]
    finally:
        journal.close()
    title = f"Pilotfish report: {folder.resolve().name}"
    texts = {
        "report.html": _page(title, lead, chapters),
        "report.md": markdown(title, lead, chapters),
        "report.csv": _methods(chapters),
        "report.json": _record(lead, chapters),
        **_figures(lead, chapters),
    }
    return _write(out or folder, texts)


def _lead(run: Run, found: Evaluation) -> list[Figure]:
    several = [overview(list(found.benchmarks.values()))] if len(found.benchmarks) > 1 else []
    return [*several, seated(run.recipe)]


def _chapter(one: Benchmark, journal: Journal) -> Chapter:
    main, *further = compared(one)
    figures = [main, *against_cost(one), *further, *over_budget(one), *broken_down(one), *by_seat(one), *failures(one)]
    found = flips(one)
    return Chapter(one.name, figures, found, list(examples(one, found, journal)))


def _page(title: str, lead: Sequence[Figure], chapters: Sequence[Chapter]) -> str:
    """The page, with as many examples as it may hold: each chapter has its share, and what it leaves is the next's."""
    left, shown = PAGE_BYTES, []
    for at, one in enumerate(chapters):
        found = list(_within(map(example_html, one.examples), left // (len(chapters) - at)))
        left -= sum(map(_size, found))
        shown.append(list(zip(one.examples, found, strict=False)))
    return html(title, lead, chapters, shown)


def _within(parts: Iterator[str], most: int) -> Iterator[str]:
    for part in parts:
        most -= _size(part)
        if most < 0:
            return
        yield part


def _size(text: str) -> int:
    return len(text.encode("utf-8"))


def _methods(chapters: Sequence[Chapter]) -> str:
    """The main tables of all benchmarks below one another."""
    return as_csv([{"benchmark": one.name, **row} for one in chapters for row in one.figures[0].rows])


def _record(lead: Sequence[Figure], chapters: Sequence[Chapter]) -> str:
    """Every figure's rows by its name, and for each flip the tasks; nan becomes null."""
    record = {
        "figures": _rows(lead),
        "benchmarks": {
            one.name: {
                "figures": _rows(one.figures),
                "flips": {flip.arm: {"reference": flip.reference, **flip.places} for flip in one.flips},
            }
            for one in chapters
        },
    }
    return json.dumps(record, indent=1, allow_nan=False)


def _rows(figures: Sequence[Figure]) -> Mapping[str, Any]:
    return {figure.name: [without_nan(dict(row)) for row in figure.rows] for figure in figures}


def _figures(lead: Sequence[Figure], chapters: Sequence[Chapter]) -> dict[str, str]:
    own = {f"{FIGURES}/{figure.name}.csv": figure.csv() for figure in lead}
    return own | {
        f"{FIGURES}/{anchor(one.name)}-{figure.name}.csv": figure.csv() for one in chapters for figure in one.figures
    }


def _write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", errors="replace")
    return [folder / name for name in texts]
