"""How long the prompts and answers of an estimate are: measured where there are figures, else a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pilotfish.preflight.filler import Count, quarter_of_characters
from pilotfish.preflight.measured import Measured
from pilotfish.preflight.memory import local_folder
from pilotfish.recipe import Recipe
from pilotfish.team import Messages


@dataclass(frozen=True)
class Length:
    """Completion tokens of one member's calls; `least` to `most` is two standard errors around a measured mean. Of a
    guess `most` is the member's limit."""

    likely: float
    least: float
    most: float
    measured: int = 0
    """Calls that it was measured on; 0 for a guess."""


def lengths(team: Recipe, own: Recipe, measured: Mapping[str, Measured]) -> dict[str, Length]:
    """Of each member; what was measured is of the recipe's own models."""
    return {name: _length(team, name, known(team, own, name, measured)) for name in team.team}


def known(team: Recipe, own: Recipe, member: str, measured: Mapping[str, Measured]) -> Measured | None:
    """What was measured of a member, unless another model sits there in this team."""
    same = team.team[member].deployment == own.team[member].deployment
    return measured.get(member) if same else None


def _length(team: Recipe, name: str, measured: Measured | None) -> Length:
    limit = team.team[name].sampling.max_tokens
    if measured is None:
        return Length(limit / 2, limit / 2, limit)
    found = measured.completion
    return Length(found.mean, found.low, min(found.high, limit), measured.calls)


def counter(recipe: Recipe, name: str, measured: Measured | None) -> Count:
    """Counts a member's prompt tokens: by its own tokenizer and chat template where they are on this machine, else by
    characters, in the proportion that was measured."""
    member = recipe.team[name]
    folder = local_folder(member.model, member.revision) if member.engine != "openai" else None
    if folder is None or not any((folder / file).exists() for file in ("tokenizer.json", "tokenizer_config.json")):
        return _by_characters(measured)
    try:
        from transformers import AutoTokenizer

        from pilotfish.engine.chat import render
    except ImportError:
        return _by_characters(measured)
    tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=member.trust_remote_code)

    def count(messages: Messages) -> float:
        return len(render(tokenizer, messages))

    return count


def _by_characters(measured: Measured | None) -> Count:
    if measured is None:
        return quarter_of_characters
    density = measured.density
    return lambda messages: density * quarter_of_characters(messages)
