"""`pilotfish init ROWS --actor MODEL`: a user's own rows and a model become a recipe, with what it will cost."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.cli.console import err, out, printable
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Traceback

if TYPE_CHECKING:
    from pilotfish.preflight.estimate import Estimate
    from pilotfish.preflight.sample import Sample
    from pilotfish.source import TaskSource
    from pilotfish.start.draft import Draft
    from pilotfish.start.look import Look

LINE = 72
"""Characters of a row's text that are shown."""
EASY = 0.9
"""From this share of right answers on there is little left to learn."""


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
        str | None, typer.Option(metavar="NAME", help="What judges: maths, choice, exact, FILE.py:FUNCTION.")
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

        quieten()
        source = _source(rows, split, config)
        place, name = _place(place, source)
        files = _files(place, name, rows, force)
        seat = members.actor(
            actor, base_url=base_url, key_env=key_env, price=(price_in, price_out), max_tokens=max_tokens
        )
        learner, why = members.trainee(trainee, "full" if full else "lora")
        named = {role: column for role, column in (("question", question), ("answer", answer)) if column}
        found = _look(source, name, named, verifier, ask=not yes and sys.stdin.isatty())
        draft = Draft(name, rows, seat, learner, members.known_topology(topology), found.split, found.proposal)
        _say(_look_lines(found))
        _say(_team_lines(draft, why))
        cap = _measure(draft, samples)
        draft.split.write(place.parent, name)
        place.write_text(draft.text(files, place, cap), encoding="utf-8")
        _say(_next_lines(draft, place, files, cap))


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
            _say([*sample_lines(taken, meter), *_warnings(taken)])
            known = dict(taken.measured)
        with err().status("rehearsing"):
            found = estimate_recipe(recipe, known)
    out().print(calls_table(found, recipe))
    for note in notes(found):
        out().print(note)
    return _cap(found)


def _cap(found: Estimate) -> float | None:
    """Twice what all is likely to cost, in two figures; None where nobody has a price."""
    likely = sum(line.cost()[0] for line in found.lines)
    return float(f"{2 * likely:.2g}") if likely else None


def _warnings(taken: Sample) -> Iterator[str]:
    """Where there is little to learn."""
    right, judged = taken.right["solo"]
    if judged and right >= EASY * judged:
        yield "warning    the actor is right nearly always: little is left to learn; take harder rows or a weaker actor"
    if judged and not right:
        yield (
            "warning    the actor is never right: advice may not help it. Look at what it says (--max-tokens, "
            "--verifier), or take easier rows"
        )


def _look_lines(found: Look) -> Iterator[str]:
    roles, split = found.roles, found.split
    yield f"rows       {found.rows:,}: {', '.join(column.name for column in found.columns)}"
    yield f"question   {roles.question.name} ({roles.question.why})"
    read_as = f": {found.read_as}" if found.read_as else ""
    yield f"answer     {roles.answer.name} ({roles.answer.why}){read_as}"
    if roles.choices:
        yield f"options    {', '.join(roles.choices)}"
    if found.left_out.counts:
        yield f"left out   {found.left_out}"
    yield f"verifier   {found.proposal.verifier}: {found.proposal.why}"
    if found.proposal.caution:
        yield f"           {found.proposal.caution}"
    for example in found.examples:
        verdict = "right" if example.right else "wrong"
        yield f'  {verdict}    "{_short(example.said)}" where the answer is {_short(example.gold)}'
    drawn = f", drawn from {found.usable:,}" if found.usable > len(split.train) + len(split.test) else ""
    yield (
        f"split      {split.learned} to learn on, {split.holdout} held out to choose the weights by, {len(split.test)} "
        f"to measure on{drawn}"
    )


def _team_lines(draft: Draft, why: str) -> Iterator[str]:
    where = f"at {draft.actor['base_url']}" if "base_url" in draft.actor else "in process"
    yield f"actor      {draft.actor['model']}, {where}"
    yield f"trainee    {draft.trainee['model']}, {draft.trainee['train']} ({why})"


def _next_lines(draft: Draft, place: Path, files: tuple[Path, Path], cap: float | None) -> Iterator[str]:
    if cap:
        yield f"cap        max_cost {cap:g}: twice what is likely; the run stops there"
    yield f"wrote      {place}, {', '.join(map(str, files))}"
    yield f"next       pilotfish train {place}"
    yield f"           pilotfish eval runs/{draft.name}"


def _short(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= LINE else f"{line[:LINE]}…"


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        out().print(printable(line), soft_wrap=True)
