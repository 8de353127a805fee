"""Forks: what does not depend on the trainee's decision is asked once for the group, the rest once for each row."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.engine.base import CallFailed, Completion
from pilotfish.episode import (
    Episode,
    Journal,
    ReplayMismatch,
    Scopes,
    Team,
    check_group,
    episode_id,
    fork,
    play,
    replay,
)
from pilotfish.task import Task
from pilotfish.team import Usage
from pilotfish.topology import Topology, topology
from stage import MEMBERS, TASK, Ask, Dependence, Gather, Stage, Steps, journal, judge, played, programs, run, stage

SCOPES = Scopes("train/1/sum", seed=3)
seeds = st.integers(0, 10_000)
ROWS = 3


async def group(
    one: Stage, program: Topology, record: Journal, decision: int, scopes: Scopes = SCOPES, rows: int = ROWS
) -> list[Episode]:
    plays = [
        play(TASK, program, one.team, record, scopes, judge=judge, salts=fork(decision, row)) for row in range(rows)
    ]
    return list(await asyncio.gather(*plays))


@settings(max_examples=80, deadline=None)
@given(steps=programs(optional_only=True), order=seeds, decision=st.sampled_from([0, 0, 1, 2]))
def test_a_fork_shares_exactly_what_does_not_depend_on_the_decision(steps: Steps, order: int, decision: int) -> None:
    one = stage(MEMBERS, "pilot", order=order, outages=0.3)
    dependence = Dependence("pilot", decision)
    dependence.walk(steps)
    with journal() as record:
        rows = run(group(one, played(steps), record, decision))
    for position, depends in dependence.depends.items():
        turns = [next(p.turn for p in row.turns if p.position == position) for row in rows]
        keys = {turn.key for turn in turns}
        if not depends:
            assert len(keys) == 1
        elif turns[0].member != "cold":
            assert len(keys) == ROWS
        else:
            assert len(keys) == len({str(turn.messages) for turn in turns})
    assert one.calls == len({placed.turn.key for row in rows for placed in row.turns})


@settings(max_examples=60, deadline=None)
@given(steps=programs(), order=seeds, decision=st.sampled_from([0, 1]), temperature=st.sampled_from([0.0, 1.0]))
def test_rows_of_a_group_have_equal_prompts(steps: Steps, order: int, decision: int, temperature: float) -> None:
    one = stage({**MEMBERS, "pilot": temperature}, "pilot", order=order, outages=0.2)
    with journal() as record:
        rows = run(group(one, played(steps), record, decision))
        check_group(rows, decision)
        for row, number in zip(rows, range(ROWS), strict=True):
            salts = fork(decision, number)
            again = run(replay(row.id, TASK, played(steps), one.team.members, record, SCOPES, salts=salts))
            assert again.turns == row.turns
    prompts = [[placed.turn.messages for placed in row.decisions(decision)] for row in rows]
    assert prompts[0] == prompts[1] == prompts[2]


def test_a_group_whose_rows_differ_before_the_decision_is_reported_with_the_call() -> None:
    numbers = itertools.count()

    @topology
    async def restless(task: Task, room):
        draft = await room.ask("warm", f"attempt {next(numbers)}")
        return await room.ask("pilot", draft.text)

    one = stage(MEMBERS, "pilot")
    with journal() as record:
        rows = run(group(one, restless, record, 0))
    with pytest.raises(
        ReplayMismatch, match=r"call 0: warm is asked something else\n(?s:.*)\+user: attempt 1"
    ) as error:
        check_group(rows, 0)
    assert error.value.position == (0,)


@settings(max_examples=40, deadline=None)
@given(steps=programs(optional_only=True), order=seeds, temperature=st.sampled_from([0.0, 1.0]))
def test_newer_weights_are_never_answered_with_older_words(steps: Steps, order: int, temperature: float) -> None:
    one = stage({**MEMBERS, "pilot": temperature}, "pilot", order=order)
    with journal() as record, journal() as kept:
        for version in (1, 2, 3):
            one.speakers["pilot"].version = version
            episode = run(play(TASK, played(steps), one.team, record, SCOPES, judge=judge, kept=kept))
            assert all(f"v{version} " in placed.turn.text for placed in episode.decisions())
            assert all(placed.turn.version == version for placed in episode.decisions())
            assert all(" v0 " in p.turn.text for p in episode.turns if p.turn.member not in ("pilot", "flaky"))


def test_a_call_in_flight_with_older_weights_does_not_answer_one_with_newer() -> None:
    class Policy:
        identity = None

        def __init__(self) -> None:
            self.version = 1
            self.gates = {1: asyncio.Event(), 2: asyncio.Event()}
            self.asked = {1: asyncio.Event(), 2: asyncio.Event()}

        async def complete(self, messages, sampling, seed):
            version = self.version
            self.asked[version].set()
            await self.gates[version].wait()
            return Completion(f"v{version}", "stop", Usage())

        async def close(self) -> None: ...

    async def both(record: Journal) -> list[Episode]:
        policy = Policy()
        team = Team(stage({"pilot": 1.0}, "pilot").team.members, {"pilot": policy})
        program = played((Ask("pilot", "say"),))
        older = asyncio.create_task(play(TASK, program, team, record, SCOPES, judge=judge))
        await policy.asked[1].wait()
        policy.version = 2
        newer = asyncio.create_task(play(TASK, program, team, record, SCOPES, judge=judge))
        await policy.asked[2].wait()
        policy.gates[2].set()
        policy.gates[1].set()
        return [await older, await newer]

    with journal() as record:
        assert [episode.answer for episode in run(both(record))] == ["v1", "v2"]


def test_later_decisions_are_fresh_on_each_branch_and_earlier_ones_shared() -> None:
    steps: Steps = (Ask("pilot", "a"), Ask("warm", "b"), Ask("pilot", "c"), Ask("pilot", "d"))
    one = stage(MEMBERS, "pilot")
    with journal() as record:
        rows = run(group(one, played(steps), record, 1))
    assert [len({row.turns[at].turn.key for row in rows}) for at in range(4)] == [1, 1, ROWS, ROWS]
    assert [placed.depth for placed in rows[0].turns] == [0, 1, 1, 2]
    assert [placed.salt for placed in rows[2].turns] == [(), (), ("1.2",), ("1.2",)]


def test_the_next_prefix_is_a_branch_of_the_group_before() -> None:
    steps: Steps = (Ask("pilot", "a"), Ask("warm", "b"), Ask("pilot", "c"), Ask("warm", "d"))
    one = stage(MEMBERS, "pilot")

    async def chained(record: Journal) -> tuple[list[Episode], list[Episode]]:
        first = await group(one, played(steps), record, 0)
        plays = [
            play(TASK, played(steps), one.team, record, SCOPES, judge=judge, salts=fork(1, row, fork(0, 2)))
            for row in range(ROWS)
        ]
        return first, list(await asyncio.gather(*plays))

    with journal() as record:
        first, second = run(chained(record))
    check_group(second, 1)
    assert {row.turns[0].turn.key for row in second} == {first[2].turns[0].turn.key}
    assert {row.turns[1].turn.key for row in second} == {first[2].turns[1].turn.key}
    assert len({row.turns[2].turn.key for row in [*first, *second]}) == 2 * ROWS
    assert one.calls == 4 * ROWS + 2 * ROWS


def test_continuations_of_a_row_share_the_decision_and_differ_after_it() -> None:
    steps: Steps = (Ask("warm", "a"), Ask("pilot", "b"), Ask("warm", "c"))
    one = stage(MEMBERS, "pilot")

    async def continued(record: Journal) -> list[Episode]:
        plays = [
            play(TASK, played(steps), one.team, record, SCOPES, judge=judge, salts=fork(0, row), then=then)
            for row in range(2)
            for then in ("", "answer 1", "answer 2")
        ]
        return list(await asyncio.gather(*plays))

    with journal() as record:
        episodes = run(continued(record))
    assert [len({episode.turns[at].turn.key for episode in episodes}) for at in range(3)] == [1, 2, 6]
    assert one.calls == 9


def test_a_decision_on_one_branch_does_not_unshare_its_siblings_but_all_that_follows_the_gather() -> None:
    steps: Steps = (Gather(((Ask("pilot", "a"), Ask("warm", "b")), (Ask("warm", "c"),))), Ask("warm", "d"))
    one = stage(MEMBERS, "pilot")
    with journal() as record:
        rows = run(group(one, played(steps), record, 0))
    shared = {p.position: len({row.turns[at].turn.key for row in rows}) for at, p in enumerate(rows[0].turns)}
    assert shared == {(0, 0, 0): ROWS, (0, 0, 1): ROWS, (0, 1, 0): 1, (1,): ROWS}


def test_stored_answers_are_shared_between_steps_and_the_trainees_are_not() -> None:
    steps: Steps = (Ask("warm", "draft"), Ask("pilot", "criticise"), Ask("warm", "revise"))
    one = stage(MEMBERS, "pilot")
    with journal() as record:
        for step in range(3):
            run(group(one, played(steps), record, 0, Scopes(f"train/{step}/sum", stored="stored/sum/0")))
    drafts = [asked for asked in one.speakers["warm"].asked if asked[0]["content"].startswith("draft")]
    assert len(drafts) == 1
    assert len(one.speakers["pilot"].asked) == 3 * ROWS


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_members_on_the_same_model_are_different_callers(temperature: float) -> None:
    one = stage({"left": temperature, "right": temperature})
    with journal() as record:
        episode = run(play(TASK, played((Ask("left", "a"), Ask("right", "a"))), one.team, record, SCOPES, judge=judge))
    assert len({placed.turn.key for placed in episode.turns}) == 2


def test_branches_ask_apart_and_draws_are_one_pool() -> None:
    one = stage({"warm": 1.0})
    apart: Steps = (Gather(((Ask("warm", "a"),), (Ask("warm", "a"),))), Ask("warm", "a", listens=False))
    pool: Steps = (
        Gather(((Ask("warm", "b", draw=0),), (Ask("warm", "b", draw=1),))),
        Ask("warm", "b: ", draw=1, listens=False),
    )
    with journal() as record:
        assert (
            len({p.turn.key for p in run(play(TASK, played(apart), one.team, record, SCOPES, judge=judge)).turns}) == 3
        )
        drawn = run(play(TASK, played(pool), one.team, record, SCOPES, judge=judge))
    assert [p.turn.key for p in drawn.turns][1:] == [drawn.turns[1].turn.key] * 2
    assert drawn.usage()["warm"] == Usage(20, 2)


def test_deterministic_answers_outlive_the_run_where_the_deployment_has_a_name() -> None:
    steps: Steps = (Ask("cold", "a"), Ask("warm", "b"))
    one = stage({"cold": 0.0, "warm": 1.0})
    with journal() as kept:
        for deployment, calls in [(None, 1), (None, 2), ("model@1", 3), ("model@1", 3), ("model@2", 4)]:
            one.speakers["cold"].identity = deployment
            with journal() as record:
                episode = run(play(TASK, played(steps), one.team, record, SCOPES, judge=judge, kept=kept))
                assert run(replay(episode.id, TASK, played(steps), one.team.members, record, SCOPES)) == episode
            assert len(one.speakers["cold"].asked) == calls
        assert {turn.member for turn in kept.turns()} == {"cold"}
        assert len(list(kept.turns())) == 2


def test_a_copy_of_a_kept_answer_is_charged_and_not_called_unused() -> None:
    one = stage({"cold": 0.0})
    one.speakers["cold"].identity = "model@1"
    with journal() as kept, journal() as record:
        for _ in range(2):
            episode = run(play(TASK, played((Ask("cold", "a"),)), one.team, record, SCOPES, judge=judge, kept=kept))
            other = run(
                play(TASK, played((Ask("cold", "a"),)), one.team, record, Scopes("sum/9"), judge=judge, kept=kept)
            )
            assert episode.usage() == other.usage() == {"cold": Usage(10, 1)}
            assert episode.unused == other.unused == ()
    assert one.calls == 1


def test_an_outage_at_temperature_0_stands_for_its_group_and_not_for_the_run() -> None:
    answers = iter([None, "4"])

    class Recovering:
        identity, version, calls = "model@1", 0, 0

        async def complete(self, messages, sampling, seed):
            self.calls += 1
            text = next(answers)
            if text is None:
                raise CallFailed("down")
            return Completion(text, "stop", Usage())

        async def close(self) -> None: ...

    engine = Recovering()
    team = Team(stage({"cold": 0.0}).team.members, {"cold": engine})
    program = played((Ask("cold", "a", optional=True),))
    with journal() as record, journal() as kept:
        first, again, later = (
            run(play(TASK, program, team, record, Scopes(scope), judge=judge, kept=kept, arm=arm))
            for scope, arm in [("step 1", ""), ("step 1", "b"), ("step 2", "")]
        )
        assert [episode.answer for episode in (first, again, later)] == ["(absent)", "(absent)", "4"]
        assert engine.calls == 2
        replayed = run(replay(first.id, TASK, program, team.members, record, Scopes("step 1")))
        assert replayed.answer == "(absent)"
        assert [(placed.turn.outcome, placed.turn.error) for placed in replayed.turns] == [("absent", "down")]


def test_an_episodes_name_tells_forks_arms_and_continuations_apart() -> None:
    program = played((Ask("warm", "a"),))
    names = {
        episode_id(program, SCOPES, salts, arm=arm, then=then)
        for salts in (None, fork(0, 0), fork(0, 1), fork(1, 0, fork(0, 1)))
        for arm in ("", "trained")
        for then in ("", "answer 1")
    }
    assert len(names) == 16
    assert episode_id(program, SCOPES) == "train/1/sum|random_topology"


def test_a_team_has_one_trainee_at_most_and_an_engine_for_each_member() -> None:
    one, two = stage({"a": 1.0}, "a").team, stage({"b": 1.0}, "b").team
    with pytest.raises(ValueError, match="one trainee at most; this one has a, b"):
        Team({**one.members, **two.members}, {**one.engines, **two.engines})
    with pytest.raises(ValueError, match="no engine for a; there are engines for: b"):
        Team(one.members, two.engines)
