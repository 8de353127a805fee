"""A run: the folder that holds a recipe as resolved, the journal, checkpoints, metrics and results.

runs/hint/
  recipe.yaml     what was run
  journal/        every turn and episode
  checkpoints/    to resume from
  best/           the trainee at its best on the holdout
  metrics.jsonl   one row a step
  rows.jsonl      what the rows of each step were worth
  stages/NAME/    the same for each stage of a recipe that has several; they share the journal
  results.json    the last evaluation; results.md and results.csv beside it
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish import own
from pilotfish.begun import begun, clear
from pilotfish.curriculum import Curriculum, curriculum
from pilotfish.episode import Journal
from pilotfish.member import HANDLING, MemberConfig
from pilotfish.overlap import listed
from pilotfish.recipe import EvaluateConfig, Recipe
from pilotfish.recipe_file import load_recipe
from pilotfish.state import RunError as RunError
from pilotfish.state import read, write
from pilotfish.topology.find import digest

VERSIONS = 1_000_000
"""Versions of the trainee's weights that one stage may count."""


@dataclass(frozen=True)
class Gain:
    """What a training was worth on the holdout."""

    before: float
    """Accuracy of the team before it."""
    after: float
    """Accuracy with the best weights."""
    judged: str
    """How many tasks were judged, as it is said: one number, or two where they differ."""


class Run:
    """A run's folder, locked while it is written to.

    Args:
        folder: made if missing.
        recipe: what is run; None to take the recorded one. Where that is another one by which nothing was answered or
            learned, this one takes its place as soon as the folder is locked.
        parent: the run that this one is a stage of: they share its journal and what was collected.

    Raises:
        RunError: the folder belongs to another recipe, holds no run, or another process is at work in it.
    """

    def __init__(self, folder: Path | str, recipe: Recipe | None = None, *, parent: Run | None = None) -> None:
        self.folder = Path(folder)
        self.root: Run = parent.root if parent else self
        """The run that holds the journal."""
        self._lock: Any = None
        self._wanted = recipe
        self.recipe = self._settle(recipe)

    def _settle(self, recipe: Recipe | None) -> Recipe:
        file = self.folder / "recipe.yaml"
        if not file.exists():
            if recipe is None:
                way_out = "`pilotfish train RECIPE`, or with `pilotfish eval RECIPE` where nobody is trained"
                raise RunError(f"{self.folder}: no run there (no recipe.yaml); start one with {way_out}")
            self.folder.mkdir(parents=True, exist_ok=True)
            self._record(recipe)
            return recipe
        recorded = load_recipe(file)
        if recipe is None:
            return recorded
        stage = self.root is not self
        if found := _differences(_training(recorded, stage), _training(recipe, stage)):
            if not self.begun:
                return self._replace(recipe)
            way_out = ", or remove this folder to train the stage again" if stage else ""
            raise RunError(
                f"{self.folder}: holds a run of another recipe ({', '.join(found)} differ); choose another folder with "
                f"--run{way_out}"
            )
        if not stage and (kept := _taking_over(recorded, recipe)) != recorded:
            self._record(kept)
        return recipe

    @property
    def begun(self) -> bool:
        """Whether anything has been answered or learned in it, or in the run that it is a stage of."""
        return begun(self.root.folder)

    def _replace(self, recipe: Recipe) -> Recipe:
        """Take the place of a recipe by which nothing was answered, once nobody else can be at work in the folder."""
        if self.root._lock:
            clear(self.folder)
            self._record(recipe)
        return recipe

    def _record(self, recipe: Recipe) -> None:
        write(self.folder / "recipe.yaml", recipe.dump())

    @property
    def place(self) -> str:
        """Begins the scopes of a stage's calls: stages share a journal, and count their weights' versions anew."""
        return f"{self.stamp}/" if self.stamp else ""

    @property
    def stamp(self) -> str:
        """Names this training of a stage: one that is removed and trained again has another stamp. Empty for a run."""
        return f"{self.folder.name}#{self._number}" if self.root is not self else ""

    @property
    def _number(self) -> int:
        return int(self.state("stage").get("number", 0))

    def version(self, updates: int) -> int:
        """Version of the trainee's weights after so many optimizer updates of this run or stage.

        Stages count from millions of their own: a call is never answered with the words of another stage.
        """
        return updates + VERSIONS * self._number

    def stage(self, name: str, recipe: Recipe, begun_from: str) -> Run:
        """A stage of this run, begun or gone on with.

        Args:
            name: in the recipe's `stages`.
            recipe: of the stage, with the trainee's weights as they are now.
            begun_from: stamp of the stage that left these weights; empty for the trainee's own.

        Raises:
            RunError: it has begun with other settings, or from other weights.
        """
        stage = Run(self.folder / "stages" / name, recipe, parent=self)
        before = stage.state("stage")
        if not before:
            count = int(self.state("stages").get("count", 0)) + 1
            self.keep("stages", {"count": count})
            stage.keep("stage", {"number": count, "begun_from": begun_from})
        elif before["begun_from"] != begun_from:
            was, now = (one or "the trainee's own weights" for one in (before["begun_from"], begun_from))
            raise RunError(
                f"{stage.folder}: began from {was}, and now follows {now}; remove this folder to train the stage again"
            )
        if load_recipe(stage.folder) != recipe:
            stage._record(recipe)  # the run may have moved, and with it the weights that it starts from
        return stage

    def check_stages(self, recipes: Mapping[str, Recipe]) -> None:
        """Make sure that stages that have begun have the settings they began with, before any of them goes on.

        Args:
            recipes: of this run's stages, by name.

        Raises:
            RunError: names the first that has others.
        """
        for name, recipe in recipes.items():
            if (self.folder / "stages" / name / "recipe.yaml").exists():
                Run(self.folder / "stages" / name, recipe, parent=self)

    def stages(self) -> list[Run]:
        """The stages that have begun, in the recipe's order."""
        folders = (self.folder / "stages" / name for name, config in self.recipe.stages.items() if config)
        return [Run(folder, parent=self) for folder in folders if (folder / "recipe.yaml").exists()]

    def hold_code(self) -> None:
        """Remember the text of the user's own topology and verifier files, and refuse another text in a run that has
        begun.

        Raises:
            RunError: the file has changed since the run began.
        """
        before = self.state("topology") if self.begun else {}
        texts = {name: digest(name) for name in self._topologies()}
        sources = self.recipe.tasks.train if self.recipe.tasks else ()
        texts |= {name: own.digest("verifier", name) for source in sources if (name := source.own_verifier)}
        for name, text in texts.items():
            if before.get(name, text) != text:
                raise RunError(
                    f"{name}: the file has changed since {self.folder} began; restore it, or train into another folder "
                    "with --run"
                )
        self.keep("topology", texts)

    def _topologies(self) -> list[str]:
        return [name for config in (self.recipe.topology, *self.recipe.mix) for name in config.names()]

    def curriculum(self, told: Callable[[str, int, dict[str, float]], None]) -> Curriculum:
        """The tasks of the run: divided before its first answer, and the same from then on.

        Args:
            told: called with a note where training tasks stand in a benchmark too.

        Raises:
            RecipeError: see `pilotfish.curriculum`.
            RunError: the file of the topology or of the verifier has changed, or a task.
        """
        self.hold_code()
        before = self.root.state("curriculum") if self.begun else {}
        tasks = curriculum(self.recipe, before)
        digests = tasks.digests(whole=any(map(digest, self._topologies())))
        self._hold_tasks(before.get("digests", {}), digests)
        self.root.keep("curriculum", {**tasks.ids(), "digests": digests})
        if tasks.repeats:
            self.root.keep("overlap", {"repeats": [str(repeat) for repeat in tasks.repeats]})
            told(f"note: {listed(tasks.repeats)}", 0, {})
        return tasks

    def _hold_tasks(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Refuse a task that is another than when the run began."""
        if edited := next((id for id, text in now.items() if before.get(id, text) != text), None):
            raise RunError(
                f"tasks.train: {edited!r} (its question, answer or what else is played or judged) has changed since "
                f"{self.root.folder} began; restore the source, or train into another folder with --run"
            )

    def __enter__(self) -> Run:
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.__exit__()
            raise RunError(f"{self.folder}: another process is at work in this run; wait for it or stop it") from None
        try:
            self.recipe = self._settle(self._wanted)  # as it is found now that nobody else changes it
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self._lock.close()
        self._lock = None

    def journal(self, *, writable: bool = True) -> Journal:
        return Journal(self.root.folder / "journal", writable=writable)

    @property
    def best(self) -> Path:
        """The trainee at its best on the holdout: an adapter or whole weights."""
        whole, old = self.folder / "best", self.folder / "best.old"
        if old.exists() and not whole.exists():  # killed between two renames
            old.rename(whole)
        return whole

    @property
    def best_step(self) -> int | None:
        """The step whose weights `best` holds."""
        marked = read(self.best / "step.json")
        return int(marked["step"]) if marked else None

    @property
    def best_version(self) -> int:
        """Version of those weights: the policy counted optimizer updates while it learned."""
        return self.version((self.best_step or 0) * getattr(self.recipe.train, "updates_per_step", 1))

    def mark_best(self, folder: Path, step: int) -> None:
        """Write into a folder of weights which step they are of."""
        write(folder / "step.json", json.dumps({"step": step}))

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    def log(self, row: dict[str, Any]) -> None:
        """Append a row of metrics."""
        append(self.metrics, [row])

    def logged(self) -> Iterator[dict[str, Any]]:
        """The rows of metrics; a step that was taken again after a resume counts in its last version."""
        lines = self.metrics.read_text().splitlines() if self.metrics.exists() else []
        rows = [row for row in map(_row, lines) if row is not None]
        yield from {(row.get("kind"), row.get("step")): row for row in rows}.values()

    def gain(self) -> Gain | None:
        """What the training was worth on the holdout; None where it was not measured at both ends."""
        found = {row["step"]: row for row in self.logged() if "holdout/accuracy" in row}
        if self.recipe.tasks is None or 0 not in found or (best := self.best_step) not in found:
            return None
        ends = found[0], found[best]
        before, after = (row["holdout/accuracy"] for row in ends)
        judged = [self.recipe.tasks.holdout - row.get("holdout/no_verdict", 0) for row in ends]
        return Gain(before, after, " and ".join(str(count) for count in dict.fromkeys(judged)))

    @property
    def finished(self) -> bool:
        """Whether its training has ended, or that of all its stages."""
        if not self.recipe.stages:
            return bool(self.state("finished"))
        done = {stage.folder.name for stage in self.stages() if stage.state("finished")}
        return all(name in done for name, config in self.recipe.stages.items() if config and config.method != "collect")

    def state(self, name: str) -> dict[str, Any]:
        """A small named state that survives a resume; empty when there is none."""
        return read(self.folder / f"{name}.json")

    def keep(self, name: str, state: dict[str, Any]) -> None:
        """Write a named state, whole or not at all."""
        write(self.folder / f"{name}.json", json.dumps(state, indent=1))


def append(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a file, as lines of JSON; a line that a killed process left unfinished is closed first."""
    with file.open("a+b") as lines:
        if lines.tell() and (lines.seek(-1, os.SEEK_END), lines.read(1))[1] != b"\n":
            lines.write(b"\n")
        lines.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def _row(line: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(line))
    except ValueError:
        return None


def _training(recipe: Recipe, stage: bool) -> dict[str, Any]:
    """What may not change within a run: the evaluation, who judges in it alone, how members are handled, and `max_cost`
    may, and the filter before it has begun; each stage looks after its own, and where it finds the weights that it
    starts from."""
    free = {"drop_right", "drop_wrong", "concurrency", "answers"}
    whole = dict.fromkeys(("evaluate", "name", "serve", "stages", "max_cost"), True)
    judges = set(recipe.judges) - set(recipe.model_copy(update={"evaluate": EvaluateConfig()}).judges)
    team: dict[str, Any] = dict.fromkeys(recipe.team, HANDLING) | dict.fromkeys(judges, True)
    if stage and recipe.trainee:
        team[recipe.trainee] = HANDLING | {"model", "revision"}
    return recipe.model_dump(mode="json", exclude={**whole, "collect": free, "team": team})


def _taking_over(recorded: Recipe, recipe: Recipe) -> Recipe:
    """The recorded recipe with the stages of the one that a run goes on with, and with its members handled as there; a
    judge that is another model by now stays as it was, since what one needs the other may not have."""
    team = {name: _handled(one, recipe.team.get(name, one)) for name, one in recorded.team.items()}
    return recorded.model_copy(update={"stages": recipe.stages, "team": team})


def _handled(one: MemberConfig, now: MemberConfig) -> MemberConfig:
    same = (one.engine, one.deployment) == (now.engine, now.deployment)
    return one.handled_as(now) if same else one


def _differences(left: Any, right: Any, place: str = "") -> list[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        keys = [*left, *(key for key in right if key not in left)]
        return [
            found
            for key in keys
            for found in _differences(left.get(key), right.get(key), f"{place}.{key}" if place else str(key))
        ]
    return [] if left == right else [place]
