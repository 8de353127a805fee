"""A topology as a recipe names it: which one, in which words, with which options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from pilotfish.model import Model
from pilotfish.topology.base import Topology
from pilotfish.topology.find import find
from pilotfish.topology.vote import ballot, vote


class TopologyConfig(Model):
    """A topology's name and options; `topology: hint` is shorthand for `topology: {name: hint}`."""

    name: str
    """A built-in one (docs/topologies.md lists them), `path/to/file.py:function`, or a package's entry point."""
    prompts: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Texts that replace the built-in ones: `{advise: {system: …, user: …}}`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The topology's own options: `{rounds: 2}`."""

    def load(self) -> Topology:
        """Raises ValueError: no such topology, option or prompt, or a text that names a field it is not given."""
        prompts = {"prompts": self.prompts} if self.prompts else {}
        found = find(self.name).bind(**self.options, **prompts)
        if found.function is vote.function:
            ballot(**found.options)  # raises what is wrong with the topology that is voted on
        return found

    def names(self) -> list[str]:
        """Its own, and those of the topologies that it plays (a vote's `of`)."""
        names, options = [self.name], self.options
        while isinstance(of := options.get("of"), str):
            names.append(of)
            options = options.get("options") or {}
        return names


def _function(name: str) -> str:
    """What a name stands for, however its file is written."""
    file, colon, function = name.rpartition(":")
    return f"{Path(file).resolve()}:{function}" if colon and file.endswith(".py") else name


def check_names(place: str, configs: Iterable[TopologyConfig]) -> None:
    """Make sure that no two functions have one name: results and the record tell topologies apart by it.

    Raises:
        ValueError: two of them have, or there is no such topology, option or prompt.
    """
    known: dict[str, str] = {}
    for config in configs:
        name = config.load().name
        if _function(first := known.setdefault(name, config.name)) != _function(config.name):
            raise ValueError(
                f"{place}: {first} and {config.name} are both called {name}; name one with @topology(name=…)"
            )
