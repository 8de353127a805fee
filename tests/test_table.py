"""The comparison table reads well and loses nothing, whatever the methods are called."""

from __future__ import annotations

import csv
import io
import json
from math import nan

import pytest
from rich.console import Console

from pilotfish.evaluate.accounts import Account
from pilotfish.evaluate.stats import Difference
from pilotfish.evaluate.table import Row, render_markdown, render_rich, to_csv, to_json

SOLO = Row(
    "actor alone",
    0.44,
    0.375,
    0.51,
    n=200,
    tokens_per_member={"actor": 118.4},
    calls=1,
    seconds=0.84,
    cost=0.5,
    cost_per_task=0.0025,
)
UNTRAINED = Row(
    "untrained hint",
    0.33,
    0.265,
    0.395,
    n=199,
    unjudged=1,
    failed=1,
    difference_to={"actor alone": Difference(-0.11, -0.17, -0.05, 199, 1, 12, 34)},
    adjusted_p={"actor alone": 0.0016},
    leak_rate=0.15,
    tokens_per_member={"collaborator": 61.2, "actor": 12_345.6},
    calls=2,
    seconds=1.7,
)
TRAINED = Row(
    "trained hint",
    0.465,
    0.395,
    0.535,
    n=200,
    difference_to={
        "actor alone": Difference(0.025, -0.03, 0.08, 200, 0, 17, 12),
        "untrained hint": Difference(0.135, 0.065, 0.2, 199, 1, 31, 4),
    },
    adjusted_p={"actor alone": 0.458, "untrained hint": 2e-6},
    leak_rate=0.0,
)
ROWS = [SOLO, UNTRAINED, TRAINED]


def terminal(rows: list[Row], width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(render_rich(rows))
    return capture.get()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def markdown_line(text: str, *start: str) -> list[str]:
    return next(cells(line) for line in text.splitlines() if cells(line)[: len(start)] == list(start))


def test_terminal_shows_accuracy_then_differences_then_price() -> None:
    shown = terminal(ROWS)
    assert shown.index("Accuracy") < shown.index("Differences") < shown.index("Price")
    assert "46.5" in shown
    assert "[39.5, 53.5]" in shown
    assert "[+6.5, +20.0]" in shown


@pytest.mark.parametrize("members", [1, 3, 7])
def test_terminal_stays_within_80_columns_and_cuts_nothing(members: int) -> None:
    tokens = {f"collaborator{seat}": 12_345.0 for seat in range(members)}
    wide = Row("a_method_with_a_long_name" * 2, 0.5, 0.4, 0.6, 1_000, 3, failed=3, tokens_per_member=tokens, calls=12)
    other = "another_method_with_a_long_name"
    gap = {other: Difference(0.1, -0.12, 0.25, 1000, 0, 1_234, 5_678)}
    shown = terminal([wide, Row("a" * 40, 0.5, 0.4, 0.6, 1_000, difference_to=gap, adjusted_p={other: 0.5})])
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert shown.count("12,345") == members
    assert all(member in shown for member in tokens)
    assert "[-12.0, +25.0]" in shown


def test_a_narrow_terminal_breaks_names_and_no_interval() -> None:
    shown = terminal(ROWS, width=50)
    assert max(map(len, shown.splitlines())) <= 50
    assert "[+6.5, +20.0]" in shown


def test_only_differences_that_leave_out_zero_are_coloured() -> None:
    console = Console(width=80, file=io.StringIO(), force_terminal=True, color_system="standard", no_color=False)
    unsure = Row("unsure", 0.4, 0.3, 0.5, 200, difference_to={"solo": Difference(-0.11, -0.2, 0.01, 200)})
    with console.capture() as capture:
        console.print(render_rich([UNTRAINED, TRAINED, unsure]))
    coloured = {code: [line for line in capture.get().splitlines() if f"\x1b[{code}m" in line] for code in (31, 32)}
    assert [("-11.0" in line) for line in coloured[31]] == [True]
    assert [("+13.5" in line) for line in coloured[32]] == [True]


def test_markdown_lines_hold_the_figures() -> None:
    text = render_markdown(ROWS)
    assert markdown_line(text, "untrained hint", "33.0") == [
        "untrained hint",
        "33.0",
        "[26.5, 39.5]",
        "199",
        "1",
        "15.0",
    ]
    assert markdown_line(text, "trained hint", "untrained hint")[2:] == ["+13.5", "[+6.5, +20.0]", "31", "4", "<0.001"]
    assert markdown_line(text, "actor alone", "118") == ["actor alone", "118", "–", "1", "0.84", "0.0025"]
    assert markdown_line(text, "untrained hint", "12,346")[2:] == ["61.2", "2", "1.7", "–"]


def test_money_is_told_of_a_task_and_its_sum_is_kept_in_the_files() -> None:
    used = {"actor": Account(calls=16, prompt=800, completion=160, seconds=4.0, cost=0.0003)}
    money = {"cost": 0.0003, "cost_per_task": 0.0000375}
    row = Row("vote", 0.5, 0.1, 0.9, n=3, unjudged=1, samples=2, calls=2, seconds=0.5, usage=used, **money)
    text = render_markdown([row])
    assert markdown_line(text, "vote", "2") == ["vote", "2", "0.5", "0.0000375"]
    assert markdown_line(text, "vote", "actor")[2:] == ["2", "100", "20", "0.5", "0.0000375"]
    (line,) = csv.DictReader(io.StringIO(to_csv([row])))
    assert (line["cost"], line["usage.actor.cost"]) == ("0.0003", "0.0003")
    assert json.loads(to_json([row]))[0]["cost"] == 0.0003


def test_markdown_tables_are_rectangular() -> None:
    for table in render_markdown(ROWS).split("\n\n")[1::2]:
        assert len({len(cells(line)) for line in table.strip().splitlines()}) == 1


def test_columns_without_a_figure_are_left_out() -> None:
    shown = render_markdown([Row("solo", 0.5, 0.4, 0.6, 100)])
    assert "failed" not in shown
    assert "leak" not in shown
    assert "Differences" not in shown
    assert "Price" not in shown


def test_a_zero_leak_rate_is_a_figure() -> None:
    assert "| leak, % |" in render_markdown([TRAINED])


def test_intervals_are_named_by_their_level() -> None:
    accuracy, differences = render_markdown(ROWS).split("\n\n")[1:4:2]
    assert "| 95 % interval |" in accuracy
    assert "| 95 % interval |" in differences


def test_a_difference_of_nothing_has_no_minus_sign() -> None:
    row = Row("a", 0.5, 0.4, 0.6, 9, difference_to={"b": Difference(-1e-9, -0.1, -0.0001, 9)})
    assert markdown_line(render_markdown([row]), "a", "b")[2:4] == ["+0.0", "[-10.0, +0.0]"]


def test_names_are_text_and_never_markup() -> None:
    row = Row("a|b <script> [red]x\\", 0.5, 0.4, 0.6, 10, tokens_per_member={"[bold]m": 3})
    assert "a|b <script> [red]x\\" in terminal([row])
    assert "[bold]m" in terminal([row])
    assert "a\\|b &lt;script> [red]x\\\\" in render_markdown([row])


def test_csv_holds_unrounded_figures_under_flat_names() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(ROWS))))
    assert [line["name"] for line in lines] == ["actor alone", "untrained hint", "trained hint"]
    assert lines[0]["tokens.actor"] == "118.4"
    assert lines[0]["difference.actor alone.low"] == ""
    assert lines[2]["difference.untrained hint.better"] == "31"
    assert lines[2]["adjusted_p.untrained hint"] == "2e-06"


def test_json_gives_the_rows_back() -> None:
    found = json.loads(to_json(ROWS))
    assert found[0]["tokens_per_member"] == {"actor": 118.4}
    assert found[1]["difference_to"]["actor alone"]["worse"] == 34
    assert found[1]["cost"] is None


def test_a_method_that_nobody_could_judge_is_shown_and_is_valid_json() -> None:
    row = Row("down", nan, nan, nan, 0, 50, failed=50, difference_to={"solo": Difference(nan, nan, nan, 0, 50)})
    assert markdown_line(render_markdown([row]), "down", "–") == ["down", "–", "–", "0", "50"]
    assert "down" in terminal([row])
    assert json.loads(to_json([row]))[0]["difference_to"]["solo"]["low"] is None
