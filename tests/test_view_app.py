"""The viewer's server: what it gives out, to whom, and what it leaves alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from pilotfish.cli import main
from pilotfish.run import Run
from pilotfish.view.app import AT_ONCE, HEADERS, listen
from viewing import GROUP, asked, begun, recorded, served


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("view"), said=lambda member, asked: f"{member} \x00<b>says</b>")


@pytest.fixture(scope="module")
def address(run: Run) -> Iterator[str]:
    with served(run) as address:
        assert asked(address, "state")["whole"]
        yield address


def test_every_answer_has_the_policy(address: str) -> None:
    for name in ("", "view.js", "report.css", "data/about", "data/state", "data/rows/0", "data/curves"):
        with urlopen(address + name) as answer:
            assert {key: answer.headers[key] for key in HEADERS} == HEADERS


def test_the_page_is_for_this_machine_under_its_own_name(address: str) -> None:
    with pytest.raises(HTTPError, match="400"):
        urlopen(Request(f"{address}data/rows/0", headers={"Host": "attacker.example"}))


@pytest.mark.parametrize("name", ["recipe.yaml", "../recipe.yaml", "data/rows/x", "%2e%2e/rows.jsonl"])
def test_only_the_pages_files_are_given_out(address: str, name: str) -> None:
    with pytest.raises(HTTPError, match="404"):
        urlopen(address + name)


def test_an_episode_comes_with_all_that_was_said(address: str) -> None:
    rows = asked(address, "rows/0")
    place = rows["columns"]["kind"].index(rows["names"]["kind"].index("train"))
    (found,) = asked(address, f"episodes?marks={rows['columns']['mark'][place]}")
    hinted, answered = found["turns"]
    assert (hinted["member"], hinted["trainee"], hinted["final"]) == ("collaborator", True, False)
    assert (answered["member"], answered["trainee"], answered["final"]) == ("actor", False, True)
    assert hinted["said"].startswith("collaborator �<b>says</b>")
    assert answered["said"] == found["answer"]
    assert found["question"] == "What is 0 + 1?"
    assert [member for member, *_ in found["tokens"]] == ["collaborator", "actor"]


def test_unknown_marks_are_left_out_and_so_are_those_beyond_what_may_be_asked(address: str) -> None:
    mark = asked(address, "rows/0")["columns"]["mark"][0]
    assert [one["mark"] for one in asked(address, f"episodes?marks=1,x,{mark},-2,%C2%B2,{'9' * 5000}")] == [mark]
    many = ",".join([str(mark)] * (AT_ONCE + 1))
    assert len(asked(address, f"episodes?marks={many}")) == AT_ONCE


def test_the_team_is_named_without_addresses(address: str) -> None:
    told = asked(address, "about")
    assert told["trainee"] == "collaborator"
    assert "127.0.0.1" not in json.dumps(told)


def test_curves_go_over_the_steps_that_have_them(address: str) -> None:
    drawn = {
        one["title"]: {curve["name"]: curve["marks"] for curve in one["curves"]} for one in asked(address, "curves")
    }
    assert drawn["reward"] == {"reward": [[1, 0.0], [2, 0.25]], "holdout/accuracy": [[0, 0.5], [1, 0.5], [2, 0.5]]}
    assert drawn["leak rate"] == {"trainee/leak_rate": [[1, 0.1], [2, 0.1]]}
    assert drawn["tokens a row"] == {"tokens/actor": [[1, 90], [2, 90]]}


def test_a_run_without_an_episode_has_an_empty_list(tmp_path: Path) -> None:
    with served(begun(tmp_path)) as address:
        assert asked(address, "state") == {"size": 10_000, "chunks": [], "whole": True}
        assert asked(address, "rows/0")["columns"]["mark"] == []


def test_looking_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    run = recorded(tmp_path)

    def files() -> dict[str, tuple[int, int]]:
        found = (Path(folder) / name for folder, _, names in os.walk(run.folder) for name in names)
        return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in found if file.suffix != ".db-shm"}

    before = {name for name in files() if not name.endswith("-wal")}
    with run, served(run) as address:  # another process may be at work in it
        mark = asked(address, "state") and asked(address, "rows/0")["columns"]["mark"][0]
        asked(address, f"episodes?marks={mark}")
    assert {name for name in files() if not name.endswith(("-wal", "lock"))} == before


def test_a_port_that_is_taken_is_said_in_a_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        assert main(["view", str(run.folder), "--port", str(port)]) == 2
    assert f"port {port} cannot be had" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(tmp_path)]) == 2
    assert "no run there" in capsys.readouterr().err


def test_groups_are_found_by_their_number(address: str) -> None:
    columns = asked(address, "rows/0")["columns"]
    sizes = [columns["group"].count(group) for group in set(columns["group"])]
    assert sizes.count(GROUP) == 4
