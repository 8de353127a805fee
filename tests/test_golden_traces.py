"""Golden traces: what a group of 8 shares, what it asks per row, and who sees what, topology by topology."""

from __future__ import annotations

import asyncio
from collections import Counter

from pilotfish.episode import Episode, Journal, Scopes, check_group, fork, play
from pilotfish.task import Task
from pilotfish.topology import Topology, critic, hint, solo, topology
from pilotfish.topology import leader as leading
from stage import Speaker, Stage, journal, judge, run, stage

TASK = Task("sum", "What is 2 + 2?", "4", instruction="Box it.")
G = 8
AGENTS = ("ann", "bob", "cy")


async def group(one: Stage, program: Topology, record: Journal, decision: int, step: int = 0) -> list[Episode]:
    scopes = Scopes(f"train/{step}/sum", seed=1, stored="stored/sum" if program.name == "leader" else None)
    plays = [play(TASK, program, one.team, record, scopes, judge=judge, salts=fork(decision, row)) for row in range(G)]
    rows = list(await asyncio.gather(*plays))
    check_group(rows, decision)
    return rows


def calls(one: Stage) -> dict[str, int]:
    return {name: len(speaker.asked) for name, speaker in one.speakers.items()}


def seen(episode: Episode, at: int) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in episode.turns[at].turn.messages]


def words(speaker: Speaker) -> list[str]:
    return [asked[-1]["content"] for asked in speaker.asked]


# -- hint


def test_hint_shares_nothing_and_the_actor_sees_the_hint_with_the_question() -> None:
    one = stage({"collaborator": 1.0, "actor": 1.0}, "collaborator")
    with journal() as record:
        rows = run(group(one, hint, record, 0))
    assert calls(one) == {"collaborator": G, "actor": G}
    for row in rows:
        assert seen(row, 0) == [
            (
                "system",
                "You advise another model that will solve the user's problem. Give one short, concrete hint. "
                "Do not solve the problem and do not state the final answer.",
            ),
            ("user", "What is 2 + 2?"),
        ]
        assert seen(row, 1) == [("user", f"What is 2 + 2?\n(Hint: {row.turns[0].turn.text})\nBox it.")]
        assert row.answer == row.turns[1].turn.text
        assert [placed.final for placed in row.turns] == [False, True]
    assert len({row.answer for row in rows}) == G


def test_hint_asks_a_greedy_actor_once_per_different_hint() -> None:
    one = stage({"collaborator": 1.0, "actor": 0.0}, "collaborator")
    one.speakers["collaborator"] = speaker = one.speakers["collaborator"]
    answer, hints = speaker.complete, iter(["add", "count", "add", "add", "count", "think", "add", "add"])

    async def repeating(messages, sampling, seed):
        done = await answer(messages, sampling, seed)
        return type(done)(next(hints), "stop", done.usage)

    speaker.complete = repeating  # type: ignore[method-assign]
    with journal() as record:
        rows = run(group(one, hint, record, 0))
    assert calls(one) == {"collaborator": G, "actor": 3}
    assert sorted(words(one.speakers["actor"])) == [
        f"What is 2 + 2?\n(Hint: {text})\nBox it." for text in ("add", "count", "think")
    ]
    assert Counter(row.turns[0].turn.text for row in rows) == {"add": 5, "count": 2, "think": 1}


# -- critic


def test_critic_shares_the_draft_and_asks_nine_frozen_calls() -> None:
    one = stage({"collaborator": 1.0, "actor": 1.0}, "collaborator")
    with journal() as record:
        rows = run(group(one, critic, record, 0))
    assert calls(one) == {"collaborator": G, "actor": 1 + G}
    drafts = {row.turns[0].turn.text for row in rows}
    assert len(drafts) == 1
    (draft,) = drafts
    for row in rows:
        assert seen(row, 0) == [("user", "What is 2 + 2?\nBox it.")]
        assert seen(row, 1)[1] == ("user", f"Problem: What is 2 + 2?\n\nSolution:\n{draft}")
        comment = row.turns[1].turn.text
        assert seen(row, 2) == [
            (
                "user",
                f"Problem: What is 2 + 2?\n\nYour solution:\n{draft}\n\nComment on it:\n{comment}\n\n"
                "Review your solution in the light of the comment, mend what is wrong and answer again. Box it.",
            )
        ]
        assert row.answer == row.turns[2].turn.text


def test_critic_with_two_rounds_trains_the_second_comment_on_one_shared_revision() -> None:
    one = stage({"collaborator": 1.0, "actor": 1.0}, "collaborator")
    with journal() as record:
        rows = run(group(one, critic.bind(rounds=2), record, 1))
    assert calls(one) == {"collaborator": 1 + G, "actor": 2 + G}
    assert all(row.turns[2].turn.text in seen(row, 3)[1][1] for row in rows)


def test_the_draft_of_critic_is_solos_answer_and_each_method_is_charged_for_it() -> None:
    one = stage({"collaborator": 1.0, "actor": 1.0}, "collaborator")
    scopes = Scopes("eval/sum/0")
    with journal() as record:
        alone = run(play(TASK, solo, one.team, record, scopes, judge=judge))
        team = run(play(TASK, critic, one.team, record, scopes, judge=judge))
    assert team.turns[0].turn.key == alone.turns[0].turn.key
    assert calls(one) == {"collaborator": 1, "actor": 2}
    assert (alone.usage()["actor"].total, team.usage()["actor"].total) == (11, 22)


# -- leader


leader = leading.bind(prompts={"solve": {"user": "{question}"}, "lead": {"user": "{question}\n{answers}"}})


def read(answers: list[str]) -> str:
    return "\n\n".join(f"Answer of agent {number}:\n{answer}" for number, answer in enumerate(answers, 1))


def revised(own: str, view: str) -> str:
    return (
        f"Problem: What is 2 + 2?\n\nYour answer:\n{own}\n\nThe team leader's view:\n{view}\n\n"
        "Reflect on both, mend what is wrong and answer again. Box it."
    )


def leader_stage() -> Stage:
    return stage({**dict.fromkeys(AGENTS, 0.7), "leader": 1.0}, "leader", order=5)


def test_leader_on_a_stored_set_asks_no_frozen_call_after_the_first_step() -> None:
    one = leader_stage()
    with journal() as record:
        first = run(group(one, leader, record, 0, step=0))
        assert calls(one) == {**dict.fromkeys(AGENTS, 1), "leader": G}
        second = run(group(one, leader, record, 0, step=1))
    assert calls(one) == {**dict.fromkeys(AGENTS, 1), "leader": 2 * G}
    answers = [placed.turn.text for placed in first[0].turns[:3]]
    assert {tuple(seen(row, 3)) for row in [*first, *second]} == {(("user", "What is 2 + 2?\n" + read(answers)),)}


def test_leader_of_three_rounds_shares_up_to_its_second_turn() -> None:
    one = leader_stage()
    with journal() as record:
        rows = run(group(one, leader.bind(rounds=3), record, 1))
    # Round 0, the leader's turn 0 and round 1 once; the leader's turn 1, round 2 and the leader's turn 2 for each row.
    assert calls(one) == {**dict.fromkeys(AGENTS, 1 + 1 + G), "leader": 1 + G + G}
    texts = [[placed.turn.text for placed in row.turns] for row in rows]
    assert [len({row[at] for row in texts}) for at in range(12)] == [1] * 7 + [G] * 5
    for row, said in zip(rows, texts, strict=True):
        assert seen(row, 5) == [("user", revised(said[1], said[3]))]
        assert seen(row, 7) == [("user", "What is 2 + 2?\n" + read(said[4:7]))]
        assert seen(row, 10) == [("user", revised(said[6], said[7]))]
        assert row.answer == said[11]


# -- debate


@topology
async def debate(task: Task, room, *, rounds: int = 2):
    """Each round every seat sees the others' latest answers."""
    heard: list[str] = []
    for _ in range(1 + rounds):
        chats = [
            "\n".join([task.question, *(text for seat, text in enumerate(heard) if seat != own)]) for own in range(3)
        ]
        turns = await room.gather(*(room.ask(seat, chat) for seat, chat in zip(AGENTS, chats, strict=True)))
        heard = [turn.text for turn in turns]
    return heard[0]


def test_debate_with_a_trained_seat_shares_round_0_and_the_others_of_round_1() -> None:
    one = stage(dict.fromkeys(AGENTS, 1.0), "bob", order=7)
    with journal() as record:
        rows = run(group(one, debate, record, 1))
    # The seat's round 1 and every answer after it are asked per row; the two beside it do not depend on it.
    assert calls(one) == {"ann": 1 + 1 + G, "bob": 1 + G + G, "cy": 1 + 1 + G}
    texts = [[placed.turn.text for placed in row.turns] for row in rows]
    assert [len({row[at] for row in texts}) for at in range(9)] == [1, 1, 1, 1, G, 1, G, G, G]
    for row, said in zip(rows, texts, strict=True):
        assert seen(row, 0) == [("user", "What is 2 + 2?")]
        assert seen(row, 4) == [("user", f"What is 2 + 2?\n{said[0]}\n{said[2]}")]
        assert seen(row, 6) == [("user", f"What is 2 + 2?\n{said[4]}\n{said[5]}")]


# -- self-consistency


@topology
async def self_consistency(task: Task, room, *, n: int = 5):
    turns = await room.gather(*(room.ask("actor", solo.defaults()["prompts"].solve(task), draw=i) for i in range(n)))
    return Counter(turn.text for turn in turns).most_common(1)[0][0]


def test_self_consistency_asks_n_answers_and_solos_is_its_draw_0() -> None:
    one = stage({"actor": 0.7})
    scopes = Scopes("eval/sum/0")
    with journal() as record:
        alone = run(play(TASK, solo, one.team, record, scopes, judge=judge))
        assert calls(one) == {"actor": 1}
        votes = run(play(TASK, self_consistency, one.team, record, scopes, judge=judge))
        assert calls(one) == {"actor": 5}
        more = run(play(TASK, self_consistency.bind(n=7), one.team, record, scopes, judge=judge))
        assert calls(one) == {"actor": 7}
        run(play(TASK, solo, one.team, record, Scopes("eval/sum/1"), judge=judge))
        assert calls(one) == {"actor": 8}
    texts = [placed.turn.text for placed in votes.turns]
    assert texts[0] == alone.answer
    assert len(set(texts)) == 5
    assert [placed.turn.text for placed in more.turns][:5] == texts
    assert set(words(one.speakers["actor"])) == {"What is 2 + 2?\nBox it."}
    assert votes.usage()["actor"].total == 5 * alone.usage()["actor"].total
