"""Where an episode belongs: its kind, step, sample, decision and method, read from its id.

    place("train/3/t7/0|hint||0.5", "t7", "hint", "train/3/t7/0")     # training, step 3, decision 0, row 5

An id is `SCOPE|TOPOLOGY|ARM|FORK|CONTINUATION` without empty ends (see `episode.play.episode_id`); docs/architecture.md
lists the scopes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from pilotfish.spending import arm_name

Kind = Literal["train", "holdout", "eval", "alone", "collect", "other"]
"""`alone`: the answering member without the trainee, played while the team learns; `other`: what a stage makes chains
of, and scopes that are not known here."""

FORK = re.compile(r"\|(?:[\d.]+,)*(?:(\d+)\.(\d+)|(silent \d+))(?:\|([^|]*))?$")
PROMPTS = re.compile(r"(?<=\()prompts=prompts:\w+,?|,prompts=prompts:\w+")
STAGE = re.compile(r"^([^/]+#\d+)/")
STEP = re.compile(r"^step (\d+)$")
TRAIN = re.compile(r"^train/(\d+)$")


class Place(NamedTuple):
    """One episode's place in a run."""

    kind: Kind
    where: str = ""
    """The benchmark of an evaluation; in training and on the holdout the stage's stamp; of what was collected, whose
    words it stands on."""
    step: int | None = None
    sample: int | None = None
    """Of an evaluation; in training and where answers are collected the stored set."""
    method: str = ""
    """The arm of an evaluation; else the topology with its options, without its prompts."""
    decision: int | None = None
    """Which of the trainee's turns is trained."""
    row: int | None = None
    """Its number in the group."""
    answer: str = ""
    """Names a further answer of the team to the same words of the trainee; `silent 2`: what it comes to without its
    words from decision 2 on."""

    @property
    def part(self) -> str:
        """Of the run: kind and where."""
        return f"{self.kind} {self.where}" if self.where else self.kind

    @property
    def model(self) -> str:
        """Of an evaluation: the name in `evaluate.models` of the team that played; empty for the recipe's own."""
        name, found, _ = self.method.partition(": ")
        return name if found and "(" not in name else ""

    @property
    def is_alone(self) -> bool:
        """Whether others are compared with it: the actor alone."""
        return self.kind == "alone" or (self.kind == "eval" and self.method == arm_name(self.model, "solo"))


def place(id: str, task: str, topology: str, scope: str) -> Place:
    """The place of an episode.

    Args:
        id: the episode's.
        task: the task's id, which may hold any sign.
        topology: its name, without options.
        scope: of the episode's own calls.
    """
    kind, where, step, sample = _scope(scope, task)
    label, arm, decision, row, answer = _played(id[len(scope) + 1 :], topology)
    if kind == "holdout" and (at := STEP.match(arm)):
        step = int(at[1])
    return Place(kind, where, step, sample, arm if kind == "eval" and arm else label, decision, row, answer)


@lru_cache(maxsize=4096)
def _played(rest: str, topology: str) -> tuple[str, str, int | None, int | None, str]:
    """The topology's label, arm, decision, row and continuation: an id without its scope. Many episodes have the same.

    A label is a name, or a name and options in brackets.
    """
    decision, row, answer = None, None, ""
    if fork := FORK.search(rest):
        rest, answer = rest[: fork.start()], fork[3] or fork[4] or ""
        if fork[1]:
            decision, row = int(fork[1]), int(fork[2])
    end = ")|" if rest.startswith(f"{topology}(") else "|"
    label, found, arm = rest.partition(end)
    return PROMPTS.sub("", label + found[:-1]).replace("()", ""), arm.rstrip("|"), decision, row, answer


@lru_cache(maxsize=4096)
def _scope(scope: str, task: str) -> tuple[Kind, str, int | None, int | None]:
    """Kind, where, step and sample. The rows of a group and the methods on a sample come one behind the other."""
    if scope == f"alone/{task}":
        return "alone", "", None, None
    body, _, last = scope.rpartition("/")
    head, sample = body.removesuffix(f"/{task}"), _number(last.partition("#")[0])
    stage = ""
    if found := STAGE.match(head.removeprefix("eval/")):
        stage, head = found[1], head.replace(found[0], "", 1)
    if step := TRAIN.match(head):
        return "train", stage, int(step[1]), sample
    if head == "eval/holdout":
        return "holdout", stage, None, None
    if head.startswith("eval/"):
        return "eval", head.removeprefix("eval/"), None, sample
    if head.startswith("collect/"):
        return "collect", head.split("/")[1], None, sample
    return "other", f"{stage} {head}".strip(), None, sample


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
