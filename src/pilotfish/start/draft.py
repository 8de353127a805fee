"""The draft of a recipe: settings that run as they are, each with its reason beside it.

draft = Draft(name, origin, actor, trainee, topology, split, proposal)
recipe = parse_recipe(draft.data(files))
text = draft.text(files, place)                 # the same as YAML, with comments
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from pilotfish.start.proposal import JUDGE, Proposal
from pilotfish.start.split import TRAIN, Split

ROWS = (8, 8)
"""Rows of a task and tasks of a step: a group small enough for a paid actor, large enough to hold right and wrong."""
STEPS = (20, 60)
"""At least, at most; within these, one pass over the tasks."""
RUBRIC = (
    "The answer says what the known good answer says: the same facts and the same conclusion, nothing that contradicts "
    "it and nothing of weight left out. Other words and another order are as good."
)
RATES = {"lora": 5e-5, "full": 1e-6}
"""Learning rates."""


@dataclass(frozen=True)
class Draft:
    """What goes into a recipe."""

    name: str
    origin: str
    """Where the rows come from."""
    actor: Mapping[str, Any]
    trainee: Mapping[str, Any]
    topology: str
    split: Split
    proposal: Proposal
    judge: Mapping[str, Any] | None = None
    """Who judges the answers, where no rule does."""

    def data(self, files: tuple[Path, Path], max_cost: float | None = None) -> dict[str, Any]:
        """The recipe as plain data.

        Args:
            files: the rows to learn on and to measure on.
            max_cost: a cap on what the run may spend.
        """
        train, test = map(self._source, files)
        judge = {JUDGE: dict(self.judge)} if self.judge else {}
        learned = self.split.learned
        return {
            "name": self.name,
            "tasks": {"train": train, "limit": learned, "holdout": self.split.holdout},
            "team": {"collaborator": dict(self.trainee), "actor": dict(self.actor), **judge},
            "topology": self.topology,
            "train": self._train(learned),
            "evaluate": {"benchmarks": [test], "against": ["solo"], "controls": ["empty", "shuffled"]},
            **({"max_cost": max_cost} if max_cost else {}),
        }

    def _source(self, file: Path) -> dict[str, Any]:
        instruction = self.proposal.instruction
        told = {"instruction": instruction} if instruction else {}
        verifier = {"name": JUDGE, "rubric": RUBRIC} if self.judge else self.proposal.verifier
        return {"source": str(file), "verifier": verifier, **told}

    def _train(self, tasks: int) -> dict[str, Any]:
        size, per_step = ROWS[0], min(ROWS[1], tasks)
        least, most = STEPS
        steps = max(least, min(most, tasks // per_step))
        return {
            "group_size": size,
            "tasks_per_step": per_step,
            "micro_batch": size,
            "updates_per_step": 1,
            "steps": steps,
            "evaluate_every": 10,
            "learning_rate": RATES[self.trainee["train"]],
        }

    def text(self, files: tuple[Path, Path], place: Path, max_cost: float | None = None) -> str:
        """The recipe as YAML.

        Args:
            files: as for `data`.
            place: the file that it is written into.
            max_cost: as for `data`.
        """
        data, comments = self.data(files, max_cost), self._comments()
        head = f"Written by `pilotfish init` from {self.origin}. Change what you like; docs/recipes.md has every field."
        commands = [f"    pilotfish train {quote(str(place))}", f"    pilotfish eval runs/{self.name}"]
        parts = [_comment(line) for line in (head, *commands)]
        for key, value in data.items():
            parts += map(_comment, comments.get(key, ()))
            parts.append(yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, width=116))
        return "".join(parts)

    def _comments(self) -> dict[str, list[str]]:
        proposal, learned = self.proposal, self.split.learned
        size = "as many as AgentPO trains on" if learned == TRAIN else "all that are left"
        return {
            "tasks": [
                f"Judged by {proposal.verifier}: {proposal.why}.",
                f"{learned} tasks to learn on, {size}; {self.split.holdout} held out to choose the weights by.",
            ],
            "team": [
                "The collaborator learns, the actor stays as it is. Keys stay in the environment.",
                *self._judging(),
            ],
            "topology": ["hint: the collaborator advises before the actor answers; critic: it comments on a draft."],
            "train": [
                "The learning rate is a guess: raise it if nothing moves, lower it if the reward falls.",
            ],
            "evaluate": ["Rows that nothing was learned on: the actor alone, the team before and after, two controls."],
            "max_cost": ["A hard cap on the run, training and evaluation together: twice what it is likely to cost."],
        }

    def _judging(self) -> list[str]:
        return ["The judge reads each answer beside the row's own, by the rubric above."] if self.judge else []


def _comment(text: str) -> str:
    """Rows and names come from outside: in a comment they stay in their line."""
    return "# " + "".join(char if char.isprintable() else " " for char in text) + "\n"
