"""Plays what is asked: episodes within the places there are, each request on a journal of its own.

    episodes = await player.answers(offer, [asked], n=2, audiences=[Audience(), Audience()])

Several answers of one request share all that comes before the final turn; where a topology marks none, each is played
by a team of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pilotfish.episode import Episode, Journal, Judge, Scopes, play
from pilotfish.episode.audience import Audience
from pilotfish.episode.calls import digest
from pilotfish.evaluate.arms import Said, trainee_of
from pilotfish.serve.asked import Asked
from pilotfish.serve.config import ServeConfig
from pilotfish.serve.errors import ApiError
from pilotfish.serve.memory import Memory
from pilotfish.serve.metrics import Metrics
from pilotfish.serve.offers import Offer
from pilotfish.serve.places import Places
from pilotfish.task import Task
from pilotfish.verify.verdict import Verdict

OUTAGE_S = 15.0
"""When a client may try again after a member did not answer: its retries took longer than that."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Player:
    """Plays for all requests of a server.

    Args:
        judge: gives verdicts where a gold answer is known.
        config: how much may be played.
        record: the run's journal, where served episodes are to be kept.
    """

    def __init__(self, judge: Judge, config: ServeConfig, record: Journal | None = None) -> None:
        self.config = config
        self.places = Places(config.episodes, config.waiting)
        self.metrics = Metrics(self.places)
        self._judge = judge
        self._record = record

    def journal(self) -> Journal:
        """For one request."""
        return self._record or Memory()

    async def answers(
        self, offer: Offer, tasks: Sequence[Asked], n: int, audiences: Sequence[Audience]
    ) -> list[Episode]:
        """`n` episodes of each task, in order.

        Args:
            offer: who plays.
            tasks: what is asked.
            n: answers to each.
            audiences: one for each episode.

        Raises:
            ApiError: the server is full, or a member does not answer.
        """
        async with self.places.taken(len(tasks) * n):
            journals = [self.journal() for _ in tasks]
            wanted = [(at, number) for at in range(len(tasks)) for number in range(n)]
            plays = [
                asyncio.ensure_future(self.episode(offer, tasks[at], journals[at], audience, number=number))
                for (at, number), audience in zip(wanted, audiences, strict=True)
            ]
            return await together(plays)

    async def episode(
        self,
        offer: Offer,
        asked: Asked,
        journal: Journal,
        audience: Audience,
        *,
        number: int = 0,
        edits: Mapping[int, str] | None = None,
    ) -> Episode:
        """One episode; whoever calls holds a place for it.

        Args:
            offer: who plays.
            asked: what is asked.
            journal: of the request, or of the session that it goes on with.
            audience: hears of its turns.
            number: of the answer, among those that share all before the final turn.
            edits: by the depth of a decision, words to put into the trainee's mouth. What follows is asked anew.

        Raises:
            ApiError: a required member does not answer.
        """
        audience = replace(audience, sampling=asked.sampling, choice=f"choice {number}" if number else "")
        scopes = Scopes(asked.scope, seed=asked.seed)
        episode = await self._play(offer, asked, journal, scopes, audience, edits)
        if number and episode.answer is not None and not any(placed.final for placed in episode.turns):
            apart = replace(scopes, group=f"{scopes.group}/{number}")
            episode = await self._play(offer, asked, journal, apart, audience, edits)
        self.metrics.seconds.labels(offer.name).observe(episode.seconds)
        if episode.answer is None:
            raise _outage(episode)
        return episode

    async def _play(
        self,
        offer: Offer,
        asked: Asked,
        journal: Journal,
        scopes: Scopes,
        audience: Audience,
        edits: Mapping[int, str] | None,
    ) -> Episode:
        team, salts = self.metrics.counted(offer.team), {}
        if edits:
            version = team.engines[trainee_of(team)].version
            team = replace(team, instead={depth: Said(words, version) for depth, words in edits.items()})
            # What follows an edit depends on it through the salt, and not on a later one: that can be added.
            salts = {depth: f"edit {digest(words)}" for depth, words in edits.items()}
        return await play(
            asked.task,
            offer.topology,
            team,
            journal,
            scopes,
            judge=self._verdict,
            salts=salts,
            arm=f"{offer.name} {audience.choice}".strip(),
            ask_again=True,
            audience=audience,
        )

    async def _verdict(self, task: Task, answer: str, form: str) -> Verdict:
        if not task.answer:
            return Verdict(None, None, "no gold answer was given")
        return await self._judge(task, answer, form)


async def together(plays: Sequence[asyncio.Task[T]]) -> list[T]:
    """All of them; when one fails the others are let go."""
    try:
        return list(await asyncio.gather(*plays))
    finally:
        for one in plays:
            one.cancel()
        await asyncio.gather(*plays, return_exceptions=True)


def _outage(episode: Episode) -> ApiError:
    _log.warning("no answer: %s", episode.verdict.why)
    absent = next((placed.turn.member for placed in episode.turns if not placed.turn.answered), "a member")
    why = f"{absent} does not answer, and the team cannot do without; try again"
    return ApiError(503, why, "member_unavailable", retry_after=OUTAGE_S)
