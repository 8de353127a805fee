"""What `eval` and `collect` show as spent while they run is what the server has counted, at the members' prices."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from board import board, said, seat
from collecting import answer
from collecting import recipe as leader_recipe
from mock_server import MockServer
from pilotfish.cli import main
from pilotfish.cli.figures import count, money
from pilotfish.cli.progress import Evaluation, Training, spend
from pilotfish.engine.meter import Meter


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=said) as opened:
        yield opened


def paid(server: MockServer) -> str:
    """By the server's own count, at the prices of `board.seat`."""
    return money((server.prompt_tokens + 2 * server.completion_tokens) / 1e6)


def test_an_evaluation_shows_what_is_spent_and_of_how_much(
    server: MockServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("own.yaml").write_text(json.dumps({**board(tmp_path, server.base_url), "max_cost": 5}))
    assert main(["eval", "own.yaml"]) == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if " tasks  spent " in line]
    assert len(lines) == 6, "three methods on two benchmarks"
    assert lines[-1].endswith(f"6 tasks  spent {paid(server)} of 5.00")
    spent = [float(re.findall(r"spent (\S+)", line)[0]) for line in lines]
    assert 0 < spent[0] < spent[-1]
    assert spent == sorted(spent)

    assert main(["eval", "own.yaml"]) == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if " tasks  spent " in line]
    assert f"spent {paid(server)} of 5.00" in lines[0], "what the run spent before counts; nothing is asked again"


def test_tokens_are_shown_where_nobody_has_a_price(
    server: MockServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = board(tmp_path, server.base_url)
    data["team"]["actor"] = seat(server.base_url, price={})
    Path("own.yaml").write_text(json.dumps(data))
    assert main(["eval", "own.yaml"]) == 0
    (*_, last) = (line for line in capfd.readouterr().err.splitlines() if ": 6 tasks" in line)
    used = f"  {count(server.prompt_tokens + server.completion_tokens)} tokens"
    assert last.endswith(used)
    assert main(["eval", "own.yaml"]) == 0
    first, *_ = (line for line in capfd.readouterr().err.splitlines() if ": 6 tasks" in line)
    assert first.endswith(used), "what the run used before counts; nothing is asked again"


def test_a_collection_shows_what_is_spent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with MockServer(reply=answer) as server:
        data = leader_recipe(tmp_path, server.base_url).model_dump(mode="json")
        for name in ("ann", "bob"):
            data["team"][name]["price"] = {"input": 1, "output": 2}
        Path("own.yaml").write_text(json.dumps(data))
        assert main(["collect", "own.yaml"]) == 0
        (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("collect 8/8"))
        assert line.endswith(f"  spent {paid(server)}")


@pytest.mark.parametrize("kind", [Training, Evaluation])
def test_the_live_line_is_drawn_with_what_is_spent_by_then(kind: type[Training] | type[Evaluation]) -> None:
    written, meter = io.StringIO(), Meter(most=5.0)
    console = Console(file=written, force_terminal=True, width=80, markup=False)
    with Training(console, "asking", meter) if kind is Training else Evaluation(console, ["sums"], meter) as shown:
        meter.spent = 0.25  # between two pieces of news
        shown.bars.refresh()
    assert "spent 0.25 of 5.00" in written.getvalue()


@pytest.mark.parametrize(
    ("spent", "words"), [(0.0, "0.00"), (0.00213, "0.0021"), (0.1, "0.10"), (1204.5, "1,204.50"), (4e-7, "4e-07")]
)
def test_small_sums_keep_two_figures(spent: float, words: str) -> None:
    meter = Meter(spent=spent)
    meter.priced = True
    assert spend(meter) == f"spent {words}"
