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
from pilotfish.cli.figures import count, money, span
from pilotfish.cli.options import RunFolder, Setting, Traceback, settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pilotfish.engine.meter import Meter
    from pilotfish.preflight.estimate import Estimate, Line
    from pilotfish.preflight.filler import Tally
    from pilotfish.preflight.lengths import Length
    from pilotfish.preflight.measured import Spread
    from pilotfish.preflight.memory import Held
    from pilotfish.preflight.sample import Sample
    from pilotfish.recipe import Recipe


def estimate(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe, or the folder of a run.")],
    run: RunFolder = None,
    samples: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Really ask on N tasks, and count with what that took."),
    ] = None,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """Count calls, tokens, money and memory.

    No weights are loaded and no server is asked, unless --samples is given. With it, and with --run, the lengths of
    answers and the seconds of calls are measured ones: of real calls, or of those that a run has recorded.
    """
    with one_line(traceback):
        from pilotfish.cli.progress import quieten
        from pilotfish.preflight.estimate import estimate_recipe
        from pilotfish.preflight.measured import measured
        from pilotfish.preflight.memory import memory
        from pilotfish.preflight.room import divided, places
        from pilotfish.recipe_file import load_recipe
        from pilotfish.run import Run

        loaded = load_recipe(recipe, settings(set))
        quieten()
        console = out()
        known = measured(Run(run).journal(writable=False).turns()) if run else {}
        if samples:
            taken, meter = sampled(loaded, samples)
            known |= taken.measured
            for line in sample_lines(taken, meter):
                console.print(line)
        with err().status("rehearsing"):
            found = estimate_recipe(loaded, known)
        console.print(calls_table(found, loaded))
        for note in notes(found):
            console.print(note)
        held = memory(loaded)
        if held:
            console.print(memory_table(held))
            console.print("Activations and the engines' cache come on top; they take what is left.")
            for place in places(loaded, held):
                console.print(place.sentence)
            if among := divided(loaded, held):
                console.print(among)


def sampled(recipe: Recipe, tasks: int, *, alone: bool = False) -> tuple[Sample, Meter]:
    """Really ask on a few tasks, with what that takes in sight."""
    from pilotfish.cli.progress import Waiting
    from pilotfish.engine.meter import Meter
    from pilotfish.preflight.sample import sample

    meter = Meter()
    with Waiting(err(), f"asking on {tasks} tasks", meter):
        return sample(recipe, tasks, alone=alone, meter=meter), meter


def sample_lines(taken: Sample, meter: Meter) -> list[str]:
    """What a sample came to: right answers, tokens and seconds a call."""
    from pilotfish.cli.progress import spend

    right = ", ".join(f"{name} {reward:g} of {judged} right" for name, (reward, judged) in taken.right.items())
    lines = [f"sample     {taken.tasks} tasks: {right}" + (f"; {said}" if (said := spend(meter)) else "")]
    for name, of in taken.measured.items():
        tokens = f"{count(of.prompt.mean)} tokens in, {_about(of.completion)} out"
        cut = f"; {of.cut} cut off at their limit" if of.cut else ""
        lines.append(f"{name:10} {of.calls} calls of {tokens}, {_about(of.seconds, '.2g')} s{cut}")
    return lines


def calls_table(found: Estimate, recipe: Recipe) -> Table:
    """Calls, tokens and money by stage and member, and in all."""
    priced = any(line.seat.price.paid for line in found.lines)
    title = f"{found.steps} training steps" if found.steps else "no training by episodes"
    table = _table(f"Calls and tokens ({title})", "stage", names=1)
    table.add_column("member", no_wrap=True)
    bound = "range" if _is_measured(found) else "at most"
    for head in ("calls", "tokens in", "tokens out", *(("cost", bound) if priced else (bound,))):
        table.add_column(head, justify="right", no_wrap=True)
    stage = ""
    for line in found.lines:
        shown = Text(line.stage if line.stage != stage else "")
        table.add_row(shown, line.member, *_figures(line.likely), *_bounds([line], priced, bound))
        stage = line.stage
    table.add_section()
    for name in recipe.team:
        lines = [line for line in found.lines if line.member == name]
        if lines:
            tally = _sum(line.likely for line in lines)
            table.add_row("in all", name, *_figures(tally), *_bounds(lines, priced, bound))
    if priced:
        table.add_row("in all", "everyone", "", "", "", *_bounds(found.lines, priced, bound), style="bold")
    return table


def notes(found: Estimate) -> list[str]:
    """Where the figures come from."""
    lengths = "; ".join(f"{name} {_length(length)}" for name, length in found.lengths.items())
    lines = [f"Tokens of an answer: {lengths}. {_bound_meant(found)}"]
    if found.rough:
        lines.append(f"Prompts of {', '.join(found.rough)}: characters / 4, an estimate; no tokenizer is at hand.")
    return [*lines, *found.notes, *time_lines(found)]


def time_lines(found: Estimate) -> list[str]:
    """How long a run waits for answers, where that was measured."""
    from pilotfish.preflight.hours import waiting

    by_stage = waiting(found.lines)
    if not by_stage:
        return []
    sums = (sum(low for low, _ in by_stage.values()), sum(high for _, high in by_stage.values()))
    longest = sorted((item for item in by_stage.items() if item[1][1] >= 1), key=lambda item: -item[1][1])[:3]
    parts = "; ".join(f"{stage} {span(*bounds)}" for stage, bounds in longest)
    silent = [name for name, length in found.lengths.items() if not length.measured]
    more = f", without {', '.join(silent)}, whose calls were not timed" if silent else ""
    return [
        f"Waiting for answers: {span(*sums)} in all{more}{f' ({parts})' if parts else ''}. The updates of the weights "
        "come on top."
    ]


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
        weights = (
            "?" if entry.model.parameters is None else f"{count(entry.model.parameters)} ({entry.model.known_from})"
        )
        table.add_row(Text(name), weights, Text(parts), _gib(entry.bytes))
    table.add_section()
    for device, size in by_device(held).items():
        table.add_row(Text(f"device {device}"), "", "", _gib(size), style="bold")
    return table


def _table(title: str, *heads: str, names: int) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False
    )
    for head in heads[:names]:
        table.add_column(head, overflow="fold")
    return table


def _bound_meant(found: Estimate) -> str:
    """What the bounds of the table are."""
    if not _is_measured(found):
        return "At most: every answer at its limit."
    guessed = not all(length.measured for length in found.lengths.values())
    return "Range: two standard errors around what was measured" + ("; guesses up to the limit." if guessed else ".")


def _is_measured(found: Estimate) -> bool:
    return any(length.measured for length in found.lengths.values())


def _about(spread: Spread, form: str = ",.0f") -> str:
    return f"{spread.mean:{form}} ± {spread.error:{form}}"


def _length(length: Length) -> str:
    if not length.measured:
        return f"{length.likely:,.0f} (half of max_tokens, a guess)"
    return f"{length.likely:,.0f} ± {length.likely - length.least:,.0f} ({length.measured} calls measured)"


def _sum(tallies: Iterable[Tally]) -> Tally:
    from pilotfish.preflight.filler import Tally

    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


def _figures(tally: Tally) -> tuple[str, str, str]:
    return f"{tally.calls:,.0f}", count(tally.prompt), count(tally.completion)


def _bounds(lines: list[Line], priced: bool, bound: str) -> tuple[str, ...]:
    """Money, likely and in which range; without prices, the range of tokens out."""
    if not priced:
        tokens = (_sum(line.least for line in lines), _sum(line.most for line in lines))
        return (_range(bound, *(count(tally.completion) for tally in tokens)),)
    if not any(line.seat.price.paid for line in lines):
        return "–", "–"
    likely, least, most = (money(sum(line.cost()[place] for line in lines)) for place in range(3))
    return likely, _range(bound, least, most)


def _range(bound: str, least: str, most: str) -> str:
    return most if bound == "at most" or least == most else f"{least}–{most}"


def _gib(size: float | None) -> str:
    return "?" if size is None else f"{size / 2**30:.3g}" if size < 100 * 2**30 else f"{size / 2**30:,.0f}"
