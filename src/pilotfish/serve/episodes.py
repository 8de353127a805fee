"""`/v1/team/episodes`: a team at work, turn by turn, and what would follow if the trainee had said something else.

A stream of events, each with the `model` it is of: `started`, then for each turn `turn`, `delta`s and `turn_done`, then
`verdict`, and `done` when all models have answered. An `error` ends the model that it is of.

    {"messages": […], "models": ["team", "actor"], "gold": "12"}       # the team, and the actor alone beside it
    {"episode": "…", "edits": {"0": "Try small cases."}}               # the trainee's first words edited, the rest anew
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from pilotfish.engine.base import OnText
from pilotfish.episode import Journal, Turn
from pilotfish.episode.audience import Audience
from pilotfish.episode.calls import Call
from pilotfish.serve.asked import Asked, Manner, asked, conversation
from pilotfish.serve.body import Conversation, Own, Rule, Said, Settings, read
from pilotfish.serve.endpoint import Endpoint, offered
from pilotfish.serve.errors import ApiError, told
from pilotfish.serve.form import event, verdict_of
from pilotfish.serve.offers import Offer
from pilotfish.serve.player import Player, together
from pilotfish.serve.stream import Events, Put
from pilotfish.serve.usage import by_member, turn_of, turns_of, usage_of

WORDS = 20_000
"""Most characters of an edit."""
REPLAYS = 100
"""Most edits of one episode: what they lead to is kept with it."""


class Watched(Settings, Conversation):
    """The body: a question, or an episode with edits."""

    messages: Said = Field(default=[])
    models: list[str] = Field(default=["team"], min_length=1, max_length=4)
    gold: str = ""
    verifier: Rule | None = None
    instruction: str | None = None
    episode: str | None = None
    """An earlier one, by the id that `started` gave it."""
    edits: dict[int, str] = Field(default={}, max_length=32)
    """By the number of the trainee's decision, from 0: what it says instead."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Watched:
        if (self.episode is None) != (not self.edits):
            raise ValueError("episode and edits belong together")
        if self.episode and (more := self.model_fields_set - {"episode", "edits", "models"}):
            raise ValueError(f"{', '.join(sorted(more))}: an edited episode has those it began with; leave it out")
        if not self.episode and not self.messages:
            raise ValueError("give messages, or an episode with edits")
        if too_long := next((words for words in self.edits.values() if len(words) > WORDS), None):
            raise ValueError(f"an edit has {len(too_long)} characters; {WORDS} are the most")
        return self


@dataclass
class Session:
    """An episode that may be gone on with, by whoever began it."""

    caller: str
    asked: Asked
    journal: Journal
    decisions: dict[str, int] = field(default_factory=dict)
    """By model, how many decisions the trainee took at most."""
    replays: int = 0


class Sessions:
    """The latest of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, Session] = OrderedDict()

    def keep(self, session: Session) -> str:
        """Remember a session; its id cannot be guessed."""
        name = secrets.token_hex(16)
        self._held[name] = session
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return name

    def find(self, name: str, caller: str) -> Session:
        """Raises ApiError: there is none, or it is another caller's."""
        session = self._held.get(name)
        if session is None or session.caller != caller:
            raise ApiError(404, "no such episode, or it is forgotten by now; ask again", "episode_not_found")
        self._held.move_to_end(name)
        return session


class Episodes(Endpoint):
    """The endpoint."""

    def __init__(self, player: Player, offers: dict[str, Offer], manner: Manner) -> None:
        super().__init__(player, offers, manner)
        self._sessions = Sessions(player.config.sessions)

    async def play(self, request: Request) -> Response:
        config = self._player.config
        body = await read(request, Watched, config)
        caller = str(request.scope.get("caller", ""))
        offers = [offered(self._offers, model) for model in dict.fromkeys(body.models)]
        if body.episode is None:
            session = self._begun(body, caller)
        else:
            session = self._sessions.find(body.episode, caller)
            _check_edits(body, session, offers)
            session.replays += 1
        work = partial(self._play, body, session, offers)
        return Events(work, config.timeout_s, config.keep_alive_s)

    def _begun(self, body: Watched, caller: str) -> Session:
        own = Own(gold=body.gold, verifier=body.verifier, instruction=body.instruction)
        question = asked(conversation(body.messages), body, own, self._manner)
        return Session(caller, question, self._player.journal())

    async def _play(self, body: Watched, session: Session, offers: list[Offer], put: Put) -> None:
        models = [offer.name for offer in offers]
        async with self._player.places.taken(len(offers)):
            name = body.episode or self._sessions.keep(session)
            put(event({"episode": name, "models": models, "seed": session.asked.seed}, "started"))
            await together([asyncio.ensure_future(self._one(session, offer, body.edits, put)) for offer in offers])
        put(event({"episode": name}, "done"))

    async def _one(self, session: Session, offer: Offer, edits: dict[int, str], put: Put) -> None:
        try:
            watch = _Watch(offer, edits, put)
            audience = Audience(watch.begun, watch.ended)
            episode = await self._player.episode(offer, session.asked, session.journal, audience, edits=edits)
        except Exception as error:
            put(event({"model": offer.name, **told(error).body()}, "error"))
            return
        taken = len({placed.depth for placed in episode.decisions()})
        session.decisions[offer.name] = max(taken, session.decisions.get(offer.name, 0))
        found = {**verdict_of(episode), "usage": usage_of(by_member(turns_of([episode])), offer.team.members)}
        put(event({"model": offer.name, "answer": episode.answer, "seconds": episode.seconds, **found}, "verdict"))


class _Watch:
    """Tells a client of one model's turns."""

    def __init__(self, offer: Offer, edits: dict[int, str], put: Put) -> None:
        self._offer = offer
        self._edits = edits
        self._put = put

    def begun(self, call: Call, final: bool) -> OnText:
        fields = {"decision": _decision(call), "final": final, "messages": call.messages}
        self._put(event({**self._of(call), **fields}, "turn"))
        return lambda piece: self._put(event({**self._of(call), "text": piece}, "delta"))

    def ended(self, call: Call, turn: Turn) -> None:
        said = {name: value for name, value in turn_of(turn).items() if name != "messages"}
        edited = _decision(call) in self._edits
        self._put(event({**self._of(call), **said, "edited": edited}, "turn_done"))

    def _of(self, call: Call) -> dict[str, Any]:
        place = ".".join(map(str, call.position))
        return {"model": self._offer.name, "turn": place, "member": call.member.name}


def _decision(call: Call) -> int | None:
    """The number of the trainee's decision; None for the turn of a frozen member."""
    return call.depth if call.member.trainee else None


def _check_edits(body: Watched, session: Session, offers: list[Offer]) -> None:
    taken = max((session.decisions.get(offer.name, 0) for offer in offers), default=0)
    if not taken:
        raise ApiError(400, "edits: the trainee takes no part in this episode", "invalid_request")
    if session.replays >= REPLAYS:
        raise ApiError(400, f"edits: {REPLAYS} of one episode are the most; ask anew", "over_limit")
    if wrong := [number for number in body.edits if not 0 <= number < taken]:
        raise ApiError(400, f"edits: no decision {wrong[0]}; the trainee took {taken}, from 0", "invalid_request")
