"""The audience: who watches an episode while it is played, and what it asks of the turn that is the team's answer.

    audience = Audience(begun=…, ended=…, sampling=lambda own: own.model_copy(update={"max_tokens": 64}))
    await play(task, topology, team, journal, scopes, judge=judge, audience=audience)

A server is one. An episode without an audience is played in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from pilotfish.engine.base import OnText
from pilotfish.episode.calls import Call
from pilotfish.episode.turn import Turn
from pilotfish.team import Sampling


def _deaf(call: Call, final: bool) -> OnText | None:
    return None


def _unheard(call: Call, turn: Turn) -> None:
    return None


@dataclass(frozen=True)
class Audience:
    """Hears of each call of an episode."""

    begun: Callable[[Call, bool], OnText | None] = _deaf
    """A call begins; whether it is final. What it returns takes the pieces of its text, if anything."""
    ended: Callable[[Call, Turn], None] = _unheard
    """A call has its turn."""
    sampling: Callable[[Sampling], Sampling] = lambda own: own
    """How the final turn is sampled, by how its member is."""
    choice: str = ""
    """Names one of several answers of one episode: the final turn is asked for each, all before it once."""

    async def attend(self, call: Call, final: bool, answer: Callable[[Call], Awaitable[Turn]]) -> Turn:
        """Have a call answered.

        Args:
            call: as the topology makes it.
            final: whether its words are the team's answer.
            answer: finds or makes its turn.
        """
        asked = self._asked(call) if final else call
        listener = self.begun(asked, final)
        heard: list[str] = []

        def hear(piece: str) -> None:
            heard.append(piece)
            if listener is not None:
                listener(piece)

        turn = await answer(replace(asked, on_text=hear if listener else None))
        said = "".join(heard)
        # From the record, or from an engine that says all at once.
        if listener is not None and turn.text.startswith(said) and turn.text != said:
            listener(turn.text[len(said) :])
        self.ended(asked, turn)
        return turn

    def _asked(self, call: Call) -> Call:
        member = replace(call.member, sampling=self.sampling(call.member.sampling))
        return replace(call, member=member, salt=(*call.salt, self.choice) if self.choice else call.salt)
