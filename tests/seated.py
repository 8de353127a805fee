"""Scripted teams for the tests of topologies: an episode is played, replayed strictly, and read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pilotfish import Sampling, Scopes, ScriptedEngine, Task, Team, Verdict, play, replay
from pilotfish.engine.scripted import Reply
from pilotfish.episode import Episode, Journal, check_group, fork
from pilotfish.team import Member
from pilotfish.topology import Topology
from pilotfish.verify.registry import quick_judge
from stage import Stage, journal

TASK = Task("sum", "What is 2 + 2?", "4", instruction="Box it.")
Chat = list[tuple[str, str]]


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return quick_judge(task, answer, form) or Verdict(0.0, None, "left to algebra")


def seats(temperature: float = 1.0, **replies: Reply | Mapping[str, str] | Sequence[str] | ScriptedEngine) -> Team:
    """Members by what they say."""
    members = {name: Member(name, "scripted", sampling=Sampling(temperature=temperature)) for name in replies}
    engines = {
        name: reply if isinstance(reply, ScriptedEngine) else ScriptedEngine(reply) for name, reply in replies.items()
    }
    return Team(members, engines)


def silent(after: int = 0) -> ScriptedEngine:
    """Answers so many calls, and is then out of reach."""
    left = iter(range(after))
    return ScriptedEngine(lambda messages, sampling, seed: "here", fail=lambda m, s, seed: next(left, None) is None)


def played(program: Topology, team: Team, task: Task = TASK, record: Journal | None = None) -> Episode:
    """An episode that was also replayed from its record."""
    if record is None:
        with journal() as record:
            return played(program, team, task, record)
    return asyncio.run(_played(program, team, task, record))


async def _played(program: Topology, team: Team, task: Task, record: Journal) -> Episode:
    scopes = Scopes(f"eval/{task.id}/0")
    episode = await play(task, program, team, record, scopes, judge=judge)
    await replay(episode.id, task, program, team.members, record, scopes)
    return episode


def who(episode: Episode) -> list[str]:
    """Who spoke, in structural order."""
    return [placed.turn.member for placed in episode.turns]


def said(episode: Episode) -> list[str]:
    return [placed.turn.text for placed in episode.turns]


def asked(episode: Episode, at: int) -> Chat:
    """What the call at a place was told."""
    return [(message["role"], message["content"]) for message in episode.turns[at].turn.messages]


def last(episode: Episode, at: int) -> str:
    return asked(episode, at)[-1][1]


def group(one: Stage, program: Topology, decision: int, rows: int) -> list[Episode]:
    """The rows that train a decision of the trainee, checked to have one prompt, and replayed."""

    async def forked(record: Journal) -> list[Episode]:
        scopes, salts = Scopes("train/0/sum", seed=1), [fork(decision, row) for row in range(rows)]
        plays = (play(TASK, program, one.team, record, scopes, judge=judge, salts=salt) for salt in salts)
        episodes = list(await asyncio.gather(*plays))
        for episode, salt in zip(episodes, salts, strict=True):
            await replay(episode.id, TASK, program, one.team.members, record, scopes, salts=salt)
        check_group(episodes, decision)
        return episodes

    with journal() as record:
        return asyncio.run(forked(record))


def different(rows: Sequence[Episode]) -> list[int]:
    """How many different turns the rows have at each place."""
    return [len({row.turns[at].turn.key for row in rows}) for at in range(len(rows[0].turns))]


def accuracy(program: Topology, team: Callable[[], Team], tasks: Sequence[Task]) -> float:
    """Share of tasks that a team answers rightly."""

    async def all_of_them(record: Journal) -> list[Episode]:
        seated = team()
        plays = (
            play(task, program, seated, record, Scopes(f"eval/{task.id}/0"), judge=judge, arm="evidence")
            for task in tasks
        )
        return list(await asyncio.gather(*plays))

    with journal() as record:
        rewards = [episode.verdict.reward for episode in asyncio.run(all_of_them(record))]
    return sum(reward for reward in rewards if reward is not None) / len(rewards)
