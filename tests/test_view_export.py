"""The viewer as a folder: its figures as scripts, whole groups, and nothing written over."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pilotfish.cli import main
from pilotfish.run import Run, RunError
from pilotfish.view.export import TEXT, export
from pilotfish.view.pages import POLICY, page_files
from viewing import GROUP, recorded

EPISODES = 32


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("view"), said=lambda member, asked: f"</script> \u2028 {'long ' * TEXT}")


def figures(folder: Path, name: str) -> Any:
    """What a file of figures hands to the page."""
    found = re.fullmatch(r'put\("([\w-]+)", (.*)\);\n', (folder / "data" / f"{name}.js").read_text(encoding="ascii"))
    assert found
    assert found[1] == name
    return json.loads(found[2])


def test_all_of_a_small_run_is_in_the_folder(run: Run, tmp_path: Path) -> None:
    note = export(run, tmp_path / "pages")
    columns = figures(tmp_path / "pages", "rows-0")["columns"]
    episodes = [*figures(tmp_path / "pages", "episodes-0"), *figures(tmp_path / "pages", "episodes-1")]
    assert [one["mark"] for one in episodes] == columns["mark"]
    assert len(episodes) == EPISODES
    assert figures(tmp_path / "pages", "about")["note"] == note
    assert note.startswith("32 episodes; texts end at")


def test_of_a_large_run_whole_groups_are_drawn_and_it_is_said(run: Run, tmp_path: Path) -> None:
    note = export(run, tmp_path / "pages", most=GROUP * 3)
    rows = figures(tmp_path / "pages", "rows-0")
    columns = rows["columns"]
    trained = [
        group
        for group, kind in zip(columns["group"], columns["kind"], strict=True)
        if rows["names"]["kind"][kind] == "train"
    ]
    assert 0 < len(columns["mark"]) <= GROUP * 3
    assert all(trained.count(group) == GROUP for group in trained)
    assert note.startswith(f"{len(columns['mark'])} of 32 episodes, in whole groups")


def test_texts_end_where_the_note_says(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "pages")
    said = figures(tmp_path / "pages", "episodes-0")[0]["turns"][0]["said"]
    assert "more characters in the journal]" in said
    assert len(said) < TEXT + 100


def test_the_page_has_its_policy_and_its_files_beside_it(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "pages")
    page = (tmp_path / "pages" / "index.html").read_text()
    assert f'content="{POLICY}"' in page
    assert 'data-folder="data"' in page
    named = re.findall(r'(?:src|href)="([\w.]+)"', page)
    assert sorted(named) == sorted(set(page_files()) - {"index.html"})
    assert all((tmp_path / "pages" / name).exists() for name in named)


def test_a_folder_that_holds_something_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="name a new folder"):
        export(run, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_the_command_says_what_it_wrote(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(run.folder), "--export", str(tmp_path / "pages"), "--most", "20"]) == 0
    told = capsys.readouterr().out
    assert "of 32 episodes" in told
    assert str(tmp_path / "pages" / "index.html") in told
