"""`pilotfish estimate RECIPE`: calls, tokens, money and memory, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pilotfish.cli.console import err, out
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import RunFolder, Setting, Traceback, settings

if TYPE_CHECKING:
    from pilotfish.preflight.estimate import Estimate, Line
    from pilotfish.preflight.filler import Tally
    from pilotfish.preflight.memory import Held
    from pilotfish.recipe import Recipe


def estimate(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe, or the folder of a run.")],
    run: RunFolder = None,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """Count calls, tokens, money and memory.

    No weights are loaded and no server is asked. With --run the lengths of answers are those that a run has recorded.
    """
    with one_line(traceback):
        from pilotfish.cli.progress import quieten
        from pilotfish.preflight.estimate import estimate_recipe, mean_completions
        from pilotfish.preflight.memory import memory
        from pilotfish.recipe import load_recipe
        from pilotfish.run import Run

        loaded = load_recipe(recipe, settings(set))
        quieten()
        with err().status("rehearsing"):
            means = mean_completions(Run(run).journal(writable=False)) if run else {}
            found = estimate_recipe(loaded, means)
        console = out()
        console.print(calls_table(found, loaded))
        for note in notes(found):
            console.print(note)
        held = memory(loaded)
        if held:
            console.print(memory_table(held))
            console.print("Activations and the engines' cache come on top; they take what is left.")


def calls_table(found: Estimate, recipe: Recipe) -> Table:
    """Calls, tokens and money by stage and member, and in all."""
    priced = any(_paid(line) for line in found.lines)
    title = f"{found.steps} training steps" if found.steps else "no training by episodes"
    table = _table(f"Calls and tokens ({title})", "stage", "member", names=2)
    for head in ("calls", "tokens in", "tokens out", *(("cost", "at most") if priced else ("at most",))):
        table.add_column(head, justify="right", no_wrap=True)
    stage = ""
    for line in found.lines:
        shown = Text(line.stage if line.stage != stage else "")
        table.add_row(shown, line.member, *_figures(line.likely), *_bounds([line], priced))
        stage = line.stage
    table.add_section()
    for name in recipe.team:
        lines = [line for line in found.lines if line.member == name]
        if lines:
            total = _sum(lines)
            table.add_row("in all", name, *_figures(total.likely), *_bounds(lines, priced))
    if priced:
        sums = [sum(line.cost()[place] for line in found.lines) for place in (0, 1)]
        table.add_row("in all", "everyone", "", "", "", *(f"{value:,.2f}" for value in sums), style="bold")
    return table


def notes(found: Estimate) -> list[str]:
    """Where the figures come from."""
    lengths = "; ".join(f"{name} {tokens:,.0f} ({why})" for name, (tokens, why) in found.lengths.items())
    lines = [f"Tokens of an answer: {lengths}. At most: every answer at its limit."]
    if found.rough:
        lines.append(f"Prompts of {', '.join(found.rough)}: characters / 4, an estimate; no tokenizer is at hand.")
    return [*lines, *found.notes]


def memory_table(held: list[Held]) -> Table:
    """What each set of weights takes, by purpose."""
    from pilotfish.preflight.memory import by_device

    table = _table("Memory of weights in process", "model", names=1)
    table.add_column("weights", justify="right", no_wrap=True)
    table.add_column("what it holds", overflow="fold")
    table.add_column("GiB", justify="right", no_wrap=True)
    for entry in held:
        parts = "size unknown: its name tells none, and it is not on this machine"
        if entry.parts is not None:
            parts = ", ".join(f"{name} {_gib(size)}" for name, size in entry.parts.items())
        name = f"{Path(entry.members[0]).name}" if len(entry.members) == 1 else ", ".join(entry.members)
        count = (
            "?" if entry.model.parameters is None else f"{_short(entry.model.parameters)} ({entry.model.known_from})"
        )
        table.add_row(Text(name), count, Text(parts), _gib(entry.bytes))
    table.add_section()
    for device, size in by_device(held).items():
        table.add_row(Text(f"device {device}"), "", "", _gib(size), style="bold")
    return table


def _table(title: str, *heads: str, names: int) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in heads[:names]:
        table.add_column(head, overflow="fold")
    return table


def _sum(lines: list[Line]) -> Line:
    from pilotfish.preflight.estimate import Line
    from pilotfish.preflight.filler import Tally

    likely, most = Tally(), Tally()
    for line in lines:
        likely.add(line.likely)
        most.add(line.most)
    return Line("", lines[0].member, likely, most)


def _figures(tally: Tally) -> tuple[str, str, str]:
    return f"{tally.calls:,.0f}", _short(tally.prompt), _short(tally.completion)


def _bounds(lines: list[Line], priced: bool) -> tuple[str, ...]:
    """Money, likely and at most; without prices, tokens out at most."""
    if not priced:
        return (_short(_sum(lines).most.completion),)
    if not any(map(_paid, lines)):
        return "–", "–"
    return tuple(f"{sum(line.cost()[place] for line in lines):,.2f}" for place in (0, 1))


def _paid(line: Line) -> bool:
    return bool(line.price.input or line.price.output)


def _short(value: float) -> str:
    """A count in three figures: 812, 12.4 k, 3.09 B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            scaled = value / (1e3 if unit == "k" else size)
            return f"{scaled:.3g} {unit}" if scaled < 1000 else f"{scaled:,.0f} {unit}"
    return f"{value:,.0f}"


def _gib(size: float | None) -> str:
    return "?" if size is None else f"{size / 2**30:.3g}" if size < 100 * 2**30 else f"{size / 2**30:,.0f}"
