"""The lines in which `pilotfish init` tells what it found, chose and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from pilotfish.cli.console import printable

if TYPE_CHECKING:
    from pilotfish.preflight.sample import Sample
    from pilotfish.start.draft import Draft
    from pilotfish.start.look import Look
    from pilotfish.start.split import Split
    from pilotfish.start.trial import Rewards, Trial

LINE = 72
"""Characters of a row's text that are shown."""
WIDE = 0.1
"""From this half width of its interval on an accuracy is told to say little."""
EASY = 0.9
"""From this share of right answers on there is little left to learn."""


def look_lines(found: Look) -> Iterator[str]:
    """What is in the rows, and what was made of them."""
    roles = found.roles
    yield f"rows       {found.rows:,}: {', '.join(column.name.strip() for column in found.columns if column.filled)}"
    below = f", with {', '.join(roles.material)} below it" if roles.material else ""
    yield f"question   {roles.question.name.strip()} ({roles.question.why}){below}"
    read_as = f": {found.read_as}" if found.read_as else ""
    yield f"answer     {roles.answer.name.strip()} ({roles.answer.why}){read_as}"
    if roles.choices:
        yield f"options    {', '.join(roles.choices)}"
    if found.unused:
        yield f"not used   {', '.join(found.unused)}"
    if found.left_out.counts:
        yield f"left out   {found.left_out}"
    yield f"verifier   {found.proposal.verifier}: {found.proposal.why}"
    if found.proposal.caution:
        yield f"           {found.proposal.caution}"
    yield from _example_lines(found)
    yield _split_line(found)
    yield from _width_line(found.split)


def _example_lines(found: Look) -> Iterator[str]:
    for example in found.examples:
        verdict = "right" if example.right else "wrong"
        yield f'  {verdict}    "{_short(example.said)}" where the answer is {_short(example.gold)}'


def _split_line(found: Look) -> str:
    split = found.split
    drawn = f", drawn from {found.usable:,}" if found.usable > len(split.train) + len(split.test) else ""
    return (
        f"split      {split.learned} to learn on, {split.holdout} held out to choose the weights by, {len(split.test)} "
        f"to measure on{drawn}"
    )


def _width_line(split: Split) -> Iterator[str]:
    """What so few tasks can show."""
    if split.told_to > WIDE:
        yield (
            f"           {len(split.test)} tasks tell an accuracy to about ±{100 * split.told_to:.0f} points, the "
            f"{split.holdout} held out to ±{100 * split.chosen_by:.0f}: take more rows for more"
        )


def team_lines(draft: Draft, why_trainee: str, why_judge: str) -> Iterator[str]:
    """Who sits in the team."""
    where = f"at {draft.actor['base_url']}" if "base_url" in draft.actor else "in process"
    yield f"actor      {draft.actor['model']}, {where}"
    yield f"trainee    {draft.trainee['model']}, {draft.trainee['train']} ({why_trainee})"
    if draft.judge:
        yield f"judge      {draft.judge['model']}, {where} ({why_judge})"


def sample_warnings(taken: Sample) -> Iterator[str]:
    """Where there is little to learn."""
    right, judged = taken.right["solo"]
    if judged and right >= EASY * judged:
        yield "warning    the actor is right nearly always: little is left to learn; take harder rows or a weaker actor"
    if judged and not right:
        yield (
            "warning    the actor is never right: advice may not help it. Look at what it says (--max-tokens, "
            "--verifier), or take easier rows"
        )


def trial_lines(tried: Trial) -> Iterator[str]:
    """What the judge made of answers that are known to be right and wrong."""
    yield f"judge      gives the rows' own answers {_rewards(tried.own)}, answers to other rows {_rewards(tried.other)}"
    if not tried.tells_apart:
        yield "warning    the judge hardly tells right answers from wrong ones here; name another with --judge"


def _rewards(rewards: Rewards) -> str:
    return " ".join("none" if reward is None else f"{reward:.2g}" for reward in rewards)


def next_lines(draft: Draft, place: Path, files: tuple[Path, Path], cap: float | None) -> Iterator[str]:
    """What was written, and what to do with it."""
    if cap:
        yield f"cap        max_cost {cap:g}: twice what is likely; the run stops there"
    yield f"wrote      {place}, {', '.join(map(str, files))}"
    yield f"next       pilotfish train {quote(str(place))}"
    yield f"           pilotfish eval runs/{draft.name}"


def _short(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= LINE else f"{line[:LINE]}…"
