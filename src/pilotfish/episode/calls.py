"""Calls: how a call is named, and how its answer is found or made.

A call's key is its scope, salt, branch path, member, weights version (trainee only), messages, sampling, and how often
the same call was made before on its branch. `draw=i` stands in place of path and count. At temperature 0 the content
alone is the key, under the name of the deployment, and the answer may outlive the run.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pilotfish.engine.base import CallFailed, Completion, Engine, OnText, Refused, complete
from pilotfish.engine.meter import MaxCostReached
from pilotfish.episode.files import JournalError
from pilotfish.episode.journal import Journal
from pilotfish.episode.turn import Episode, Position, Turn
from pilotfish.team import Member, Messages, Sampling


class ReplayMismatch(Exception):
    """A strict replay came to a call that is not in the record. Names the first call that differs."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True)
class Scopes:
    """Who may share an episode's answers."""

    group: str
    """Calls of this episode: the rows of a group in training, a task and sample index in evaluation."""
    stored: str | None = None
    """When set, calls that depend on no decision of the trainee live here instead: answers stored across steps."""
    seed: int = 0
    """The run's seed; with the scope and a label it seeds `room.rng`, with the key each call."""
    shaped: str | None = None
    """When set, the trainee's turns before decision `before`, and what followed from them, live here: an earlier
    leader's words and the answers that they shaped."""
    before: int = 0
    """See `shaped`."""
    deployments: Mapping[str, str] = field(default_factory=dict)
    """Of members that sit on another model than the recipe's own: the model's name, which enters the keys of their
    calls above temperature 0, so that no model answers for another."""

    def of(self, depth: int, trainee: bool = False) -> str:
        """Where a call lives that depends on `depth` decisions of the trainee."""
        if self.shaped is not None and (depth < self.before if trainee else 0 < depth <= self.before):
            return self.shaped
        # The trainee's own first decision is never a stored answer.
        return self.stored if self.stored is not None and not depth and not trainee else self.group

    def recalled(self, depth: int) -> bool:
        """Whether the trainee's decision at a depth is an earlier leader's."""
        return self.shaped is not None and depth < self.before


@dataclass(frozen=True, slots=True)
class Call:
    """One `room.ask`, and where it stands."""

    member: Member
    messages: Messages
    position: Position
    path: Position
    salt: tuple[str, ...]
    depth: int
    optional: bool
    draw: int | None
    on_text: OnText | None = None
    """Takes the pieces of the answer as they come, where it has to be asked for."""


class Calls(Protocol):
    """Finds or makes the answer of a call."""

    scopes: Scopes

    async def answer(self, call: Call, counts: dict[str, int]) -> Turn:
        """`counts`: how often each call was made on the call's branch; updated."""


class Live:
    """Answers from the journal; what is not recorded is asked and written down.

    Args:
        engines: by member name.
        journal: the run's record.
        scopes: who may share the answers.
        episode: the asker's id, recorded with each turn.
        kept: answers at temperature 0 that outlive the run; copied into the run's own journal, so that it is whole.
        ask_again: ask once more what the record says has failed.
        earlier: the leader that speaks before the trained decision where `scopes.shaped` is set; None where all its
            words must be recorded.
        instead: by the depth of a decision, who speaks there in the trainee's place.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        journal: Journal,
        scopes: Scopes,
        *,
        episode: str,
        kept: Journal | None = None,
        ask_again: bool = False,
        earlier: Engine | None = None,
        instead: Mapping[int, Engine] | None = None,
    ) -> None:
        self.scopes = scopes
        self.stopped: Exception | None = None
        """What ended the run, also where a topology caught it."""
        self._engines = engines
        self._journal = journal
        self._episode = episode
        self._kept = kept
        self._ask_again = ask_again
        self._earlier = earlier or _Recorded()
        self._instead = instead or {}

    async def answer(self, call: Call, counts: dict[str, int]) -> Turn:
        recalled = call.member.trainee and self.scopes.recalled(call.depth)
        engine = self._earlier if recalled else self._engines[call.member.name]
        if call.member.trainee and call.depth in self._instead:
            engine = self._instead[call.depth]
        version = engine.version if call.member.trainee and not recalled else 0
        key, scope = name(call, self.scopes, version, engine.identity, counts)
        unanswered = Turn(
            key=key,
            scope=scope,
            member=call.member.name,
            version=version,
            messages=call.messages,
            sampling=call.member.sampling,
            outcome="absent" if call.optional else "failed",
            completion=None,
            asker=self._episode,
        )

        async def ask() -> Turn:
            return await self._ask(engine, unanswered, call.on_text)

        async def ask_kept(kept: Journal) -> Turn:
            found, asked = await kept.answer(key, ask, again=lambda turn: not turn.answered)
            return found if asked else replace(found, asker="")

        kept = self._kept if deterministic(scope) and engine.identity and not put_in(scope) else None
        try:
            held = self.scopes.of(call.depth, call.member.trainee) != self.scopes.group
            asking = (lambda: ask_kept(kept)) if kept else ask
            turn, _ = await self._journal.answer(key, asking, again=lambda turn: self._again(turn, held))
        except (Refused, JournalError) as error:
            self.stopped = error
            raise
        return turn

    def _again(self, turn: Turn, held: bool) -> bool:
        """Whether to ask once more; `held`: the call belongs to a stored set."""
        if turn.answered:
            return False
        if turn.outcome == "absent" and held:
            return self._ask_again  # a stored set stays what it is
        # Deterministic and stored keys know no group: another group's outage must not stand for the rest of the run.
        elsewhere = turn.scope != self.scopes.group and not turn.asker.startswith(f"{self.scopes.group}|")
        return elsewhere or (turn.outcome == "failed" and self._ask_again)

    async def _ask(self, engine: Engine, unanswered: Turn, on_text: OnText | None) -> Turn:
        seed = int(digest(self.scopes.seed, unanswered.key)[:15], 16)
        started = time.time()
        try:
            said = await complete(engine, unanswered.messages, unanswered.sampling, seed, on_text)
        except CallFailed as error:
            return replace(unanswered, started=started, error=str(error), attempts=error.attempts)
        except MaxCostReached:
            raise
        except Refused as error:
            raise type(error)(f"{unanswered.member}: {error}") from error
        done = replace(said, attempts=()) if said.attempts else said
        return replace(unanswered, started=started, outcome="answered", completion=done, attempts=said.attempts)


class _Recorded:
    """An earlier leader that is not at hand: what it said is in the record, or it is a mistake."""

    version = 0
    identity = None

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        said = messages[-1]["content"]
        raise Refused(f"no words of an earlier leader are stored for {said[:60]!r}…; run `pilotfish collect` for it")

    async def close(self) -> None:
        """Nothing is held."""


class Strict:
    """Answers from the record of one finished episode; a call that differs is an error."""

    def __init__(self, record: Episode, scopes: Scopes) -> None:
        self.scopes = scopes
        self.mismatches: list[ReplayMismatch] = []
        self.met: set[Position] = set()
        self._recorded = {placed.position: placed.turn for placed in record.turns}
        turns = self._recorded.values()
        self._identities = {turn.member: identity_in(turn.scope) for turn in turns if deterministic(turn.scope)}

    async def answer(self, call: Call, counts: dict[str, int]) -> Turn:
        recorded = self._recorded.get(call.position)
        identity = self._identities.get(call.member.name)
        key, _ = name(call, self.scopes, recorded.version if recorded else 0, identity, counts)
        self.met.add(call.position)
        if recorded is None or recorded.key != key:
            self.mismatches.append(ReplayMismatch(call.position, difference(call.position, recorded, call)))
            raise self.mismatches[-1]
        return recorded

    def missing(self) -> list[ReplayMismatch]:
        """Calls of the record that the replay did not come by."""
        unmet = {position: turn for position, turn in self._recorded.items() if position not in self.met}
        return [ReplayMismatch(position, difference(position, turn, None)) for position, turn in unmet.items()]


DETERMINISTIC = "deterministic/"
PUT_IN = "said:"
"""How the identity begins of an engine that asks nobody: its words are put into the member's mouth."""


def deterministic(scope: str) -> bool:
    """Whether a scope holds answers at temperature 0."""
    return scope.startswith(DETERMINISTIC)


def identity_in(scope: str) -> str | None:
    """The engine's identity that a scope of answers at temperature 0 names; None where it names none."""
    return scope.removeprefix(DETERMINISTIC) or None if deterministic(scope) else None


def put_in(scope: str) -> bool:
    """Whether a scope holds words that nobody generated: no call, and nothing to keep for another run."""
    return scope.startswith(f"{DETERMINISTIC}{PUT_IN}")


def name(call: Call, scopes: Scopes, version: int, identity: str | None, counts: dict[str, int]) -> tuple[str, str]:
    """A call's key and scope; counts the call on its branch."""
    # An earlier leader's words are found by what it was asked, however the trainee is sampled now.
    recalled = call.member.trainee and scopes.recalled(call.depth)
    sampling = "" if recalled else call.member.sampling.model_dump_json()
    content = digest(call.member.name, version, call.messages, sampling)
    if call.member.sampling.temperature == 0 and not recalled:
        scope = f"{DETERMINISTIC}{identity or ''}"
        return digest(scope, content), scope
    if deployment := scopes.deployments.get(call.member.name):
        content = digest(content, deployment)
    scope = scopes.of(call.depth, call.member.trainee)
    if call.draw is not None:
        return digest(scope, call.salt, content, f"draw {call.draw}"), scope
    count = counts[content] = counts.get(content, -1) + 1
    return digest(scope, call.salt, call.path, content, count), scope


def digest(*parts: Any) -> str:
    """32 hex digits of a hash over JSON values."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


class Asked(Protocol):
    """Who was asked what: a call or a turn."""

    @property
    def member(self) -> Member | str: ...
    @property
    def messages(self) -> Messages: ...


def difference(
    position: Position, one: Asked | None, other: Asked | None, names: tuple[str, str] = ("the record", "the replay")
) -> str:
    """What tells two calls at one position apart; None where nobody is asked."""
    where = "call " + ".".join(str(part) for part in position)
    asked = [_who(call) for call in (one, other)]
    if one is None or other is None or asked[0] != asked[1]:
        return f"{where}: {names[0]} asks {asked[0]}; {names[1]} asks {asked[1]}"
    changed = difflib.unified_diff(_lines(one.messages), _lines(other.messages), *names, lineterm="", n=1)
    return f"{where}: {asked[0]} is asked something else\n" + ("\n".join(changed) or "(same words, another sampling)")


def _who(call: Asked | None) -> str:
    if call is None:
        return "nobody"
    return call.member.name if isinstance(call.member, Member) else call.member


def _lines(messages: Messages) -> list[str]:
    return [f"{message['role']}: {line}" for message in messages for line in message["content"].split("\n")]
