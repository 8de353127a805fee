"""Vote: whose draws are whose, who wins, and what of it a verifier reads."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pilotfish import Journal, Sampling, Scopes, ScriptedEngine, Task, Team, Verdict, play, replay
from pilotfish.engine.scripted import Reply
from pilotfish.episode import Episode
from pilotfish.team import Member
from pilotfish.topology import Topology, leader, solo, vote
from pilotfish.verify.registry import quick_judge
from stage import journal, run, stage
from stage import judge as always_right

TASK = Task("sum", "What is 2 + 2?", "4", instruction="Box it.")


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return quick_judge(task, answer, form) or Verdict(0.0, None, "left to algebra")


def team(temperature: float = 1.0, **replies: Reply | Mapping[str, str] | Sequence[str]) -> Team:
    sampling = Sampling(temperature=temperature)
    return Team(
        {name: Member(name, "scripted", sampling=sampling) for name in replies},
        {name: ScriptedEngine(reply) for name, reply in replies.items()},
    )


def played(program: Topology, seats: Team, folder: Path, task: Task = TASK) -> Episode:
    async def once() -> Episode:
        record = Journal(folder)
        scopes = Scopes("eval/sum/0")
        episode = await play(task, program, seats, record, scopes, judge=judge)
        await replay(episode.id, task, program, seats.members, record, scopes)
        return episode

    return asyncio.run(once())


# -- whose draws


def test_solos_answer_is_draw_0_and_a_larger_vote_asks_only_what_is_new() -> None:
    one, scopes = stage({"actor": 0.7}), Scopes("eval/sum/0")
    with journal() as record:
        single = run(play(TASK, solo, one.team, record, scopes, judge=always_right))
        five = run(play(TASK, vote, one.team, record, scopes, judge=always_right))
        assert len(one.speakers["actor"].asked) == 5
        seven = run(play(TASK, vote.bind(samples=7), one.team, record, scopes, judge=always_right))
        assert len(one.speakers["actor"].asked) == 7
    texts = [[placed.turn.text for placed in episode.turns] for episode in (single, five, seven)]
    assert (texts[1][:1], texts[2][:5], len(set(texts[2]))) == (texts[0], texts[1], 7)
    assert {asked[-1]["content"] for asked in one.speakers["actor"].asked} == {"What is 2 + 2?\nBox it."}
    assert not any(placed.final for placed in five.turns), "the answer is known when all have spoken"


def test_members_take_turns_with_draws_of_their_own() -> None:
    one, scopes = stage({"ann": 0.7, "bob": 0.7, "cy": 0.7}), Scopes("eval/sum/0")
    with journal() as record:
        bob = run(play(TASK, solo.bind(member="bob"), one.team, record, scopes, judge=always_right))
        program = vote.bind(members=["ann", "bob", "cy"], samples=7)
        all_three = run(play(TASK, program, one.team, record, scopes, judge=always_right))
    assert [placed.turn.member for placed in all_three.turns] == ["ann", "bob", "cy", "ann", "bob", "cy", "ann"]
    assert all_three.turns[1].turn.key == bob.turns[0].turn.key
    assert len({placed.turn.key for placed in all_three.turns}) == 7


def test_a_member_named_twice_votes_twice() -> None:
    one = stage({"ann": 0.7, "bob": 0.7})
    with journal() as record:
        program = vote.bind(members=["ann", "ann", "bob"], samples=3)
        episode = run(play(TASK, program, one.team, record, Scopes("s"), judge=always_right))
    assert len({placed.turn.key for placed in episode.turns}) == 3


def test_a_team_that_votes_plays_twice_and_its_first_agents_answers_are_the_single_teams() -> None:
    one = stage({**dict.fromkeys(("ann", "bob", "cy"), 0.7), "leader": 0.7})
    scopes, options = Scopes("eval/sum/0"), {"rounds": 5}
    with journal() as record:
        single = run(play(TASK, leader.bind(**options), one.team, record, scopes, judge=always_right))
        program = vote.bind(of="leader", samples=2, options=options)
        both = run(play(TASK, program, one.team, record, scopes, judge=always_right))
    assert (len(single.turns), len(both.turns)) == (20, 40)
    assert len({placed.turn.key for placed in both.turns}) == 40
    assert [p.turn.key for p in both.turns[:3]] == [p.turn.key for p in single.turns[:3]]
    calls = Counter(placed.turn.member for placed in both.turns)
    assert calls == {"ann": 10, "bob": 10, "cy": 10, "leader": 10}


def test_each_play_shuffles_in_its_own_way_and_the_first_as_the_single_team() -> None:
    one = stage({**dict.fromkeys(("ann", "bob", "cy"), 0.7), "leader": 0.7})
    options = {"rounds": 5, "order": "shuffled"}
    with journal() as record:
        programs = leader.bind(**options), vote.bind(of="leader", samples=2, options=options)
        single, both = (run(play(TASK, p, one.team, record, Scopes("s"), judge=always_right)) for p in programs)
    read = [
        re.findall("(ann|bob|cy) v0", placed.turn.messages[-1]["content"])
        for placed in (*single.turns, *both.turns)
        if placed.turn.member == "leader"
    ]
    assert read[:5] == read[5:10] != read[10:]


def test_copies_of_an_agent_keep_their_own_draws_in_each_play() -> None:
    one = stage({"ann": 0.7, "leader": 0.7})
    with journal() as record:
        program = vote.bind(of="leader", samples=3, options={"agents": ["ann", "ann"]})
        episode = run(play(TASK, program, one.team, record, Scopes("s"), judge=always_right))
    assert len({p.turn.text for p in episode.turns if p.turn.member == "ann"}) == 6


# -- who wins


@pytest.mark.parametrize(
    ("said", "answer", "reward"),
    [
        (["It is 5.", "\\boxed{4}", "The answer is 4.0."], "\\boxed{4}", 1.0),
        (["It is 5.", "\\boxed{4}", "It is 6."], "It is 5.", 0.0),
        (["", "", "\\boxed{4}"], "\\boxed{4}", 1.0),
        (["<think>it is 4", "<think>4", ""], "<think>it is 4", 0.0),
        (["\\boxed{9^{9^9}}", "\\boxed{4}", "\\boxed{4}"], "\\boxed{4}", 1.0),
    ],
)
def test_the_most_frequent_answer_wins_then_the_first(
    said: list[str], answer: str, reward: float, tmp_path: Path
) -> None:
    episode = played(vote.bind(samples=3), team(actor=said), tmp_path)
    assert (episode.answer, episode.verdict.reward) == (answer, reward)


def test_options_of_a_choice_are_counted_by_letter(tmp_path: Path) -> None:
    task = Task("sky", "Which colour?", "B", "choice", choices=("red", "blue"))
    episode = played(vote.bind(samples=3), team(actor=["(A)", "The answer is blue.", "**B**"]), tmp_path, task)
    assert (episode.answer, episode.verdict.reward) == ("The answer is blue.", 1.0)


def tagged(answer: str) -> str:
    return f"<think>Is it \\boxed{{7}}?</think><answer>{answer}</answer>"


@pytest.mark.parametrize(
    ("task", "said", "reward"),
    [
        (TASK, [tagged("5"), tagged("4"), tagged("\\boxed{4}")], 1.0),
        (TASK, [tagged("5"), tagged("4"), tagged("4") + " I hope"], 0.0),
        (TASK, ["It is 4.", "<answer>4", "4"], 0.0),
        (Task("e", "?", "] ) >", "exact"), [tagged("] ) >")] * 2 + [tagged("]")], 1.0),
        (Task("n", "?", "No", "exact", choices=("Yes", "No")), [tagged("No"), tagged("Yes"), tagged("no.")], 1.0),
        (Task("c", "?", "B", "choice", choices=("a. 1", "2")), [tagged("(B) 2"), tagged("A"), tagged("B")], 1.0),
    ],
)
def test_a_vote_over_tagged_answers_is_read_as_they_are(
    task: Task, said: list[str], reward: float, tmp_path: Path
) -> None:
    episode = played(vote.bind(of="alone", samples=3), team(leader=said), tmp_path, task)
    assert episode.verdict.reward == reward


def test_plays_in_which_nobody_answered_have_no_vote(tmp_path: Path) -> None:
    def outage(lost: int) -> ScriptedEngine:
        draws = iter(range(9))
        return ScriptedEngine(lambda m, s, seed: "\\boxed{4}", fail=lambda m, s, seed: next(draws) < lost)

    seats = team(ann=["\\boxed{4}"], leader=[tagged("4")] * 2)
    program = vote.bind(of="leader", samples=2)
    episode = played(program, Team(seats.members, {**seats.engines, "ann": outage(1)}), tmp_path / "one")
    assert episode.verdict.reward == 1.0
    episode = played(program, Team(seats.members, {**seats.engines, "ann": outage(2)}), tmp_path / "both")
    assert (episode.answer, episode.verdict.reward) == (None, None)


# -- bad options


def test_a_vote_of_equal_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"actor at temperature 0 .* set team.actor.sampling.temperature above 0"):
        played(vote, team(0.0, actor=["4"]), tmp_path / "one")
    with pytest.raises(ValueError, match="ann and leader at temperature 0 would give 2 times the same"):
        played(vote.bind(of="leader", samples=2), team(0.0, ann=["4"], leader=["4"]), tmp_path / "two")
    seats = team(0.0, ann=["\\boxed{5}"], bob=["\\boxed{4}"], cy=["4"])
    three = vote.bind(members=["ann", "bob", "cy"], samples=3)
    assert played(three, seats, tmp_path / "three").verdict.reward == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 0}, "samples is 0; give a whole number, 1 or more"),
        ({"samples": "many"}, "samples is 'many'; give a whole number, 1 or more"),
        ({"samples": True}, "samples is True; give a whole number"),
        ({"members": "ann"}, "members is 'ann'; give a list, or member: ann"),
        ({"member": "ann", "members": ["bob"]}, r"member is 'ann' and members is \['bob'\]; give one of the two"),
        ({"of": "choir"}, "topology 'choir': not one of"),
        ({"of": "leader", "member": "ann"}, "topology leader has no option 'member'"),
        ({"options": {"rounds": 2}}, "topology solo has no option 'rounds'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        played(vote.bind(**options), team(actor=["4"], ann=["4"]), tmp_path)


def test_prompts_of_the_topology_that_is_played_may_be_replaced(tmp_path: Path) -> None:
    prompts = {"think": {"user": "Think: {question}"}}
    seats = team(boss=[tagged("4")] * 2)
    episode = played(vote.bind(of="alone", samples=2, member="boss", options={"prompts": prompts}), seats, tmp_path)
    assert episode.turns[0].turn.messages[-1]["content"] == "Think: What is 2 + 2?"
    assert episode.verdict.reward == 1.0
