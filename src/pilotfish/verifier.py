"""What judges the answers to a source's tasks, as a recipe names it.

verifier: exact                                       # built in
verifier: examples/own_verifier.py:within_limits      # a function of your own, or a package's entry point
verifier: {name: judge, rubric: "…", scale: 4}        # a member of the team who reads the answer
verifier: {name: reward_model, member: reward}        # a member that is a sequence classifier
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from pilotfish import own
from pilotfish.model import Model

BUILT_IN = ("maths", "choice", "exact", "reasoning_gym")
"""Verifiers that compare an answer with a gold one, by rule."""


class JudgeConfig(Model):
    """A member that reads each answer and gives it a score by a rubric; `verifier: judge` where the tasks bring it."""

    name: Literal["judge"]
    """Tells it apart from other verifiers."""
    member: str = "judge"
    """Who judges: a frozen member that no topology asks."""
    rubric: str | None = None
    """What a good answer is; a task whose row has a field `rubric` is judged by that one instead."""
    scale: int = Field(default=4, ge=1, le=100)
    """The best score, from 0; the reward is score / scale. 1 asks for yes or no."""
    longest: int = Field(default=8000, ge=1)
    """Most characters of an answer; a longer one is a 0, and nobody is asked."""


class RewardModelConfig(Model):
    """A sequence classifier that scores each answer; `verifier: reward_model` for the member of that name."""

    name: Literal["reward_model"]
    """Tells it apart from other verifiers."""
    member: str = "reward_model"
    """Who scores: a member with `engine: reward`, that no topology asks."""
    middle: float = 0.0
    """The score that is a reward of 0.5."""
    spread: float = Field(default=1.0, gt=0)
    """The reward is 1 / (1 + exp((middle - score) / spread))."""
    longest: int = Field(default=8000, ge=1)
    """Most characters of an answer; a longer one is a 0, and nobody is asked."""


MemberVerifier = JudgeConfig | RewardModelConfig
"""Verifiers that ask a member."""
BY_MEMBER: dict[str, type[MemberVerifier]] = {"judge": JudgeConfig, "reward_model": RewardModelConfig}
NAMES = (*BUILT_IN, *BY_MEMBER)
"""All that are built in."""


def read_verifier(value: Any) -> Any:
    """A verifier as YAML has it, with the settings of one that asks a member; what is no name and no mapping as it is.

    Raises:
        ValueError: there is no such verifier. A file of the user's own is run to find out.
    """
    if isinstance(value, Mapping):
        if value.get("name") not in BY_MEMBER:
            raise ValueError(
                f"name {value.get('name')!r} is not one of {', '.join(BY_MEMBER)}; others have no settings"
            )
        return BY_MEMBER[value["name"]].model_validate(value)
    if value in BY_MEMBER:
        return BY_MEMBER[value].model_validate({"name": value})
    if isinstance(value, str):
        check_name(value)
    return value


def check_name(name: str) -> None:
    """Make sure that there is a verifier of a name.

    Raises:
        ValueError: there is none.
    """
    if name not in NAMES:
        function_of(name)


def function_of(name: str) -> Callable[..., Any]:
    """The function behind the name of a user's own verifier; its file is run.

    Raises:
        ValueError: no such file, function or entry point, or one that does not load.
    """
    function = own.find("verifier", name, NAMES)
    if not callable(function):
        raise ValueError(f"verifier {name}: no such function there; correct the part behind the colon")
    return function  # type: ignore[no-any-return]
