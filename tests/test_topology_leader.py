"""The leader and its team: who sees whose words, what is shown of them, who may be missing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from pilotfish import Journal, Member, Sampling, Scopes, ScriptedEngine, Task, Team, Turn, Usage, Verdict, play
from pilotfish.engine.base import CallFailed, Completion
from pilotfish.topology import Topology, alone, leader
from pilotfish.topology.share import cut, shared, without_result
from stage import journal, run

TASK = Task("sum", "What is 2 + 2?", "4", instruction="Box it.")
PROMPTS = {"lead": {"user": "Q {question}\n{answers}"}, "revise": {"user": "Q {question} OWN {own} LEAD {leader}"}}
LEADER = leader.bind(prompts=PROMPTS)


async def tagged(task: Task, answer: str, form: str) -> Verdict:
    assert form == "answer_tag"
    return Verdict(float(f"<answer>{task.answer}</answer>" in answer), answer)


def team(agents: dict[str, Any], says: Any = "<think>so</think><answer>4</answer>", temperature: float = 0.7) -> Team:
    """A leader who is trained, and agents by what they say."""
    engines = {name: engine(reply) for name, reply in agents.items()}
    members = {name: Member(name, "scripted", sampling=Sampling(temperature=temperature)) for name in agents}
    members["leader"] = Member("leader", "scripted", trainee=True)
    return Team(members, {**engines, "leader": engine(says)})


def engine(reply: Any) -> Any:
    if hasattr(reply, "complete"):
        return reply
    return ScriptedEngine(reply if callable(reply) else lambda messages, sampling, seed: reply)


def played(topology: Topology, seats: Team, record: Journal, scope: str = "eval/x/sum/0") -> Any:
    return run(play(TASK, topology, seats, record, Scopes(scope), judge=tagged))


def asked(episode: Any, member: str) -> list[str]:
    return [place.turn.messages[-1]["content"] for place in episode.turns if place.turn.member == member]


def counting(name: str) -> Callable[..., str]:
    numbers = itertools.count()
    return lambda messages, sampling, seed: f"{name}{next(numbers)}"


class Silent:
    """An agent whose every call fails, or every call but the first."""

    identity, version = None, 0

    def __init__(self, answers: int = 0) -> None:
        self.left = answers

    async def complete(self, messages: Any, sampling: Any, seed: int) -> Completion:
        self.left -= 1
        if self.left < 0:
            raise CallFailed("timed out")
        return Completion("here", "stop", Usage(1, 1))

    async def close(self) -> None:
        """Nothing is held."""


def test_agents_answer_the_leader_reads_the_agents_revise_and_the_answer_is_the_leaders_last() -> None:
    says = ScriptedEngine(counting("L"))
    with journal() as record:
        episode = played(LEADER.bind(rounds=2), team({"a": counting("a"), "b": counting("b")}, says), record)
    assert asked(episode, "a") == ["What is 2 + 2?\nBox it.", "Q What is 2 + 2? OWN a0 LEAD L0"]
    assert asked(episode, "b") == ["What is 2 + 2?\nBox it.", "Q What is 2 + 2? OWN b0 LEAD L0"]
    assert asked(episode, "leader") == [
        "Q What is 2 + 2?\nAnswer of agent 1:\na0\n\nAnswer of agent 2:\nb0",
        "Q What is 2 + 2?\nAnswer of agent 1:\na1\n\nAnswer of agent 2:\nb1",
    ]
    assert episode.answer == "L1"
    assert [place.final for place in episode.turns] == [False] * 5 + [True]


@pytest.mark.parametrize("size", [1, 16])
def test_one_agent_and_sixteen_work(size: int) -> None:
    agents = {f"a{n}": f"I say {n}" for n in range(size)}
    with journal() as record:
        episode = played(LEADER.bind(rounds=2), team(agents), record)
    assert len(episode.turns) == 2 * size + 2
    assert all(f"Answer of agent {n + 1}:\nI say {n}" in asked(episode, "leader")[0] for n in range(size))
    assert episode.verdict.reward == 1.0


def test_copies_of_one_agent_answer_for_themselves_and_the_first_shares_solos_answer() -> None:
    with journal() as record:
        seats = team({"a": counting("a")})
        episode = played(LEADER.bind(agents=["a", "a", "a"], rounds=2), seats, record)
        assert asked(episode, "leader")[0].endswith("agent 1:\na0\n\nAnswer of agent 2:\na1\n\nAnswer of agent 3:\na2")
        assert len(set(asked(episode, "a"))) == 4, "one question, three revisions of three answers"


def test_an_agent_that_times_out_is_shown_as_absent_and_speaks_again_from_its_last_answer() -> None:
    with journal() as record:
        episode = played(LEADER.bind(rounds=3), team({"a": "yes", "b": Silent(answers=1), "c": Silent()}), record)
    first, second, _ = asked(episode, "leader")
    assert "agent 2:\nhere" in first
    assert "agent 3:\n(no answer)" in first
    assert "agent 2:\n(no answer)" in second
    assert "OWN here" in asked(episode, "b")[2], "its last answer, not the missing one"
    assert episode.verdict.reward == 1.0
    assert sum(place.turn.outcome == "absent" for place in episode.turns) == 5


def test_a_team_that_is_absent_as_a_whole_has_no_verdict() -> None:
    with journal() as record:
        episode = played(LEADER, team({"a": Silent(), "b": Silent()}), record)
    assert episode.verdict.reward is None
    assert "timed out" in episode.verdict.why
    assert asked(episode, "leader") == []


def test_the_order_of_answers_is_as_listed_by_name_or_drawn_for_the_group() -> None:
    agents = {"c": "sea", "a": "hay", "b": "bee"}
    with journal() as record:
        orders = {
            order: asked(played(LEADER.bind(order=order), team(agents), record), "leader")[0]
            for order in ("fixed", "member")
        }
        drawn = [
            asked(played(LEADER.bind(order="shuffled"), team(agents), record, f"s{n}"), "leader")[0] for n in range(12)
        ]
        again = asked(played(LEADER.bind(order="shuffled"), team(agents), record, "s3"), "leader")[0]
    assert [orders["fixed"].index(word) for word in ("sea", "hay", "bee")] == sorted(
        orders["fixed"].index(word) for word in ("sea", "hay", "bee")
    )
    assert orders["member"].index("hay") < orders["member"].index("bee") < orders["member"].index("sea")
    assert len(set(drawn)) > 2
    assert again == drawn[3]


def test_what_is_shared_is_the_response_its_reasoning_or_its_result() -> None:
    text = "2 + 2 makes 4. So the answer is \\boxed{4}."
    with journal() as record:
        shown = {
            share: asked(played(LEADER.bind(share=share), team({"a": text}), record, share), "leader")[0]
            for share in ("full", "reasoning", "answer")
        }
    assert shown["full"].endswith(text)
    assert shown["answer"].endswith("agent 1:\n4")
    assert "2 + 2 makes 4" in shown["reasoning"]
    assert "boxed{4}" not in shown["reasoning"]


def test_a_response_without_a_result_is_shown_whole_as_reasoning_and_named_as_having_none() -> None:
    turn = _turn("")
    assert shared(turn, "answer", None) == "(no result)"
    assert without_result("<think>on and on") == "<think>on and on"


def test_a_long_answer_loses_its_middle_with_a_mark() -> None:
    text = "begin " + "x" * 4000 + " end"
    short = shared(_turn(text, tokens=1000), "full", 100)
    assert short.startswith("begin")
    assert short.endswith("end")
    assert "[… about 900 tokens left out …]" in short
    assert len(short) < 500
    assert shared(_turn(text, tokens=1000), "full", 1000) == text
    assert shared(_turn(text, tokens=1000), "full", None) == text
    assert cut("x" * 100, 10, 4.0).startswith("x" * 20 + "\n[…")
    assert cut("abcdef", 1, 2.0) == "abcdef", "a mark is longer than what it would save"


def test_the_result_is_cut_out_where_it_was_read_and_nothing_else() -> None:
    assert without_result("The answer is 4. We have 14 apples.") == "The answer is …. We have 14 apples."
    assert without_result("2 + 2 = 4, so \\boxed{4} as 4 says") == "2 + 2 = 4, so \\boxed{…} as 4 says"
    assert without_result("No idea at all") == "No idea at all"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"share": "half"}, "share is 'half'"),
        ({"order": "random"}, "order is 'random'"),
        ({"budget": 0}, "budget is 0"),
        ({"agents": []}, "has no agents"),
        ({"agents": "a"}, r"agents is 'a'; give a list, \[a\]"),
    ],
)
def test_an_option_that_is_wrong_is_named(options: dict[str, Any], why: str) -> None:
    with journal() as record, pytest.raises(ValueError, match=why):
        played(LEADER.bind(**options), team({"a": "yes"}), record)


def test_the_leader_works_alone_in_the_same_form() -> None:
    with journal() as record:
        episode = played(alone, team({"a": "yes"}), record)
    assert len(episode.turns) == 1
    assert "<answer>" in asked(episode, "leader")[0]
    assert episode.verdict.reward == 1.0


def _turn(text: str, tokens: int = 0) -> Turn:
    done = Completion(text, "stop", Usage(1, tokens))
    return Turn("k", "s", "a", 0, [], Sampling(), "answered", done)
