"""`/v1/chat/completions` and `/v1/completions`: a team, or a member of it, as one model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pilotfish.engine.base import OnText
from pilotfish.episode import Episode
from pilotfish.episode.audience import Audience
from pilotfish.episode.calls import Call
from pilotfish.serve.asked import Asked, asked, conversation
from pilotfish.serve.body import Chat, Prompt, Wanted, read
from pilotfish.serve.endpoint import Endpoint, offered
from pilotfish.serve.errors import ApiError
from pilotfish.serve.form import DONE, Answer, own_fields
from pilotfish.serve.offers import Offer
from pilotfish.serve.stream import Events, Put, answered
from pilotfish.serve.usage import by_member, turns_of, usage_of
from pilotfish.team import Message


class Completions(Endpoint):
    """The two endpoints."""

    async def chat(self, request: Request) -> Response:
        body = await read(request, Chat, self._player.config)
        question = asked(conversation(body.messages), body, body.pilotfish, self._manner)
        return await self._answer(request, body, Answer("chat", body.model), [question])

    async def text(self, request: Request) -> Response:
        body = await read(request, Prompt, self._player.config)
        chats = [[Message(role="user", content=prompt)] for prompt in body.prompt]
        questions = [asked(chat, body, body.pilotfish, self._manner) for chat in chats]
        return await self._answer(request, body, Answer("text", body.model), questions)

    async def _answer(self, request: Request, body: Wanted, answer: Answer, tasks: Sequence[Asked]) -> Response:
        offer = offered(self._offers, body.model)
        config = self._player.config
        if not body.stream:
            return await answered(request, self._whole(body, answer, offer, tasks), config.timeout_s)
        work = partial(self._streamed, body, answer, offer, tasks)
        return Events(work, config.timeout_s, config.keep_alive_s)

    async def _whole(self, body: Wanted, answer: Answer, offer: Offer, tasks: Sequence[Asked]) -> Response:
        audiences = [Audience()] * (len(tasks) * body.n)
        episodes = await self._player.answers(offer, tasks, body.n, audiences)
        return JSONResponse(answer.whole(episodes, _usage(episodes, offer), _own(episodes, body)))

    async def _streamed(self, body: Wanted, answer: Answer, offer: Offer, tasks: Sequence[Asked], put: Put) -> None:
        choices = [_Choice(answer, index, put) for index in range(len(tasks) * body.n)]
        audiences = [Audience(begun=choice.begun) for choice in choices]
        episodes = await self._player.answers(offer, tasks, body.n, audiences)
        for choice, episode in zip(choices, episodes, strict=True):
            choice.finish(episode)
        if own := _own(episodes, body):
            put(answer.after(own))
        if body.stream_options and body.stream_options.include_usage:
            put(answer.after({"usage": _usage(episodes, offer)}))
        put(DONE)


class _Choice:
    """One choice of a streamed answer: the words of its final turn as they come."""

    def __init__(self, answer: Answer, index: int, put: Put) -> None:
        self._answer = answer
        self._index = index
        self._put = put
        self._said = ""
        self._listens = False

    def begun(self, call: Call, final: bool) -> OnText | None:
        """Only one turn can be the answer: a second final one is not streamed."""
        if not final or self._listens:
            return None
        self._listens = True
        return self._hear

    def _hear(self, piece: str) -> None:
        self._put(self._answer.piece(self._index, piece, first=not self._said))
        self._said += piece

    def finish(self, episode: Episode) -> None:
        text = episode.answer or ""
        if not text.startswith(self._said):
            why = "the topology's answer is not what its final turn said; ask again without `stream`"
            raise ApiError(500, why, "not_the_final_turn")
        if (rest := text[len(self._said) :]) or not self._said:
            self._hear(rest)
        self._put(self._answer.last(self._index, episode))


def _usage(episodes: Sequence[Episode], offer: Offer) -> dict[str, Any]:
    return usage_of(by_member(turns_of(episodes)), offer.team.members)


def _own(episodes: Sequence[Episode], body: Wanted) -> dict[str, Any]:
    return own_fields(episodes, body.pilotfish.turns, bool(body.pilotfish.gold))
