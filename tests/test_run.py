"""A run's folder: what it remembers, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.recipe import parse_recipe
from pilotfish.run import Run, RunError

OWN = """\
from pilotfish import topology


@topology
async def mine(task, room):
    return await room.ask("actor", "hi")
"""


def test_another_text_of_the_users_topology_is_refused_in_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    recipe = parse_recipe({"team": {"actor": {"model": "m"}}, "topology": f"{file}:mine"})
    Run(tmp_path / "run", recipe).hold_code()
    Run(tmp_path / "run", recipe).hold_code()
    file.write_text(OWN.replace("hi", "hello"))
    with pytest.raises(
        RunError, match=r"the file has changed since .* began; restore it, or train into another folder"
    ):
        Run(tmp_path / "run", recipe).hold_code()
    Run(tmp_path / "other", recipe).hold_code()


def test_a_line_that_a_kill_left_unfinished_costs_no_other(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", parse_recipe({"team": {"actor": {"model": "m"}}, "topology": "solo"}))
    run.log({"kind": "step", "step": 1})
    with run.metrics.open("a") as file:
        file.write('{"kind": "step", "st')
    run.log({"kind": "step", "step": 2})
    run.log({"kind": "step", "step": 2, "reward": 1.0})
    assert [(row["step"], row.get("reward")) for row in run.logged()] == [(1, None), (2, 1.0)]
