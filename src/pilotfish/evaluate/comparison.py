"""The comparison of arms on one benchmark: a row for each, with its differences to those that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from pilotfish.episode import Episode
from pilotfish.evaluate.accounts import Account, accounts
from pilotfish.evaluate.arms import Arm, Played, answering, leading, words_of
from pilotfish.evaluate.stats import Difference, holm, mcnemar, mean_interval, paired_difference, standard_error
from pilotfish.evaluate.stats import tasks_needed as needed
from pilotfish.evaluate.table import Row
from pilotfish.spending import arm_name
from pilotfish.task import Task
from pilotfish.team import Price
from pilotfish.verify.registry import leaks

GAP = 0.04
"""The difference that `Row.tasks_needed` is told for."""
TRAINEES = ("untrained", "trained")
"""Roles of arms in which the trainee speaks with weights of its own."""


def rows(played: Sequence[Played], tasks: Sequence[Task]) -> list[Row]:
    """One row an arm; p-values are adjusted over all differences of the table."""
    by_name, arms = {one.arm.name: one for one in played}, [one.arm for one in played]
    made = [_row(one, tasks, [by_name[other] for other in compared(one.arm, arms)]) for one in played]
    return _adjusted(made)


def compared(arm: Arm, arms: Sequence[Arm]) -> list[str]:
    """With whom an arm is compared: among those on the same models the leading one with all others, each with the first
    one, and trained weights also with the same topology on all weights before them: untrained, of other runs, of
    earlier stages; one on other models with itself on the recipe's own."""
    beside = [other for other in arms if other.model == arm.model]
    before = [other for other in takewhile(lambda other: other is not arm, beside) if other.role in TRAINEES]
    same = [other for other in before if arm.role == "trained" and other.topology.label == arm.topology.label]
    others = beside if arm is leading(beside) else [*beside[:1], *same]
    own = [other for other in arms if arm.model and not other.model and arm.name == arm_name(arm.model, other.name)]
    return list(dict.fromkeys(other.name for other in [*others, *own] if other is not arm))


def _row(one: Played, tasks: Sequence[Task], others: Sequence[Played]) -> Row:
    rewards, episodes = one.rewards, one.episodes
    judged = [episode for episode in episodes if episode.verdict.reward is not None] or episodes
    found = mean_interval(rewards)
    prices = {name: member.price for name, member in one.arm.team.members.items()}
    paid = {name: prices[name] for name, member in one.arm.team.members.items() if not member.judges}
    used, mean_of = accounts(episodes, prices, judges=True), accounts(judged, prices, judges=True)
    playing = accounts(judged, prices)
    whole = sum(playing.values(), Account())
    cost = _cost(playing, paid)
    gaps = {other.arm.name: paired_difference(rewards, other.rewards) for other in others}
    p = {other.arm.name: value for other in others if (value := _p(one, other)) is not None}
    return Row(
        one.arm.name,
        found.estimate,
        found.low,
        found.high,
        found.n,
        found.unjudged,
        difference_to=gaps,
        leak_rate=_leak_rate(one.arm, one.first, tasks),
        tokens_per_member={member: account.tokens / len(judged) for member, account in mean_of.items()},
        calls=whole.calls / len(judged),
        seconds=whole.seconds / len(judged),
        cost=_cost(accounts(episodes, prices), paid),
        cost_per_task=None if cost is None else cost / len(judged),
        standard_error=standard_error(rewards),
        samples=len(one.samples),
        failed=sum(episode.verdict.reward is None for episode in episodes),
        p=p,
        tasks_needed={name: count for name in p if (count := _needed(gaps[name])) is not None},
        usage=used,
        judged=mean_of if len(judged) < len(episodes) else {},
    )


def _p(one: Played, other: Played) -> float | None:
    """McNemar's, where both have one right or wrong answer a task."""
    if len(one.samples) > 1 or len(other.samples) > 1:
        return None
    (first,), (second,) = zip(*one.rewards, strict=True), zip(*other.rewards, strict=True)
    if any(0 < reward < 1 for reward in (*first, *second)):
        return None
    return mcnemar(first, second)


def _needed(gap: Difference) -> int | None:
    """Tasks that it takes to see a difference of `GAP`, with as many tasks that tell the two apart as here."""
    return needed(GAP, max(GAP, (gap.better + gap.worse) / gap.n)) if gap.n else None


def _adjusted(made: Sequence[Row]) -> list[Row]:
    pairs = [(row.name, other) for row in made for other in row.p]
    found = dict(zip(pairs, holm([p for row in made for p in row.p.values()]), strict=True))
    return [replace(row, adjusted_p={other: found[row.name, other] for other in row.p}) for row in made]


def _cost(used: Mapping[str, Account], prices: Mapping[str, Price]) -> float | None:
    if not any(price.input or price.output for price in prices.values()):
        return None
    return sum(account.cost or 0.0 for account in used.values())


def _leak_rate(arm: Arm, episodes: Sequence[Episode], tasks: Sequence[Task]) -> float | None:
    decisions = [place for episode in episodes for place in episode.decisions()[:1]]
    answers = {place.turn.member for place in decisions} & set(answering(arm.topology))
    if not decisions or answers or all(place.final for place in decisions):
        return None  # nobody advises: the words are the answer itself
    return sum(leaks(task, words_of(episode)) for task, episode in zip(tasks, episodes, strict=True)) / len(tasks)
