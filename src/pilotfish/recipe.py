"""The recipe: one YAML file that drives train, eval and serve.

    tasks:    {train: math8k, limit: 500, holdout: 64}
    team:
      collaborator: {model: Qwen/Qwen2.5-3B-Instruct, train: full}
      actor:        {engine: openai, model: qwen-plus, base_url: https://…/v1, key_env: ACTOR_KEY}
    topology: hint
    train:    {method: grpo, profile: release}
    evaluate: {benchmarks: [math500], against: [solo]}

The same models are the Python API and the command line: `--set team.actor.model=…` overrides any field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from pilotfish.member import LoraConfig as LoraConfig
from pilotfish.member import MemberConfig as MemberConfig
from pilotfish.model import Model
from pilotfish.serve.config import ServeConfig
from pilotfish.source import TaskSource
from pilotfish.team import Member
from pilotfish.topology import Topology
from pilotfish.topology.config import TopologyConfig as TopologyConfig
from pilotfish.topology.config import check_names
from pilotfish.train.profile import BacktrackConfig, CollectStage, SftConfig, TrainConfig
from pilotfish.verifier import MemberVerifier, RewardModelConfig

Stage = TrainConfig | SftConfig | BacktrackConfig | CollectStage
METHODS: dict[str, type[Stage]] = {
    "grpo": TrainConfig,
    "sft": SftConfig,
    "backtrack": BacktrackConfig,
    "collect": CollectStage,
}


RESERVED = frozenset(
    {
        "asked",
        "at k",
        "attribution",
        "by budget",
        "by round",
        "mean",
        "over seeds",
        "search for constant words",
        "weights of step 0",
        "written",
    }
)
"""What results have beside benchmarks: no benchmark is called so."""

PARTS = ("", "-attribution", "-budget", "-rounds")
"""Ends of the names of a benchmark's files."""


class RecipeError(Exception):
    """A recipe that cannot be run. Names the field, the value and the way out."""


def _sources(value: Any, key: str = "source") -> Any:
    """A list, also of one; a string is shorthand for a mapping with this one key."""
    items = [value] if isinstance(value, str | Mapping | TaskSource) else value
    if not isinstance(items, list | tuple):
        return value
    return [{key: item} if isinstance(item, str) else item for item in items]


class TasksConfig(Model):
    """What is learned on."""

    train: tuple[TaskSource, ...]
    """A benchmark's name, `gym:NAME`, `hf:OWNER/NAME`, a file, or a source with its options; of several, a list."""
    limit: int | None = Field(default=None, ge=1)
    """At most so many training tasks, after the holdout was set apart."""
    holdout: int = Field(default=64, ge=0)
    """Tasks of the training source set apart to choose the best checkpoint by."""
    overlap: Literal["drop", "refuse", "keep"] = "drop"
    """What becomes of training tasks that also stand in an evaluation benchmark."""

    @field_validator("train", mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        return _sources(value)


class CollectConfig(Model):
    """The stored answers of the agents, and which tasks are worth training on."""

    sets: int = Field(default=4, ge=1)
    """Sets of answers a task."""
    drop_right: float | None = Field(default=0.75, gt=0, le=1)
    """Leave out tasks whose stored answers are right in this share or more; null keeps them."""
    drop_wrong: bool = False
    """Leave out tasks none of whose stored answers is right."""
    answers: Path | None = None
    """A file of answers written by `pilotfish collect --export`, to read from in place of asking."""
    concurrency: int = Field(default=512, ge=1)
    """Most sets in flight."""


class EvaluateConfig(Model):
    """What is measured, and against what."""

    benchmarks: tuple[TaskSource, ...] = ()
    """Names or sources of tasks; none of them is trained on."""
    against: tuple[TopologyConfig, ...] = (TopologyConfig(name="solo"),)
    """Topologies to compare with, played by the same members; where the trainee answers in one (`leader` with other
    options, a `vote` over it), untrained and trained."""
    untrained: bool = True
    """Also play the recipe's topology with the trainee as it was before training."""
    alone: bool = False
    """Also play the trainee alone in a leader's form (topology `alone`), untrained and trained."""
    controls: tuple[Literal["empty", "constant", "shuffled", "trainee"], ...] = ()
    """What tells a hint from a habit: an `empty` hint, the best `constant` hint, another task's hint (`shuffled`); and
    the `trainee` alone, without its team."""
    samples: int = Field(default=1, ge=1)
    """Episodes a task, with answers of their own where members are sampled: for Pass@1 over samples, pass@k and
    majority@k."""
    models: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Further teams to play the whole comparison with: by name, changes of members (`{small: {actor: {model: …}}}`)."""
    weights: dict[str, Path] = Field(default_factory=dict)
    """Folders of other runs whose best weights also sit in the trainee's seat, by the name they get in tables:
    zero-shot GRPO beside MLPO. They are of the trainee's model, or adapters to it."""
    seeds: tuple[Path, ...] = ()
    """Folders of runs of this recipe with other seeds, already evaluated: differences are then also told over training
    seeds and tasks together."""
    constants: int = Field(default=16, ge=1)
    """How many different words of the trained team the `constant` control tries, on the holdout."""
    concurrency: int = Field(default=512, ge=1)
    """Most episodes in flight."""

    @field_validator("benchmarks")
    @classmethod
    def _told_apart(cls, value: tuple[TaskSource, ...]) -> tuple[TaskSource, ...]:
        titles = [source.title for source in value]
        if twice := next((title for title in titles if titles.count(title) > 1), None):
            raise ValueError(f"two are called {twice!r}; give one of them a label")
        if taken := next((title for title in titles if title in RESERVED), None):
            raise ValueError(f"one is called {taken!r}, which names another part of the results; give it a label")
        files = [f"{title.replace('/', '-')}{part}" for title in titles for part in PARTS]
        if twice := next((name for name in files if files.count(name) > 1), None):
            raise ValueError(f"two would be written into results-{twice}.csv; give one of them a label")
        return value

    @field_validator("models")
    @classmethod
    def _named(cls, value: dict[str, Any]) -> dict[str, Any]:
        if (bad := next((name for name in value if not re.fullmatch(r"\w[\w. +-]*", name)), None)) is not None:
            raise ValueError(f"one is called {bad!r}; use letters, digits, blanks, `-`, `+`, `.` and `_`")
        return value

    @field_validator("benchmarks", "against", mode="before")
    @classmethod
    def _shorthand(cls, value: Any, info: Any) -> Any:
        return _sources(value, "source" if info.field_name == "benchmarks" else "name")


class Recipe(Model):
    """A whole experiment."""

    name: str = Field(default="run", pattern=r"^[\w.-]*\w[\w.-]*$")
    """Names the run's folder: letters, digits, `-`, `_` and `.`."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Of the data's order, the sampling and the weights' initialisation."""
    tasks: TasksConfig | None = None
    """What is learned on; not needed to evaluate."""
    team: dict[str, MemberConfig]
    """The seats, by the names that the topology uses."""
    topology: TopologyConfig
    """Who asks whom."""
    mix: tuple[TopologyConfig, ...] = ()
    """Further topologies in which the trainee is trained and measured beside `topology`, on the same tasks."""
    train: TrainConfig | SftConfig | BacktrackConfig = TrainConfig()
    """How the trainee learns: `method: grpo` (the default), `sft` or `backtrack`."""
    collect: CollectConfig = CollectConfig()
    """The stored answers that `prefix: stored` trains on."""
    stages: dict[str, Stage | None] = Field(default_factory=dict)
    """Several trainings in a row, by name, in place of `train`; each starts from the weights of the one before. A
    stage that is null is left out."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """What is measured, and against what."""
    serve: ServeConfig = ServeConfig()
    """How `pilotfish serve` offers the team."""
    max_cost: float | None = Field(default=None, gt=0)
    """Most money that the run may spend, by the members' prices: then no further call is made. Raise it to go on. A
    server adds what it spends until it ends; what earlier servers spent counts where they had `serve.record`."""

    @field_validator("topology", mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("mix", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        return _sources(value, "name")

    @field_validator("train", mode="before")
    @classmethod
    def _method(cls, value: Any) -> Any:
        return _stage(value)

    @field_validator("stages", mode="before")
    @classmethod
    def _methods(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if (bad := next((name for name in value if not re.fullmatch(r"\w[\w+-]*", str(name))), None)) is not None:
            raise ValueError(f"a stage is called {bad!r}; use letters, digits, `-`, `+` and `_`")
        if "untrained" in value:
            raise ValueError("a stage is called 'untrained', as are the weights before training in every table")
        return {name: _named(name, stage) for name, stage in value.items()}

    @model_validator(mode="after")
    def _one_trainee(self) -> Recipe:
        if not self.team:
            raise ValueError("team is {}: there is nobody to ask; seat the members of the topology")
        trainees = [name for name, member in self.team.items() if member.train]
        if len(trainees) > 1:
            raise ValueError(f"team: {', '.join(trainees)} all have `train`; exactly one member is the trainee")
        self._check_mix()
        alone = [TopologyConfig(name="alone")] if self.evaluate.alone else []
        check_names("evaluate.against", (self.topology, *self.mix, *self.evaluate.against, *alone))
        self._check_judges()
        if self.stages and self.train != TrainConfig():
            raise ValueError("train and stages are both given; put the training into a stage of its own")
        if self.stages and not trainees:
            raise ValueError(f"stages: no member has `train`; give it to one of {', '.join(self.team)}")
        for config in (self.train, *self.stages.values()):
            if isinstance(config, TrainConfig) and (config.sets or 1) > self.collect.sets:
                raise ValueError(f"sets is {config.sets}, and collect.sets {self.collect.sets}; collect as many")
        prices = [member.price for team in self.teams().values() for member in team.team.values()]
        if self.max_cost and not any(price.input or price.output for price in prices):
            raise ValueError(f"max_cost is {self.max_cost:g}, and nobody has a price; give `price` to who is paid for")
        return self

    def topologies(self) -> list[Topology]:
        """The topology, and those that it is mixed with."""
        return [config.load() for config in (self.topology, *self.mix)]

    def _check_mix(self) -> None:
        check_names("mix", (self.topology, *self.mix))
        labels = [topology.label for topology in self.topologies()]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"mix: {twice} stands in it twice, or is the topology itself; leave one out")
        for config in (self.train, *self.stages.values()) if self.mix else ():
            stored = isinstance(config, TrainConfig) and config.prefix != "fresh"
            if stored or isinstance(config, BacktrackConfig | CollectStage):
                raise ValueError("mix: answers are stored for one topology; leave mix out, or train with prefix: fresh")

    @property
    def judges(self) -> list[str]:
        """Members that judge answers; no topology asks them."""
        named = [source.verifier.member for source in self._sources if isinstance(source.verifier, MemberVerifier)]
        return list(dict.fromkeys(named))

    @property
    def _sources(self) -> tuple[TaskSource, ...]:
        return (*(self.tasks.train if self.tasks else ()), *self.evaluate.benchmarks)

    def _check_judges(self) -> None:
        scored = [source.verifier.member for source in self._sources if isinstance(source.verifier, RewardModelConfig)]
        for name, seat in self.team.items():
            if (seat.engine == "reward") != (name in scored):
                raise ValueError(
                    f"team.{name}: engine {seat.engine}; `engine: reward` and `verifier: reward_model` go together"
                )
        for name in self.judges:
            if name not in self.team:
                raise ValueError(f"verifier: {name!r} is to judge, and in the team are: {', '.join(self.team)}")
            if self.team[name].train:
                raise ValueError(f"team.{name}: it judges the answers, so it cannot be trained; leave `train` out")
            if changed := next((at for at, team in self.evaluate.models.items() if name in team), None):
                raise ValueError(f"evaluate.models.{changed}.{name}: one judge for all teams; leave it out")

    def teams(self) -> dict[str, Recipe]:
        """The recipe with each team that is measured: its own under the empty name, then those of `evaluate.models`.

        Raises:
            ValueError: a change of nobody in the team, or one that its member cannot take.
        """
        named = {name: self._with(name, changes) for name, changes in self.evaluate.models.items()}
        return {"": self, **{name: self.model_copy(update={"team": team}) for name, team in named.items()}}

    def _with(self, name: str, changes: Mapping[str, Mapping[str, Any]]) -> dict[str, MemberConfig]:
        team = dict(self.team)
        for member, fields in changes.items():
            place = f"evaluate.models.{name}.{member}"
            if member not in team:
                raise ValueError(f"{place}: nobody of that name in the team; there are: {', '.join(team)}")
            if "train" in fields:
                raise ValueError(f"{place}: train cannot change with the model; leave it out")
            try:
                team[member] = team[member].changed(fields)
            except ValidationError as error:
                raise ValueError("; ".join(f"{place}.{line}" for line in _complaints(error))) from error
        return team

    def at(self, stage: str, weights: Path | None) -> Recipe:
        """The recipe of one stage: its training, and the trainee's weights as the stage before left them.

        Args:
            stage: a name in `stages`.
            weights: a folder of whole weights; None for the trainee's own.
        """
        team = dict(self.team)
        if weights is not None and self.trainee is not None:
            team[self.trainee] = team[self.trainee].model_copy(update={"model": str(weights), "revision": None})
        return self.model_copy(update={"team": team, "train": self.stages[stage], "stages": {}})

    def sets(self, config: TrainConfig) -> int:
        """Sets of answers a task that a training goes through."""
        return 1 if config.prefix == "fresh" else config.sets or self.collect.sets

    @property
    def trainee(self) -> str | None:
        return next((name for name, member in self.team.items() if member.train), None)

    def members(self, *, training: bool = False) -> dict[str, Member]:
        """The seats as topologies see them; in training the trainee is sampled at the training's temperature."""
        return {name: self._member(name, config, training) for name, config in self.team.items()}

    def _member(self, name: str, config: MemberConfig, training: bool) -> Member:
        sampling = config.sampling
        if training and config.train and not isinstance(self.train, SftConfig):
            sampling = sampling.model_copy(update={"temperature": self.train.temperature, "top_p": 1.0})
        return Member(name, config.model, bool(config.train), sampling, config.price, name in self.judges)

    def dump(self) -> str:
        """The recipe as resolved, as YAML. Holds no key: keys live in environment variables."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _named(name: str, stage: Any) -> Any:
    """A stage's settings; what is wrong in them is told with its name."""
    try:
        return _stage(stage)
    except ValidationError as error:
        raise ValueError("; ".join(f"{name}.{line}" for line in _complaints(error))) from error


def _stage(value: Any) -> Any:
    """A training's or a stage's settings under the class of its method."""
    if not isinstance(value, Mapping):
        return value
    method = value.get("method", "grpo")
    if method not in METHODS:
        raise ValueError(f"method {method!r} is not one of {', '.join(METHODS)}")
    return METHODS[method].model_validate(value)


def parse_recipe(data: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A recipe of plain data.

    Raises:
        RecipeError: a field that is wrong, with its place and value.
    """
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise RecipeError("\n".join(f"{where}: {line}" for line in _complaints(error))) from error


def _complaints(error: ValidationError) -> list[str]:
    lines = []
    for part in error.errors():
        place = ".".join(str(step) for step in part["loc"]) or "recipe"
        message = part["msg"].removeprefix("Value error, ")
        if part["type"] == "extra_forbidden":
            message = "no such field; see docs/recipes.md"
        got = "" if part["type"] in ("missing", "extra_forbidden", "value_error") else f" (got {part['input']!r})"
        if part["type"] == "string_type" and isinstance(part["input"], int | float):
            got += "; put it in quotes"
        lines.append(f"{place}: {message}{got}")
    return lines
