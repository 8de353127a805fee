"""A topology: a plain async function that says who asks whom.

    @topology
    async def hint(task, room, *, prompts=PROMPTS):
        advice = await room.ask("collaborator", prompts.advise(task))
        return await room.ask("actor", prompts.solve(task, hint=advice.text), final=True)

It must be a deterministic function of its task, of `room.rng` and of what its members said, and all its concurrency
goes through `room.gather`. Keyword-only parameters are its options: a recipe sets them by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, overload

from pilotfish.task import Task
from pilotfish.topology.prompts import Prompts

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

Play = Callable[..., Awaitable["Turn | str"]]


@dataclass(frozen=True)
class Topology:
    """A topology function with its options bound."""

    name: str
    function: Play
    form: str = "free"
    """Where the verifier finds the answer: `free` (boxed, "answer is", last line) or `answer_tag` (`<answer>`)."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, task: Task, room: Room) -> Awaitable[Turn | str]:
        return self.function(task, room, **self.options)

    @cached_property
    def label(self) -> str:
        """The name with the options that differ from the defaults; two topologies with one label play the same."""
        usual = {name: _short(value) for name, value in self.defaults().items()}
        options = {name: _short(value) for name, value in sorted(self.options.items())}
        shown = [f"{name}={value}" for name, value in options.items() if value != usual.get(name)]
        return f"{self.name}({','.join(shown)})" if shown else self.name

    def bind(self, **options: Any) -> Topology:
        """The same topology with options set.

        A `prompts` option may be a mapping of overrides: `{"advise": {"system": "…"}}`.

        Raises:
            ValueError: an option that the function does not have.
        """
        known = self.defaults()
        for name in options:
            if name not in known:
                have = ", ".join(known) or "none"
                raise ValueError(f"topology {self.name} has no option {name!r}; it has: {have}")
        if isinstance(options.get("prompts"), Mapping) and not isinstance(options["prompts"], Prompts):
            options["prompts"] = {**known, **self.options}["prompts"].override(options["prompts"])
        return Topology(self.name, self.function, self.form, {**self.options, **options})

    def reaching(self, decision: int) -> Topology:
        """The same topology with as many `rounds` as it takes to come to a decision of the trainee, where it has some.

        No call of an earlier round depends on how many there are.
        """
        rounds = {**self.defaults(), **self.options}.get("rounds")
        return self.bind(rounds=decision + 1) if isinstance(rounds, int) and rounds <= decision else self

    def defaults(self) -> dict[str, Any]:
        """The options and their default values."""
        return dict(_defaults(self.function))


@overload
def topology(function: Play) -> Topology: ...
@overload
def topology(*, form: str = "free", name: str | None = None) -> Callable[[Play], Topology]: ...
def topology(
    function: Play | None = None, *, form: str = "free", name: str | None = None
) -> Topology | Callable[[Play], Topology]:
    """Make a topology of an async function `(task, room, *, options…)`.

    Args:
        form: where the verifier looks for the team's answer, see `Topology.form`.
        name: its name in recipes; the function's own by default.
    """

    def make(function: Play) -> Topology:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{getattr(function, '__name__', function)!r}: a topology is an `async def`")
        return Topology(name or function.__name__, function, form)

    return make(function) if function is not None else make


@lru_cache(maxsize=256)  # asked for at every play of a vote
def _defaults(function: Play) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _short(value: Any) -> str:
    return f"prompts:{value.digest}" if isinstance(value, Prompts) else str(value)
