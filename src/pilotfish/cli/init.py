"""`pilotfish init ROWS --actor MODEL`: a user's own rows and a model become a recipe, with what it will cost."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.cli.console import err, out, printable
from pilotfish.cli.errors import one_line
from pilotfish.cli.init_lines import look_lines, next_lines, sample_warnings, team_lines, trial_lines
from pilotfish.cli.options import Traceback

if TYPE_CHECKING:
    from pilotfish.preflight.estimate import Estimate
    from pilotfish.recipe import Recipe
    from pilotfish.source import TaskSource
    from pilotfish.start.draft import Draft
    from pilotfish.start.look import Look


def init(
    rows: Annotated[str, typer.Argument(metavar="ROWS", help=".jsonl, .csv, .tsv or .parquet, or hf:OWNER/NAME.")],
    actor: Annotated[str, typer.Option(metavar="MODEL", help="Who answers: a folder, a hub or an API model.")],
    base_url: Annotated[str | None, typer.Option(metavar="URL", help="The actor's API; ends in /v1.")] = None,
    key_env: Annotated[str | None, typer.Option(metavar="NAME", help="The variable that holds its key.")] = None,
    price_in: Annotated[float, typer.Option(min=0, help="Its price per million prompt tokens.")] = 0.0,
    price_out: Annotated[float, typer.Option(min=0, help="Its price per million answer tokens.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="The limit of its answers.")] = 1024,
    trainee: Annotated[str | None, typer.Option(metavar="MODEL", help="Who learns; else one that fits here.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Train all weights, not a LoRA.")] = False,
    topology: Annotated[str, typer.Option(metavar="hint|critic", help="Advice before, or comment after.")] = "hint",
    question: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the questions.")] = None,
    answer: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the answers.")] = None,
    verifier: Annotated[
        str | None, typer.Option(metavar="NAME", help="What judges: maths, choice, exact, judge, FILE.py:FUNCTION.")
    ] = None,
    judge: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Who judges long texts; where the actor is. Else the actor.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of a hub data set.")] = None,
    config: Annotated[str | None, typer.Option(help="Of a hub data set.")] = None,
    samples: Annotated[int, typer.Option(min=0, metavar="N", help="Ask the actor on N tasks; 0 asks nobody.")] = 8,
    place: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The recipe; else NAME.yaml.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; what cannot be decided is an error.")] = False,
    traceback: Traceback = False,
) -> None:
    """Make a recipe of your own rows.

    Looks at the rows, chooses what judges the answers, holds some rows out, asks the actor a few of them, and says what
    training and evaluation will cost. Nothing is written before all of that has worked.
    """
    with one_line(traceback, interrupted=lambda: "stopped; nothing is written"):
        from pilotfish.cli.progress import quieten
        from pilotfish.start import members
        from pilotfish.start.draft import Draft
        from pilotfish.start.proposal import JUDGE

        quieten()
        source = _source(rows, split, config)
        place, name = _place(place, source)
        files = _files(place, name, rows, force)
        seat = members.actor(
            actor, base_url=base_url, key_env=key_env, price=(price_in, price_out), max_tokens=max_tokens
        )
        if samples:
            members.check_key(seat)
        learner, why = members.trainee(trainee, "full" if full else "lora")
        judging, why_judge = members.judge(judge, seat)
        named = {role: column for role, column in (("question", question), ("answer", answer)) if column}
        team = members.known_topology(topology)
        found = _look(source, name, named, "judge" if judge else verifier, ask=not yes and sys.stdin.isatty())
        judged = judging if found.proposal.verifier == JUDGE else None
        draft = Draft(name, rows, seat, learner, team, found.split, found.proposal, judged)
        _say(look_lines(found))
        _say(team_lines(draft, why, why_judge))
        cap = _measure(draft, samples)
        draft.split.write(place.parent, name)
        place.write_text(draft.text(files, place, cap), encoding="utf-8")
        _say(next_lines(draft, place, files, cap))


def _source(rows: str, split: str | None, config: str | None) -> TaskSource:
    from pilotfish.cli.tasks import source_of

    given = {"split": split, "config": config}
    return source_of(rows, {field: value for field, value in given.items() if value})


def _place(place: Path | None, source: TaskSource) -> tuple[Path, str]:
    """The recipe's file and name; both after the rows where no file was named."""
    named = place.stem if place else source.name
    name = re.sub(r"[^\w.-]+", "-", named).strip("-.") or "own"
    return place or Path(f"{name}.yaml"), name


def _files(place: Path, name: str, rows: str, force: bool) -> tuple[Path, Path]:
    """Where the divided rows go.

    Raises:
        RecipeError: something is there already, or no folder; the user's own rows are never written over.
    """
    from pilotfish.recipe import RecipeError
    from pilotfish.start.split import file_names

    files = file_names(place.parent, name)
    if not place.parent.is_dir():
        raise RecipeError(f"--out {place}: there is no folder {place.parent}; make it first")
    for file in (place, *files):
        if file.exists() and Path(rows).exists() and file.samefile(rows):
            raise RecipeError(f"{file}: these are your rows, which stay as they are; name another recipe with --out")
        if file.exists() and not force:
            raise RecipeError(f"{file} is there already; name another recipe with --out, or write over it with --force")
    return files


def _look(source: TaskSource, name: str, named: dict[str, str], verifier: str | None, *, ask: bool) -> Look:
    """Look at the rows; ask on a terminal which column is what, where that cannot be told."""
    from pilotfish.start.columns import Undecided
    from pilotfish.start.look import look, read_rows

    found = read_rows(source)
    while True:
        try:
            return look(found, name, named, verifier)
        except Undecided as error:
            if not ask:
                raise
            columns = ", ".join(map(printable, error.candidates))
            named[error.role] = typer.prompt(f"Which column is the {error.role}? ({columns})", err=True)


def _measure(draft: Draft, samples: int) -> float | None:
    """Ask the actor a few tasks, say what all will cost, and choose a cap."""
    from pilotfish.cli.estimate import calls_table, notes, sample_lines, sampled
    from pilotfish.preflight.estimate import estimate_recipe
    from pilotfish.recipe import parse_recipe

    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        recipe, known = parse_recipe(draft.data(draft.split.write(Path(folder), draft.name))), {}
        if samples:
            taken, meter = sampled(recipe, samples, alone=True)
            _say([*sample_lines(taken, meter), *sample_warnings(taken)])
            known = dict(taken.measured)
            if draft.judge:
                _try_judge(recipe)
        with err().status("rehearsing"):
            found = estimate_recipe(recipe, known)
    out().print(calls_table(found, recipe))
    for note in notes(found):
        out().print(note)
    return _cap(found)


def _try_judge(recipe: Recipe) -> None:
    from pilotfish.cli.progress import Waiting
    from pilotfish.engine.meter import Meter
    from pilotfish.start.trial import trial

    meter = Meter()
    with Waiting(err(), "asking the judge", meter):
        tried = trial(recipe, meter)
    _say(trial_lines(tried))


def _cap(found: Estimate) -> float | None:
    """Twice what all is likely to cost, in two figures; None where nobody has a price."""
    likely = sum(line.cost()[0] for line in found.lines)
    return float(f"{2 * likely:.2g}") if likely else None


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        out().print(printable(line), soft_wrap=True)
