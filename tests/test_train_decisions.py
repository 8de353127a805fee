"""Which decisions are trained, and that each row is what the engine was asked and said, whatever the topology."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.engine.base import Completion
from pilotfish.episode import Scopes, Team, play
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.team import Messages, Sampling
from pilotfish.train.decisions import cautions, trained_decisions
from pilotfish.train.order import order
from pilotfish.train.profile import TrainConfig
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row, RowId
from stage import MEMBERS, TASK, Stage, Steps, journal, judge, played, programs, stage

SIZE = 3
WARM = {"temperature": 1.0, "max_tokens": 8}


def made(topology: Any, mix: Any = (), **train: Any) -> Recipe:
    actor = {"model": "scripted", "sampling": WARM}
    team = {"collaborator": {"model": "tiny", "train": "full"}, "actor": actor, "sampler": actor}
    return parse_recipe({"team": team, "topology": topology, "mix": mix, "train": train})


def found(recipe: Recipe) -> tuple[tuple[int, ...], ...]:
    assert isinstance(recipe.train, TrainConfig)
    return trained_decisions(recipe, recipe.train)


DEBATE = {"name": "debate", "options": {"agents": ["actor", "sampler", "collaborator"], "rounds": 3}}
CRITIC = {"name": "critic", "options": {"rounds": 2}}
LEADER = {"name": "leader", "options": {"leader": "collaborator", "rounds": 4}}


@pytest.mark.parametrize(
    ("topology", "count"),
    [
        ("hint", 1),
        ("roles", 1),
        (CRITIC, 2),
        (DEBATE, 3),
        (LEADER, 4),
        ({"name": "solo", "options": {"member": "collaborator"}}, 1),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else str(value),
)
def test_words_stand_for_the_decisions_that_a_topology_has(topology: Any, count: int) -> None:
    assert found(made(topology, decision="all")) == (tuple(range(count)),)
    assert found(made(topology, decision="last")) == ((count - 1,),)
    assert found(made(topology, decision="first")) == ((0,),)


def test_numbers_stand_as_they_are() -> None:
    assert found(made(CRITIC, decision=[1, 0])) == ((1, 0),)
    assert found(made(CRITIC, decision=5)) == ((5,),)
    assert found(made("hint", [CRITIC, DEBATE], decision=[0, 2])) == ((0, 2),) * 3


def test_in_a_mix_words_stand_for_the_decisions_of_each_topology() -> None:
    assert found(made("hint", [CRITIC, DEBATE], decision="all")) == ((0,), (0, 1), (0, 1, 2))
    assert found(made("hint", [CRITIC, DEBATE], decision="last")) == ((0,), (1,), (2,))


def told(recipe: Recipe) -> list[str]:
    assert isinstance(recipe.train, TrainConfig)
    return cautions(recipe, recipe.train)


def test_a_number_that_filler_does_not_come_to_is_told_for_each_topology_and_stands() -> None:
    assert told(made(CRITIC, decision=[1, 0])) == []
    assert told(made(CRITIC, decision="all")) == []
    (far,) = told(made(CRITIC, decision=[0, 99]))
    assert far.startswith("train.decision 99: where everyone says filler, critic(rounds=2) comes to 2 of collaborator")
    first, second, third = told(made("hint", [CRITIC, DEBATE], decision=[1, 2]))
    assert ("1: " in first, "2: " in second, "2: " in third) == (True, True, True)
    assert [line.count("hint") + 2 * line.count("critic") for line in (first, second, third)] == [1, 1, 2]
    assert told(made("critic", decision=5, horizon="decision")) == [], "it is played with as many rounds as it takes"


def test_a_router_that_filler_ends_early_is_trained_as_its_recipe_says(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    router = f"{tmp_path / 'own.py'}:router"
    for mix in ((), ("hint",)):
        recipe = made(router, mix, decision=[0, 1])
        assert found(recipe) == ((0, 1),) * (1 + len(mix))
        assert [" router " in line for line in told(recipe)] == [True, False][: 1 + len(mix)]


def test_what_is_asked_on_several_branches_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(
        RecipeError, match=r"both asks collaborator for decision 0 on 2 concurrent branches.* train another decision"
    ):
        told(made(f"{tmp_path / 'own.py'}:both"))


def test_a_trainee_that_no_topology_asks_is_refused() -> None:
    with pytest.raises(RecipeError, match="decision is 0, and solo asks collaborator for 0 decisions where"):
        told(made("solo"))
    assert len(told(made("solo", ["hint"]))) == 1


@pytest.mark.parametrize(
    ("topology", "answers"),
    [
        ({"name": "solo", "options": {"member": "collaborator"}}, True),
        ({"name": "reflect", "options": {"member": "collaborator"}}, True),
        (LEADER, True),
        ("hint", False),
        (CRITIC, False),
    ],
)
def test_a_trainee_that_would_be_punished_for_its_own_answers_is_told(topology: Any, answers: bool) -> None:
    lines = told(made(topology, reward={"leak": 0.5}))
    assert ["reward.leak is 0.5, and in" in line for line in lines] == [True] * answers


def test_rewards_against_silence_need_a_later_decision() -> None:
    settings = {"credit": "episode", "reward": {"counterfactual": 0.5}}
    for topology, decision in (("hint", "all"), ("hint", "last"), (CRITIC, 0), (CRITIC, "first")):
        with pytest.raises(RecipeError, match=r"counterfactual is 0.5, and only an episode's first decision"):
            found(made(topology, decision=decision, **settings))
    assert found(made("hint", [CRITIC], decision="all", **settings)) == ((0,), (0, 1))


@pytest.mark.parametrize("value", [-1, "middle", 1.5, None, True, "1", [0, -1], [True]])
def test_what_names_no_decision_is_refused_in_one_line(value: Any) -> None:
    with pytest.raises(RecipeError) as refused:
        made(CRITIC, decision=value)
    way_out = "give a number from 0, several ([0, 2]), or first, last, all"
    assert str(refused.value) == f"recipe: train.decision: {value!r} names no decision; {way_out}"


def test_a_trainee_who_is_never_asked_and_a_topology_that_cannot_be_played_are_told_by_name() -> None:
    with pytest.raises(RecipeError, match=r"decision is all, and solo asks collaborator for 0 decisions where"):
        found(made("solo", decision="all"))
    lost = {"name": "hint", "options": {"actor": "nobody"}}
    with pytest.raises(
        RecipeError, match=r"of hint\(actor=nobody\) cannot be counted \(TopologyError: no member 'nobody'"
    ):
        found(made(lost, decision="last"))


@pytest.mark.parametrize(
    ("mix", "train", "told"),
    [
        (["hint"], {}, "mix: hint stands in it twice, or is the topology itself"),
        (["critic"], {"prefix": "stored"}, "mix: answers are stored for one topology"),
        (["critic"], {"method": "backtrack"}, "mix: answers are stored for one topology"),
        (["nonsense"], {}, "topology 'nonsense'"),
        (
            ["{own}:mine", "{other}:mine"],
            {},
            r"mix: .*own.py:mine and .*other.py:mine are both called mine; name one with @topol",
        ),
    ],
)
def test_a_mix_that_cannot_be_is_refused(mix: Any, train: Any, told: str, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.py" for name in ("own", "other")}
    for file in files.values():
        file.write_text(OWN)
    with pytest.raises(RecipeError, match=told):
        made("hint", [name.format(**files) for name in mix], **train)


def test_the_decisions_of_a_task_stand_together_in_the_order() -> None:
    rows = [RowId(f"t{n}", 0, decision, topology) for n in range(6) for topology in (0, 1) for decision in (0, 1)]
    config = TrainConfig(decision=(0, 1), group_size=2, tasks_per_step=4, updates_per_step=1, micro_batch=8, epochs=2)
    laid = order(rows, config, seed=0)
    assert sorted(map(str, laid[:24])) == sorted(map(str, laid[24:])) == sorted(map(str, rows))
    pairs = list(zip(laid[::2], laid[1::2], strict=True))
    assert all((one.stand, one.decision, other.decision) == (other.stand, 0, 1) for one, other in pairs)
    assert [one.stand for one, _ in pairs[:12]] != [one.stand for one, _ in pairs[12:]]
    assert Counter(one.topology for one, _ in pairs[:2]) != Counter(one.topology for one, _ in pairs[2:4])


# -- what a row holds


class Ears:
    """Sits in front of the trainee's engine: token ids are the bytes of what it is asked and says; both are kept."""

    identity = None

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.heard: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    @property
    def version(self) -> int:
        return int(self.engine.version)

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        done = await self.engine.complete(messages, sampling, seed)
        asked, said = tuple(asked_as(messages)), tuple(done.text.encode())
        self.heard.append((asked, said))
        return replace(done, prompt_ids=asked, completion_ids=said, logprobs=(-1.0,) * len(said))

    async def close(self) -> None:
        """Nothing is held."""


def asked_as(messages: Messages) -> bytes:
    return "".join(f"<{message['role']}>{message['content']}" for message in messages).encode()


def rows_of(one: Stage, ears: Ears, steps: Steps, credit: str) -> list[Row]:
    """The rows of one step that trains each decision that is asked on one branch."""
    program = played(steps)
    team = Team(one.team.members, {**one.team.engines, "pilot": ears})
    config = TrainConfig(
        group_size=SIZE, tasks_per_step=1, updates_per_step=1, micro_batch=SIZE, outages=1.0, credit=credit
    )

    async def all_of_them() -> list[Row]:
        quiet = stage(MEMBERS, "pilot")
        tried = await play(TASK, program, quiet.team, record, Scopes("tried"), judge=judge)
        depths = Counter(placed.depth for placed in tried.decisions())
        alone = [depth for depth, times in sorted(depths.items()) if times == 1]
        if not alone:
            return []
        rollout = Rollout(program, team, {TASK.id: TASK}, record, judge, config)
        return await rollout.step([str(RowId(TASK.id, decision=depth)) for depth in alone for _ in range(SIZE)], 0)

    with journal() as record:
        return asyncio.run(all_of_them())


@settings(max_examples=60, deadline=None)
@given(steps=programs(), order=st.integers(0, 10_000), credit=st.sampled_from(["decision", "episode"]))
def test_every_row_is_what_the_engine_was_asked_and_said(steps: Steps, order: int, credit: str) -> None:
    one = stage(MEMBERS, "pilot", order=order, outages=0.2)
    ears = Ears(one.speakers["pilot"])
    rows = rows_of(one, ears, steps, credit)
    for row in rows:
        turns = row.episodes[0].decisions(row.id.decision)
        if not row.trained:
            assert not turns or not turns[0].turn.answered
            continue
        assert ears.heard.count((tuple(row.prompt_ids), tuple(row.completion_ids))) == 1
        assert bytes(row.prompt_ids) == asked_as(turns[0].turn.messages)
        assert bytes(row.completion_ids).decode() == turns[0].turn.text == row.text
    for start in range(0, len(rows), SIZE):
        group = [row for row in rows[start : start + SIZE] if row.trained]
        assert len({tuple(row.completion_ids) for row in group}) == len(group), "rows share a sample"
        if credit == "decision":
            assert len({tuple(row.prompt_ids) for row in group}) <= 1


OWN = """
from pilotfish import topology

@topology
async def mine(task, room):
    return await room.ask("collaborator", task.meta["level"])

@topology
async def both(task, room):
    said = await room.gather(*(room.ask("collaborator", f"{task.question} {n}") for n in range(2)))
    return said[0]

@topology
async def router(task, room):
    role = await room.ask("collaborator", task.question)
    if "EXPERT" not in role.text:
        return await room.ask("actor", task.question)
    more = await room.ask("collaborator", role.text)
    return await room.ask("actor", more.text)

@topology
async def endless(task, room):
    while (await room.ask("collaborator", "Go on?")).text != "no":
        pass
"""


def test_a_topology_that_needs_real_tasks_or_words_asks_for_numbers(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(RecipeError, match=r"of mine cannot be counted \(KeyError: 'level'\); .* name them by number"):
        found(made(f"{tmp_path / 'own.py'}:mine", decision="all"))
    with pytest.raises(RecipeError, match=r"of endless cannot be counted \(TopologyError: it does not end within"):
        found(made(f"{tmp_path / 'own.py'}:endless", decision="all"))
