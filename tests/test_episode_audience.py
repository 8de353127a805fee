"""The audience of an episode, the conversation before its question, and words that stand in for the trainee's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from pilotfish import Sampling, Scopes, ScriptedEngine, Task, Team, Turn, play, replay, topology
from pilotfish.engine.base import OnText
from pilotfish.episode import Episode, Journal
from pilotfish.episode.audience import Audience
from pilotfish.episode.calls import Call
from pilotfish.evaluate.arms import Said
from pilotfish.team import Message
from pilotfish.topology import hint
from pilotfish.topology.prompts import in_context
from seated import asked, judge, said, seats
from stage import journal

TASK = Task("sum", "What is 2 + 2?", "4")
TALK = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Hello."),
    Message(role="assistant", content="Yes?"),
)


class Crowd:
    """Hears everything, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def begun(self, call: Call, final: bool) -> OnText:
        self.heard.append(("final" if final else "turn", call.member.name))
        return lambda piece: self.heard.append(("piece", piece))

    def ended(self, call: Call, turn: Turn) -> None:
        self.heard.append(("done", turn.text))


def played(team: Team, record: Journal, task: Task = TASK, program: Any = hint, **more: Any) -> Episode:
    return asyncio.run(play(task, program, team, record, Scopes("serve/sum/0"), judge=judge, **more))


def test_an_audience_hears_pieces_of_what_is_asked_and_the_whole_of_what_is_recorded() -> None:
    team = seats(collaborator=["Add them."], actor=["It is 4"])
    first, second = Crowd(), Crowd()
    with journal() as record:
        alone = played(team, record, audience=Audience(first.begun, first.ended))
        again = played(team, record, audience=Audience(second.begun, second.ended))
    around = [("turn", "collaborator"), ("done", "Add them."), ("final", "actor"), ("done", "It is 4")]
    assert [entry for entry in first.heard if entry[0] != "piece"] == around
    assert [words for kind, words in first.heard if kind == "piece"] == ["Add", " them.", "It", " is", " 4"]
    assert [words for kind, words in second.heard if kind == "piece"] == ["Add them.", "It is 4"]
    assert [placed.turn.key for placed in alone.turns] == [placed.turn.key for placed in again.turns]


def test_an_episode_without_an_audience_makes_the_same_calls() -> None:
    team, crowd = seats(collaborator=["Add them."], actor=["It is 4"]), Crowd()
    with journal() as record:
        watched = played(team, record, audience=Audience(crowd.begun, crowd.ended))
        assert played(team, record).turns == watched.turns


def test_choices_differ_in_the_final_turn_alone() -> None:
    actor, crowd = ScriptedEngine(["4", "5"]), Crowd()
    team = seats(collaborator=["Add them."], actor=actor)
    colder = Audience(crowd.begun, crowd.ended, lambda own: own.model_copy(update={"max_tokens": 3}), "choice 1")
    with journal() as record:
        one = played(team, record)
        other = played(team, record, audience=colder, arm="1")
    assert one.turns[0].turn == other.turns[0].turn
    assert (one.answer, other.answer) == ("4", "5")
    assert other.turns[1].turn.sampling == Sampling(max_tokens=3)


def test_a_conversation_stands_in_front_of_every_call_and_is_replayed() -> None:
    @topology
    async def own(task: Task, room: Any) -> Turn:
        first = await room.ask("ann", task.question)
        second = await room.gather(room.ask("ann", [Message(role="system", content="Check."), *_chat(first.text)]))
        return second[0]  # type: ignore[no-any-return]

    task = Task("sum", "And 2 + 2?", "4", context=TALK)
    with journal() as record:
        team = seats(ann=["4", "still 4"])
        episode = played(team, record, task, own)
        asyncio.run(replay(episode.id, task, own, team.members, record, Scopes("serve/sum/0")))
    assert asked(episode, 0) == [
        ("system", "Be brief."),
        ("user", "Hello."),
        ("assistant", "Yes?"),
        ("user", "And 2 + 2?"),
    ]
    assert asked(episode, 1) == [
        ("system", "Be brief.\n\nCheck."),
        ("user", "Hello."),
        ("assistant", "Yes?"),
        ("user", "Is it 4?"),
    ]


def _chat(text: str) -> list[Message]:
    return [Message(role="user", content=f"Is it {text}?")]


def test_without_a_conversation_messages_stay_as_they_are() -> None:
    chat = [Message(role="system", content="a"), Message(role="system", content="b"), Message(role="user", content="c")]
    assert in_context((), chat) is chat


def test_words_stand_in_for_a_decision_of_the_trainee_and_cost_nothing() -> None:
    pilot = ScriptedEngine(["Add them."])
    team = seats(collaborator=pilot, actor=lambda m, s, seed: m[-1]["content"].split("Hint: ")[1][:5])
    members = {**team.members, "collaborator": replace(team.members["collaborator"], trainee=True)}
    trainee = Team(members, team.engines, instead={0: Said("Count up.")})
    with journal() as record:
        episode = played(trainee, record, salts={0: "edit"})
    assert said(episode) == ["Count up.", "Count"]
    assert pilot.calls == 0
    assert episode.usage()["collaborator"].total == 0
