"""The hearing: where a member of the team judges an answer, it is asked through the journal, outside of the topology.

    verdict = await heard(task, answer, form, team.members, Live(…, episode=id, …))     # asks what is not recorded
    judge = recorded(pool.judge, members, engines, journal)                             # asks nobody

Equal words about equal tasks are judged once in a run, whoever said them: the rows of a group that give one answer get
one reward. At temperature 0 the verdict is kept across runs. Turns of a judge are no turns of the episode's topology:
they stand in its verdict, and a strict replay needs none of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pilotfish.engine.base import Engine
from pilotfish.episode.calls import Call, Calls, Scopes, name
from pilotfish.episode.journal import Journal
from pilotfish.episode.room import TopologyError
from pilotfish.episode.turn import Turn
from pilotfish.task import Task
from pilotfish.team import Member, Messages
from pilotfish.verify.by_member import hear
from pilotfish.verify.verdict import Verdict

Judge = Callable[[Task, str, str], Awaitable[Verdict]]
"""Task, the team's answer, the topology's answer form -> verdict. Of tasks that a member judges, only what can be told
without asking it."""


def scopes_of(task: Task, scopes: Scopes) -> Scopes:
    """Where a judge's calls live: with all others about the task, whichever group has asked."""
    return Scopes(scopes.group, stored=f"judged/{task.id}", seed=scopes.seed)


async def heard(task: Task, text: str, form: str, members: Mapping[str, Member], calls: Calls) -> Verdict:
    """The verdict of the member that judges a task.

    Args:
        task: has a `judge`.
        text: the team's answer.
        form: where it stands in the text.
        members: of the team.
        calls: finds or makes the judge's turns, in the scopes of `scopes_of`.

    Raises:
        TopologyError: the judge is not in the team.
        Refused: its engine will never answer such a call.
    """
    judge = members.get(task.judge.member) if task.judge else None
    if judge is None:
        who = task.judge.member if task.judge else None
        raise TopologyError(f"{task.id}: judged by {who!r}, who is not in the team; there are: {', '.join(members)}")

    async def ask(messages: Messages) -> Turn:
        # A draw stands in the key in place of branch and count: whoever asks the same is told the same.
        return await calls.answer(Call(judge, messages, (), (), (), 0, optional=False, draw=0), {})

    return await hear(task, text, form, ask)


def recorded(by_rule: Judge, members: Mapping[str, Member], engines: Mapping[str, Engine], journal: Journal) -> Judge:
    """A judge that asks nobody: by rule, equal answers to a task once, or from what a member has said before about the
    same words.

    Args:
        by_rule: judges tasks that no member judges.
        members: of the team.
        engines: by member; only the names of their deployments are read.
        journal: of the run.
    """

    known: dict[tuple[str, str, str], Verdict] = {}

    async def judge(task: Task, text: str, form: str) -> Verdict:
        if task.judge is None:
            said = (task.id, text, form)
            if said not in known:
                known[said] = await by_rule(task, text, form)
            return known[said]
        return await heard(task, text, form, members, _Recorded(scopes_of(task, Scopes("")), engines, journal))

    return judge


@dataclass
class _Recorded:
    """Finds a judge's turns, and makes none."""

    scopes: Scopes
    engines: Mapping[str, Engine]
    journal: Journal

    async def answer(self, call: Call, counts: dict[str, int]) -> Turn:
        member = call.member
        key, scope = name(call, self.scopes, 0, self.engines[member.name].identity, counts)
        unasked = Turn(key, scope, member.name, 0, call.messages, member.sampling, "failed", None, "not asked")
        return self.journal.find(key) or unasked
