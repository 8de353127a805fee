"""The report of an evaluation tells what was measured, and nothing that was said becomes markup."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mock_server import Call, Fault
from pilotfish.cli import main
from pilotfish.evaluate.attribution import Attribution, Critique, Flips, Leaks
from pilotfish.evaluate.attribution_table import attribution_record
from pilotfish.evaluate.record import ATTRIBUTION
from pilotfish.evaluate.stats import Difference, Interval
from pilotfish.report.breakdown import flips
from pilotfish.report.comparison import compared
from pilotfish.report.evaluation import read_evaluation
from pilotfish.report.frontier import front
from pilotfish.report.main import report
from pilotfish.report.page import anchor
from reporting import SEATS, evaluated

EVIL = "</script><img src=x onerror=alert(1)> | ``` <!-- {braces} \x00\x1b[2J &amp;"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


def number(text: str) -> int:
    return int(re.findall(r"what is (\d+)", text)[0])


def helped(model: str, text: str) -> str:
    """The actor alone is right on multiples of 3, with a hint on even numbers."""
    if model == "collaborator":
        return f"Count on. {EVIL}"
    n = number(text)
    right = n % 2 == 0 if "Hint" in text else n % 3 == 0
    return f"It is \\boxed{{{n + 1 if right else 99}}}."


def lines(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text())))


class Tags(HTMLParser):
    """The tags of a page, with its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


# -- what it tells


def test_the_report_tells_what_the_evaluation_found(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, helped)
    names = {file.relative_to(folder).as_posix() for file in report(folder)}
    assert {"report.html", "report.md", "report.csv", "report.json", "figures/sums-methods.csv"} <= names
    solo, hint = lines(folder / "report.csv")
    assert (solo["benchmark"], solo["method"], hint["method"]) == ("sums", "solo", "hint")
    assert (float(solo["accuracy"]), float(hint["accuracy"])) == (pytest.approx(1 / 3), 0.5)
    assert float(hint["calls"]) == 2
    assert float(hint["tokens.collaborator"]) > 0 == float(hint["failed"])
    results = json.loads((folder / "results.json").read_text())["sums"]
    assert float(hint["cost"]) == pytest.approx(results[1]["cost"])
    (gap,) = lines(folder / "figures/sums-differences.csv")
    assert (gap["method"], gap["minus"], float(gap["estimate"])) == ("hint", "solo", pytest.approx(1 / 6))
    page = Tags((folder / "report.html").read_text())
    assert "33.3" in page.text
    assert "50.0" in page.text


def test_money_is_told_of_a_task_and_its_sum_is_kept_in_the_files(tmp_path: Path) -> None:
    seats = {name: {"model": name, "sampling": {"temperature": 1.0}} for name in SEATS}
    folder = evaluated(tmp_path, helped, seats=seats, evaluate={"samples": 2})
    report(folder)
    (one,) = read_evaluation(folder).benchmarks.values()
    tables = {
        figure.name: [dict(zip(figure.head, line, strict=True)) for line in figure.lines] for figure in compared(one)
    }
    hint = one.rows[1]
    assert float(tables["methods"][1]["cost"]) == pytest.approx(hint["cost"] / (12 * 2), rel=0.01)
    told = [float(line["cost"]) for line in tables["usage"] if line["method"] == "hint"]
    assert told == pytest.approx([used["cost"] / (12 * 2) for used in hint["usage"].values()], rel=0.01)
    (kept,) = [line for line in lines(folder / "report.csv") if line["method"] == "hint"]
    assert float(kept["cost"]) == pytest.approx(hint["cost"])
    means = [float(line["cost"]) for line in lines(folder / "figures/sums-usage.csv") if line["method"] == "hint"]
    assert 24 * sum(means) == pytest.approx(hint["cost"])


def test_flips_are_counted_and_shown_with_their_turns(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, helped)
    report(folder)
    (flip,) = lines(folder / "figures/sums-flips.csv")
    found = (flip["method"], flip["reference"], flip["wrong to right"], flip["right to wrong"], flip["gain"], flip["n"])
    assert found == ("hint", "solo", "4", "2", "2", "12")  # of 0 to 11: 2 4 8 10, and 3 9
    tasks = json.loads((folder / "report.json").read_text())["benchmarks"]["sums"]["flips"]["hint"]
    assert tasks["right to wrong"] == [["sums-3", 0], ["sums-9", 0]]
    page = Tags((folder / "report.html").read_text()).text
    assert page.count("Count on.") >= 6, "the hint of each example, and the actor's prompt with it"
    assert "solo: wrong, read as 99" in page
    assert "4 of 4" in page
    assert "2 of 2" in page


def test_levels_and_subjects_have_their_accuracy(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, helped)
    report(folder)
    by_level = {(row["method"], row["level"]): row for row in lines(folder / "figures/sums-by-level.csv")}
    assert {key: float(row["accuracy"]) for key, row in by_level.items() if key[0] == "solo"} == {
        ("solo", "1"): 1.0,
        ("solo", "2"): 0.0,
        ("solo", "3"): 0.0,
    }
    assert {row["tasks"] for row in by_level.values()} == {"4"}
    by_subject = {
        (row["method"], row["subject"]): float(row["accuracy"]) for row in lines(folder / "figures/sums-by-subject.csv")
    }
    assert (by_subject["hint", "even"], by_subject["hint", "odd"]) == (1.0, 0.0)


def test_every_figure_has_a_file_with_its_rows(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, helped, benchmarks=("sums", "more sums"))
    files = report(folder)
    record = json.loads((folder / "report.json").read_text())
    told = {f"{name}.csv": rows for name, rows in record["figures"].items()}
    for benchmark, part in record["benchmarks"].items():
        told |= {f"{anchor(benchmark)}-{name}.csv": rows for name, rows in part["figures"].items()}
    found = {file.name: lines(file) for file in files if file.parent.name == "figures"}
    assert len(record["benchmarks"]) == 2
    assert found.keys() >= {"overview.csv", "team.csv"}
    assert {name: [shown(row) for row in rows] for name, rows in found.items()} == {
        name: [shown(row) for row in rows] for name, rows in told.items()
    }


def shown(row: dict[str, object]) -> dict[str, str]:
    """A row as CSV has it, without the fields that it lacks."""
    return {name: "" if value is None else str(value) for name, value in row.items() if value not in (None, "")}


def test_failed_tasks_are_listed_with_their_reason_and_count_as_neither(tmp_path: Path) -> None:
    def broken(call: Call) -> Fault:
        return "503" if "sums task 3:" in call.body["messages"][-1]["content"] else None

    folder = evaluated(tmp_path, helped, fault=broken)
    report(folder)
    failed = lines(folder / "figures/sums-failed.csv")
    assert [(row["method"], row["task"]) for row in failed] == [("solo", "sums-3"), ("hint", "sums-3")]
    assert all("503" in row["why"] for row in failed)
    solo = lines(folder / "report.csv")[0]
    assert (solo["failed"], solo["n"], float(solo["accuracy"])) == ("1", "11", pytest.approx(3 / 11))
    assert lines(folder / "figures/sums-flips.csv")[0]["n"] == "11"
    assert "Failed: 2" in Tags((folder / "report.html").read_text()).text
    assert "means over episodes with a verdict" in (folder / "report.md").read_text()
    results = json.loads((folder / "results.json").read_text())
    for row in results["sums"]:
        del row["cost_per_task"], row["judged"]  # as they were once written
    (folder / "results.json").write_text(json.dumps(results))
    report(folder)
    assert "means over all episodes, also those without a verdict" in (folder / "report.md").read_text()


def test_one_method_alone_is_a_report_too(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, helped, evaluate={"against": []})
    report(folder)
    names = {file.name for file in (folder / "figures").iterdir()}
    assert "sums-methods.csv" in names
    assert not names & {"sums-flips.csv", "sums-cost.csv", "sums-differences.csv"}


def test_the_same_evaluation_gives_the_same_report(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, helped)
    first = {file.name: file.read_bytes() for file in report(folder)}
    assert {file.name: file.read_bytes() for file in report(folder)} == first


def test_what_a_leader_and_its_agents_did_is_told_by_round(tmp_path: Path) -> None:
    def said(model: str, text: str) -> str:
        return "<think>so</think><answer>1</answer>" if model == "leader" else "\\boxed{1}"

    team = {name: {"model": name, "sampling": {"temperature": 1.0}} for name in ("leader", "ann", "bob")}
    options = {"name": "leader", "options": {"rounds": 2}}
    against = {"against": [{"name": "solo", "options": {"member": "ann"}}], "samples": 2}
    folder = evaluated(tmp_path, said, count=3, seats=team, topology=options, evaluate=against)
    report(folder)
    rounds = {(row["line"], row["column"]): float(row["mean"]) for row in lines(folder / "figures/sums-by-round.csv")}
    assert rounds["leader", "0"] == rounds["ann", "1"] == pytest.approx(1 / 3)
    right = {row["line"] for row in lines(folder / "figures/sums-by-right-agents.csv")}
    assert right == {"0 of 2", "1 of 2", "2 of 2"}
    assert {row["k"] for row in lines(folder / "figures/sums-at-k.csv")} == {"1", "2"}
    assert "Counted in episodes" in (folder / "report.html").read_text()


def test_leaks_and_comments_are_told_where_they_were_counted(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, helped)
    results = json.loads((folder / "results.json").read_text())
    half, some = Interval(0.5, 0.1, 0.9, 12), Flips(("a",), (), 12)
    critique = Critique(
        half,
        half,
        Difference(0.0, -0.1, 0.1, 12),
        some,
        {"wrong": (1, 5)},
        half,
        precision=half,
        recall=half,
        told=half,
    )
    found = Attribution("solo", some, Leaks(("a",), Interval(0.25, 0.1, 0.4, 12), half, half), critique)
    results[ATTRIBUTION] = {"sums": attribution_record({"hint": found})}
    (folder / "results.json").write_text(json.dumps(results))
    report(folder)
    assert lines(folder / "figures/sums-leaks.csv")[0]["rate"] == "0.25"
    (critic,) = lines(folder / "figures/sums-critic-tells.csv")
    assert (critic["separation_low"], critic["mended"], critic["says wrong of wrong drafts"]) == ("0.1", "1", "5")


def test_the_front_holds_what_nothing_beats() -> None:
    assert front([(1, 0.5), (2, 0.5), (2, 0.7), (3, 0.6), (3, 0.7)]) == {0, 2}
    assert front([(1, 0.5), (1, 0.5)]) == {0, 1}


# -- what was said stays text


def test_nothing_that_was_said_becomes_markup(tmp_path: Path) -> None:
    def wicked(model: str, text: str) -> str:
        return f"{EVIL} \ud800 {helped(model, text)}"

    folder = evaluated(tmp_path, wicked, count=6, choices={"reasoning_content": f"I think {EVIL}"})
    report(folder)
    page = Tags((folder / "report.html").read_text())
    allowed = {"html", "head", "meta", "link", "title", "style", "body", "h1", "h2", "h3", "h4", "nav", "a", "figure"}
    allowed |= {"div", "table", "thead", "tbody", "tr", "th", "td", "button", "p", "svg", "line", "text", "g", "circle"}
    allowed |= {"path", "polyline", "ul", "li", "details", "summary", "pre", "span", "b", "script"}
    assert set(page.tags) <= allowed
    assert page.tags.count("script") == 1
    assert "</script><img src=x onerror=alert(1)>" in page.text
    assert all(link == "data:," or link.startswith("#") for link in page.links)
    assert "\x00" not in page.text
    assert "\x1b" not in page.text


def test_markdown_keeps_what_was_said_within_its_block(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, helped)
    report(folder)
    inside, fence = [], ""
    for line in (folder / "report.md").read_text().splitlines():
        if fence:
            inside.append(line)
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line.removesuffix("text")
        else:
            assert "<img" not in line
            assert "onerror" not in line
    assert not fence
    assert any("<img src=x" in line for line in inside)


# -- what is not there


def test_a_run_that_was_not_evaluated_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = evaluated(tmp_path, helped, count=2)
    (folder / "scores.jsonl").rename(tmp_path / "away.jsonl")
    assert main(["report", str(folder)]) == 2
    assert (
        f"scores.jsonl is not there; evaluate the run first with `pilotfish eval {folder}`" in capsys.readouterr().err
    )
    (folder / "scores.jsonl").write_text((tmp_path / "away.jsonl").read_text() + '{"benchmark": "su')
    assert main(["report", str(folder)]) == 2
    assert "scores.jsonl, line 5: not JSON" in capsys.readouterr().err


def test_the_report_goes_where_it_is_told_and_without_the_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = evaluated(tmp_path, helped)
    (folder / "journal").rename(tmp_path / "elsewhere")
    assert main(["report", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "report.html, report.md, report.csv, report.json, and" in capsys.readouterr().out
    page = Tags((tmp_path / "out" / "report.html").read_text()).text
    assert "Flips against the reference" in page
    assert "Count on." not in page
    assert not (folder / "report.html").exists()


def test_a_separator_that_only_unicode_knows_ends_no_line(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, lambda model, text: f"a\u2028b\x85c {helped(model, text)}", count=3)
    found = read_evaluation(folder).benchmarks["sums"]
    assert len(found.episodes["solo"]) == 3
    assert [flip.n for flip in flips(found)] == [3]
