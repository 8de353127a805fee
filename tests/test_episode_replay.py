"""Strict replay and resume over random topologies: the same turns, nothing asked, and what differs is named."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pilotfish.episode import Journal, ReplayMismatch, Scopes, TopologyError, play, replay
from pilotfish.task import Task
from pilotfish.topology import topology
from stage import MEMBERS, TASK, Ask, Gather, Steps, asks, journal, judge, played, programs, run, stage

SCOPES = Scopes("sum/0", seed=3)
seeds = st.integers(0, 10_000)
trainee_temperatures = st.sampled_from([0.0, 1.0])


@settings(max_examples=80, deadline=None)
@given(steps=programs(), first=seeds, second=seeds, temperature=trainee_temperatures)
def test_replay_gives_the_same_turns_and_asks_nothing(
    steps: Steps, first: int, second: int, temperature: float
) -> None:
    one = stage({**MEMBERS, "pilot": temperature}, "pilot", order=first, outages=0.3)
    two = stage({**MEMBERS, "pilot": temperature}, "pilot", order=second, outages=0.3)
    with journal() as record:
        episode = run(play(TASK, played(steps), one.team, record, SCOPES, judge=judge))
        again = Journal(record.folder, writable=False)
        strict = run(replay(episode.id, TASK, played(steps), one.team.members, again, SCOPES))
        resumed = run(play(TASK, played(steps), two.team, Journal(record.folder), SCOPES, judge=judge))
    assert strict.turns == episode.turns == resumed.turns
    assert strict.answer == episode.answer == resumed.answer
    assert two.calls == 0
    assert resumed.unused == ()


@settings(max_examples=60, deadline=None)
@given(steps=programs(optional_only=True), first=seeds, data=st.data())
def test_a_topology_that_is_not_deterministic_is_reported_with_the_call_that_differs(
    steps: Steps, first: int, data: st.DataObject
) -> None:
    one = stage(MEMBERS, "pilot", order=first)
    position, ask = data.draw(st.sampled_from(list(asks(steps))))
    other = _with(steps, position, replace(ask, words="shout"))
    with journal() as record:
        episode = run(play(TASK, played(steps), one.team, record, SCOPES, judge=judge))
        with pytest.raises(ReplayMismatch, match=f"{ask.member} is asked something else") as error:
            run(replay(episode.id, TASK, played(other), one.team.members, record, SCOPES))
    assert error.value.position == position
    assert "shout" in str(error.value)
    assert "call " + ".".join(map(str, position)) in str(error.value)


@settings(max_examples=40, deadline=None)
@given(steps=programs(optional_only=True), first=seeds, data=st.data())
def test_a_call_more_or_less_is_reported(steps: Steps, first: int, data: st.DataObject) -> None:
    one = stage(MEMBERS, "pilot", order=first)
    position, _ = data.draw(st.sampled_from(list(asks(steps))))
    shorter = _with(steps, position, None)
    with journal() as record:
        whole = run(play(TASK, played(steps), one.team, record, SCOPES, judge=judge))
        with pytest.raises(ReplayMismatch) as less:
            run(replay(whole.id, TASK, played(shorter), one.team.members, record, SCOPES))
        scopes = Scopes("sum/1")
        part = run(play(TASK, played(shorter), one.team, record, scopes, judge=judge))
        with pytest.raises(ReplayMismatch) as more:
            run(replay(part.id, TASK, played(steps), one.team.members, record, scopes))
    assert less.value.position >= position or len(less.value.position) < len(position)
    assert more.value.position in dict(asks(steps))


def test_the_first_difference_is_named_and_not_what_follows_from_it() -> None:
    before: Steps = (Gather(((Ask("warm", "a"), Ask("warm", "b")), (Ask("warm", "c"),))), Ask("warm", "d"))
    after: Steps = (Gather(((Ask("warm", "a"),), (Ask("warm", "c"),))), Ask("warm", "d"))
    one = stage({"warm": 1.0})
    with journal() as record:
        episode = run(play(TASK, played(before), one.team, record, SCOPES, judge=judge))
        with pytest.raises(ReplayMismatch, match=r"call 0\.0\.1: the record asks warm; the replay asks nobody"):
            run(replay(episode.id, TASK, played(after), one.team.members, record, SCOPES))


def test_a_topology_that_takes_another_answer_from_equal_calls_is_reported() -> None:
    picks = iter([0, 1])

    @topology
    async def fickle(task: Task, room):
        turns = [await room.ask("warm", "a"), await room.ask("warm", "b")]
        return turns[next(picks)]

    one = stage({"warm": 1.0})
    with journal() as record:
        episode = run(play(TASK, fickle, one.team, record, SCOPES, judge=judge))
        with pytest.raises(ReplayMismatch, match="another answer: recorded 'warm v0 #0', replayed 'warm v0 #1'"):
            run(replay(episode.id, TASK, fickle, one.team.members, record, SCOPES))


def test_a_mismatch_that_a_topology_swallows_is_reported_all_the_same() -> None:
    words = iter(["a", "b"])

    @topology
    async def swallowing(task: Task, room):
        try:
            return await room.ask("warm", next(words))
        except BaseException:
            return "made up"

    one = stage({"warm": 1.0})
    with journal() as record:
        episode = run(play(TASK, swallowing, one.team, record, SCOPES, judge=judge))
        with pytest.raises(ReplayMismatch, match=r"-user: a\n\+user: b"):
            run(replay(episode.id, TASK, swallowing, one.team.members, record, SCOPES))


def test_another_sampling_is_a_difference_and_another_order_of_repeats_is_not() -> None:
    steps: Steps = (Ask("warm", "a", listens=False), Ask("warm", "a", listens=False))
    one, hotter = stage({"warm": 1.0}), stage({"warm": 1.1})
    with journal() as record:
        episode = run(play(TASK, played(steps), one.team, record, SCOPES, judge=judge))
        assert [placed.turn.text for placed in episode.turns] == ["warm v0 #0", "warm v0 #1"]
        with pytest.raises(ReplayMismatch, match=r"call 0: warm is asked something else\n\(same words, another samp"):
            run(replay(episode.id, TASK, played(steps), hotter.team.members, record, SCOPES))


def test_an_episode_that_is_not_there_is_named() -> None:
    with journal() as record, pytest.raises(LookupError, match="no finished episode 'nowhere'"):
        run(replay("nowhere", TASK, played((Ask("warm", "a"),)), {}, record, SCOPES))


@settings(max_examples=40, deadline=None)
@given(steps=programs(optional_only=True), first=seeds, second=seeds, stop=st.integers(1, 8))
def test_resume_asks_only_what_is_missing(steps: Steps, first: int, second: int, stop: int) -> None:
    """An episode is cancelled after some calls began; what had been answered is not asked again."""
    one, two, whole = (stage(MEMBERS, "pilot", order=seed) for seed in (first, second, second))

    async def interrupted(record: Journal) -> None:
        task = asyncio.create_task(play(TASK, played(steps), one.team, record, SCOPES, judge=judge))
        while one.calls < stop and not task.done():  # noqa: ASYNC110  (steps the loop, waits for nothing)
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with journal() as record, journal() as other:
        run(interrupted(record))
        kept = len(list(record.turns()))
        assume(record.episode("sum/0|random_topology") is None)
        resumed = run(play(TASK, played(steps), two.team, Journal(record.folder), SCOPES, judge=judge))
        unbroken = run(play(TASK, played(steps), whole.team, other, SCOPES, judge=judge))
    assert two.calls + kept == whole.calls == len({placed.turn.key for placed in unbroken.turns})
    assert resumed.unused == ()


def test_resume_reports_turns_that_the_topology_no_longer_asks_for() -> None:
    words = iter(["first words", "other words"])

    @topology
    async def moody(task: Task, room):
        turn = await room.ask("warm", next(words))
        if turn.text.endswith("#0"):
            raise RuntimeError("the machine went away")
        return turn

    one = stage({"warm": 1.0})
    with journal() as record:
        with pytest.raises(RuntimeError, match="went away"):
            run(play(TASK, moody, one.team, record, SCOPES, judge=judge))
        episode = run(play(TASK, moody, one.team, record, SCOPES, judge=judge))
        lost = record.find(episode.unused[0])
    assert len(episode.unused) == 1
    assert lost is not None
    assert lost.messages == [{"role": "user", "content": "first words"}]


def test_messages_are_kept_as_they_were_asked() -> None:
    @topology
    async def growing(task: Task, room):
        chat = [{"role": "user", "content": "a"}]
        await room.ask("warm", chat)
        chat[0]["content"] += "b"
        chat.append({"role": "user", "content": "c"})
        return await room.ask("warm", chat)

    one = stage({"warm": 1.0})
    with journal() as record:
        episode = run(play(TASK, growing, one.team, record, SCOPES, judge=judge))
        assert episode == record.episode(episode.id)
    assert episode.turns[0].turn.messages == [{"role": "user", "content": "a"}]


def test_concurrency_outside_gather_and_unknown_members_are_refused() -> None:
    @topology
    async def loose(task: Task, room):
        await asyncio.gather(room.ask("warm", "a"), room.ask("warm", "b"))
        return ""

    @topology
    async def mistaken(task: Task, room):
        return await room.ask("wram", "a")

    @topology
    async def silent(task: Task, room):
        await room.ask("warm", "a")

    one = stage({"warm": 1.0, "cold": 0.0})
    for wrong, why in [
        (loose, r"goes through room\.gather"),
        (mistaken, "no member 'wram' in this team; there are: warm, cold"),
        (silent, "topology silent returned None; return a turn or a string"),
    ]:
        with journal() as record, pytest.raises(TopologyError, match=why):
            run(play(TASK, wrong, one.team, record, SCOPES, judge=judge))


def test_a_topology_may_call_another() -> None:
    @topology
    async def twice(task: Task, room):
        one = await inner(task, room)
        two = await inner(task, room)
        return f"{one.text} {two.text}"

    @topology
    async def inner(task: Task, room):
        return await room.ask("warm", "a")

    one = stage({"warm": 1.0})
    with journal() as record:
        episode = run(play(TASK, twice, one.team, record, SCOPES, judge=judge))
    assert episode.answer == "warm v0 #0 warm v0 #1"


def test_rng_is_one_for_a_group_and_another_for_another_label_seed_or_group() -> None:
    @topology
    async def shuffling(task: Task, room):
        await room.ask("warm", "a")
        return f"{room.rng('order').random()} {room.rng('order').random()} {room.rng('other').random()}"

    one = stage({"warm": 1.0})
    answers = []
    for scopes, salts in [
        (SCOPES, {0: "0.1"}),
        (SCOPES, {0: "0.2"}),
        (Scopes("sum/0", seed=4), None),
        (Scopes("sum/1", seed=3), None),
    ]:
        with journal() as record:
            episode = run(play(TASK, shuffling, one.team, record, scopes, judge=judge, salts=salts))
            answers.append(episode.answer.split())
    assert answers[0] == answers[1]
    assert answers[0][0] == answers[0][1] != answers[0][2]
    assert len({answer[0] for answer in answers}) == 3


def _with(steps: Steps, position: tuple[int, ...], new: Ask | None) -> Steps:
    """The program with one call changed, or left out."""
    number, rest = position[0], position[1:]
    if not rest:
        changed: Steps = () if new is None else (new,)
    else:
        held = steps[number]
        assert isinstance(held, Gather)
        branches = list(held.branches)
        branches[rest[0]] = _with(branches[rest[0]], rest[1:], new)
        changed = (Gather(tuple(branches)),)
    return (*steps[:number], *changed, *steps[number + 1 :])
