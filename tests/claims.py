"""The scripts of the papers' claims, run with a stand-in for `pilotfish` that writes down how it was called; and the
methods of a recipe, played by a scripted team.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from pilotfish import Journal, ScriptedEngine, Task, Verdict
from pilotfish.evaluate.arms import Field, Played
from pilotfish.evaluate.bench import Result, measure
from pilotfish.evaluate.lineup import standard_arms
from pilotfish.recipe import Recipe
from pilotfish.recipe_file import load_recipe
from pilotfish.run import Run
from pilotfish.verify import judge as verify

ROOT = Path(__file__).parent.parent


def laid(folder: Path, fake: str) -> Path:
    """Lay the recipes and a stand-in for `pilotfish` into a folder."""
    (folder / "recipes").symlink_to(ROOT / "recipes")
    command = folder / "fake"
    command.write_text(fake)
    command.chmod(0o755)
    return folder


def called(
    script: str, project: Path, *blocks: str, fails: str = "nothing", code: int = 0, **environment: str
) -> list[str]:
    """The calls of a script, each without `pilotfish`."""
    (project / "calls").unlink(missing_ok=True)
    fake = str(project / "fake")
    own = {"PILOTFISH": fake, "PYTHON": fake, "AT_ONCE": "9", "TABLES_AT_ONCE": "9", "FAILS": fails}
    command = [f"recipes/h200/{script}", *blocks]
    settings = {**os.environ, **own, **environment}
    done = subprocess.run(command, cwd=project, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    calls = project / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


def opened(call: str) -> tuple[str, str, Recipe]:
    """The command, the run's folder and the recipe of a call."""
    command, file, _, run, *rest = call.split(" ", 4)
    given = re.split(r"(?:^| )--set ", rest[0])[1:] if rest else []
    return command, run, load_recipe(ROOT / file, dict(setting.split("=", 1) for setting in given))


def scripted(recipe: Recipe, tasks: Sequence[Task], says: str, folder: Path) -> tuple[list[Played], Result]:
    """Play all methods of a recipe with a team of which everybody says the same; with what they come to."""
    engine = ScriptedEngine(lambda messages, sampling, seed: says)
    seats = SimpleNamespace(engine=lambda name: engine)

    async def judge(task: Task, answer: str, form: str) -> Verdict:
        return verify(task, answer, form)

    async def played() -> tuple[list[Played], Result]:
        field = Field("b", tasks, Journal(folder / "journal"), judge)
        arms = standard_arms(recipe, Run(folder / "run", recipe), seats)  # type: ignore[arg-type]
        made = [Played(arm, await field.sample(arm, 1)) for arm in arms]
        return made, await measure(field, made)

    return asyncio.run(played())
