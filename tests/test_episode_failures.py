"""A failed required call ends the episode, whatever the topology does; an optional one is absent and replays so."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from pilotfish.engine.base import Attempt, CallFailed, Completion, Refused
from pilotfish.episode import Episode, Journal, JournalError, Scopes, play, replay
from pilotfish.task import Task
from pilotfish.team import Usage
from pilotfish.topology import Topology, topology
from stage import TASK, Stage, journal, judge, run, stage

SCOPES = Scopes("sum/0")


def broken(fails: int = 1_000_000, error: Exception | None = None) -> Stage:
    """A team whose `flaky` fails its first calls."""
    one = stage({"flaky": 1.0, "warm": 1.0})
    speaker = one.speakers["flaky"]
    answer = speaker.complete

    async def complete(messages, sampling, seed):
        if len(speaker.asked) < fails:
            speaker.asked.append(messages)
            raise error or CallFailed("the line is dead", (Attempt(0.1, "first"), Attempt(0.2, "second")))
        return await answer(messages, sampling, seed)

    speaker.complete = complete  # type: ignore[method-assign]
    return one


def played(one: Stage, program: Topology, record: Journal, **options) -> Episode:
    return run(play(TASK, program, one.team, record, SCOPES, judge=judge, **options))


@topology
async def bare_except(task: Task, room):
    try:
        await room.ask("flaky", "a")
    except:  # noqa: E722
        return "made up"


@topology
async def base_exception_and_on(task: Task, room):
    try:
        await room.ask("flaky", "a")
    except BaseException:
        return await room.ask("warm", "without it")


@topology
async def swallowed_in_a_branch(task: Task, room):
    async def careful():
        with contextlib.suppress(BaseException):
            return (await room.ask("flaky", "a")).text
        return "made up"

    async def other():
        return (await room.ask("warm", "b")).text

    texts = await room.gather(careful(), other())
    return (await room.ask("warm", str(texts))).text


@topology
async def swallowed_around_the_gather(task: Task, room):
    async def careless():
        return await room.ask("flaky", "a")

    async def other():
        return await room.ask("warm", "b")

    try:
        await room.gather(careless(), other())
    except BaseException:
        return "made up"


@topology
async def required_after_optional(task: Task, room):
    await room.ask("flaky", "a", draw=0, optional=True)
    try:
        await room.ask("flaky", "a", draw=0)
    except BaseException:
        return "made up"


@topology
async def answers_with_an_absent_turn(task: Task, room):
    return await room.ask("flaky", "a", optional=True)


@pytest.mark.parametrize(
    ("program", "asked_of_warm"),
    [
        (bare_except, 0),
        (base_exception_and_on, 0),
        (swallowed_in_a_branch, 1),
        (swallowed_around_the_gather, 1),
        (required_after_optional, 0),
        (answers_with_an_absent_turn, 0),
    ],
)
def test_no_answer_is_made_up_after_a_failed_call(program: Topology, asked_of_warm: int) -> None:
    one = broken()
    with journal() as record:
        episode = played(one, program, record)
        assert run(replay(episode.id, TASK, program, one.team.members, record, SCOPES)) == episode
    assert (episode.answer, episode.verdict.reward, episode.verdict.correct) == (None, None, None)
    assert episode.verdict.why == "flaky: the line is dead"
    assert len(one.speakers["warm"].asked) == asked_of_warm


def test_an_optional_call_after_an_equal_required_one_is_absent() -> None:
    @topology
    async def required(task: Task, room):
        return await room.ask("flaky", "a", draw=0)

    @topology
    async def optional(task: Task, room):
        turn = await room.ask("flaky", "a", draw=0, optional=True)
        return f"without: {turn.text!r} {turn.outcome}"

    one = broken()
    with journal() as record:
        assert played(one, required, record).answer is None
        episode = played(one, optional, record)
        assert record.episode(episode.id) == episode
    assert episode.answer == "without: '' absent"
    assert len(one.speakers["flaky"].asked) == 1


def test_an_absent_call_replays_as_absent_and_keeps_its_attempts() -> None:
    @topology
    async def patient(task: Task, room):
        turn = await room.ask("flaky", "a", optional=True)
        return await room.ask("warm", f"heard {turn.text!r}")

    one, other = broken(fails=1), broken(fails=0)
    with journal() as record:
        episode = played(one, patient, record)
        again = run(play(TASK, patient, other.team, record, SCOPES, judge=judge, ask_again=True))
    absent = again.turns[0].turn
    assert episode.turns == again.turns
    assert (absent.outcome, absent.error, absent.text) == ("absent", "the line is dead", "")
    assert absent.attempts == (Attempt(0.1, "first"), Attempt(0.2, "second"))
    assert other.calls == 0
    assert episode.verdict.reward == 1.0


def test_attempts_before_an_answer_are_recorded_and_do_not_count_as_calls() -> None:
    one = stage({"warm": 1.0})

    async def complete(messages, sampling, seed):
        return Completion("4", "stop", Usage(3, 1), attempts=(Attempt(1.5, "429"),))

    one.speakers["warm"].complete = complete  # type: ignore[method-assign]

    @topology
    async def plain(task: Task, room):
        return await room.ask("warm", "a")

    with journal() as record:
        episode = played(one, plain, record)
        assert record.episode(episode.id) == episode
    assert [placed.turn.attempts for placed in episode.turns] == [(Attempt(1.5, "429"),)]
    assert episode.usage() == {"warm": Usage(3, 1)}


def test_a_failed_call_stays_failed_until_it_is_to_be_asked_again() -> None:
    @topology
    async def plain(task: Task, room):
        return await room.ask("flaky", "a")

    one = broken(fails=1)
    with journal() as record:
        assert played(one, plain, record).answer is None
        assert played(one, plain, record).answer is None
        assert one.calls == 1
        mended = played(one, plain, record, ask_again=True)
        assert (mended.answer, mended.verdict.reward) == ("flaky v0 #0", 1.0)
        assert played(one, plain, record) == record.episode(mended.id)
        assert [turn.outcome for turn in record.turns()] == ["answered"]
    assert one.calls == 2


@pytest.mark.parametrize("program", [bare_except, swallowed_in_a_branch])
def test_a_refused_call_stops_the_run_also_where_the_topology_caught_it(program: Topology) -> None:
    one = broken(error=Refused("401: no such key"))
    with journal() as record:
        with pytest.raises(Refused, match="flaky: 401: no such key"):
            played(one, program, record)
        assert record.episode(f"sum/0|{program.name}") is None


def test_a_journal_that_cannot_be_written_stops_the_run_also_where_the_topology_caught_it(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JournalError, match="cannot be written"):
        played(broken(fails=0), bare_except, Journal(tmp_path / "file"))


def test_a_cancelled_episode_is_not_recorded_with_an_answer_that_was_made_up() -> None:
    one = stage({"flaky": 1.0})

    async def cancelled(record: Journal) -> None:
        asked = asyncio.Event()

        async def never(messages, sampling, seed):
            asked.set()
            await asyncio.Event().wait()

        one.speakers["flaky"].complete = never  # type: ignore[method-assign]
        task = asyncio.create_task(play(TASK, bare_except, one.team, record, SCOPES, judge=judge))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with journal() as record:
        run(cancelled(record))
        assert list(record.episodes()) == []


def test_an_error_of_the_topology_is_raised_once_every_branch_has_ended() -> None:
    ended = []

    @topology
    async def clumsy(task: Task, room):
        async def stumble():
            raise ZeroDivisionError("in the topology")

        async def other():
            ended.append((await room.ask("warm", "b")).text)

        await room.gather(stumble(), other())

    with journal() as record, pytest.raises(ZeroDivisionError, match="in the topology"):
        played(stage({"warm": 1.0}, order=3), clumsy, record)
    assert ended == ["warm v0 #0"]
