"""Rollouts: which calls a step makes, who shares them, what a row is worth. No model: the trainee is scripted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotfish import Journal, ScriptedEngine, Task, Team, Verdict, topology
from pilotfish.engine.base import Refused
from pilotfish.engine.lease import Device, Leased
from pilotfish.episode import ReplayMismatch
from pilotfish.topology import critic, hint
from pilotfish.train.diagnostics import diagnose
from pilotfish.train.rollout import TooManyOutages
from pilotfish.train.row import RowId
from scene import TASKS, Scene, Spoken


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal")
    yield opened
    opened.close()


def test_several_answers_share_the_trainees_words_and_the_reward_is_their_mean(journal: Journal) -> None:
    scene = Scene(journal, hint, actor_temperature=0.7, answers=3)
    rows = scene.step()
    assert (scene.trainee.calls, scene.actor.calls) == (8, 24)
    for row in rows:
        assert len({episode.answer for episode in row.episodes}) == 3
        assert {episode.decisions()[0].turn.text for episode in row.episodes} == {row.text}
        rewards = [scene.verdicts[episode.answer or ""] or 0 for episode in row.episodes]
        assert row.reward == pytest.approx(sum(rewards) / 3)
    assert len({row.reward for row in rows}) > 1


def test_several_greedy_answers_are_one_call(journal: Journal) -> None:
    scene = Scene(journal, hint, answers=3)
    scene.step()
    assert (scene.trainee.calls, scene.actor.calls) == (8, 8)


@pytest.mark.parametrize(("prefix", "drafts"), [("stored", 2), ("fresh", 4)])
def test_stored_drafts_are_asked_once_a_task_over_all_steps(prefix: str, drafts: int, journal: Journal) -> None:
    scene = Scene(journal, critic, actor_temperature=0.7, prefix=prefix)
    first, second = scene.step(0), scene.step(1)
    assert scene.actor.calls == drafts + 16
    assert scene.trainee.calls == 16, "the trainee's own words are never stored"
    drafted = [[row.episodes[0].turns[0].turn.text for row in rows] for rows in (first, second)]
    assert (drafted[0] == drafted[1]) == (prefix == "stored")


def test_a_later_decision_forks_there_and_shares_what_is_before(journal: Journal) -> None:
    scene = Scene(journal, critic.bind(rounds=2), actor_temperature=0.7)
    rows = scene.step(decision=1)
    # Per group: draft, first comment, first revision; per row: second comment, second revision.
    assert (scene.trainee.calls, scene.actor.calls) == (2 * (1 + 4), 2 * (2 + 4))
    for group in (rows[:4], rows[4:]):
        turns = [row.episodes[0].decisions() for row in group]
        assert len({first.turn.text for first, _ in turns}) == 1
        assert len({str(second.turn.messages) for _, second in turns}) == 1
        assert len({second.turn.text for _, second in turns}) == 4
        assert [row.text for row in group] == [second.turn.text for _, second in turns]


def test_the_terms_of_the_reward_are_counted_by_hand(journal: Journal) -> None:
    scene = Scene(journal, hint, reward={"format": 0.25, "length": 0.5})
    words = iter(["one two", "", "w " * 8, "w " * 9] * 2)
    scene.trainee = Spoken(lambda messages, sampling, seed: next(words), identity=None)
    scene.rollout.team = Team(scene.rollout.team.members, {"collaborator": scene.trainee, "actor": scene.actor})
    rows = scene.step()
    by_text = {row.text: row for row in rows[:4]}
    right = {text: scene.verdicts[row.episodes[0].answer or ""] or 0 for text, row in by_text.items()}
    assert any(right.values())
    whole, empty, full = "one two", "", ("w " * 8).strip()
    assert by_text[whole].reward == pytest.approx(right[whole] * (1 - 0.5 * 2 / 8) + 0.25)
    assert by_text[empty].reward == pytest.approx(right[empty] * (1 - 0.5 * 1 / 8))
    cut = [row for row in rows[:4] if row.text.strip() == full]
    terms = sorted((row.reward or 0) - 0.5 * (scene.verdicts[row.episodes[0].answer or ""] or 0) for row in cut)
    assert terms == pytest.approx([0, 0.25])


def test_an_answer_without_a_verdict_leaves_the_mean_and_none_at_all_leaves_the_row(journal: Journal) -> None:
    scene = Scene(journal, hint, actor_temperature=0.7, answers=2)
    outcomes = iter([1.0, None, *[None, None], *[0.0, 1.0] * 6])

    async def judge(task: Task, answer: str, form: str) -> Verdict:
        return Verdict(next(outcomes), answer, "away")

    scene.rollout.judge = judge
    for row in scene.step():
        seen = [episode.verdict.reward for episode in row.episodes]
        judged = [reward for reward in seen if reward is not None]
        assert row.reward == (sum(judged) / len(judged) if judged else None)
        assert row.learnable == bool(judged)


def compared(scene: Scene) -> Any:
    """A step's rows, and the rewards without the trainee, of members that share a device."""
    device = Device()
    engines = {"collaborator": Leased(scene.trainee, device), "actor": Leased(scene.actor, device)}
    scene.rollout.team = Team(scene.rollout.team.members, engines)
    ids = [str(RowId(task)) for task in TASKS for _ in range(4)]
    return asyncio.run(asyncio.wait_for(scene.rollout.compared(ids, 0), 20))


def test_the_tasks_are_played_without_the_trainee_in_the_batches_of_the_rows(journal: Journal) -> None:
    scene, asked = Scene(journal, hint), list[str]()
    everyone = asyncio.Event()

    def advise(messages: Any, sampling: Any, seed: int) -> str:
        asked.append("collaborator")
        return f"hint {len(asked)}"

    async def answer(messages: Any, sampling: Any, seed: int) -> str:
        asked.append("actor")
        if asked.count("actor") == 8 + 2:
            everyone.set()
        await everyone.wait()
        return "with" if "Hint" in messages[-1]["content"] else "without"

    scene.trainee, scene.actor = Spoken(advise, identity=None), ScriptedEngine(answer)
    scene.verdicts = {"with": 1.0, "without": 0.0}
    rows, alone = compared(scene)
    assert [(row.id.task, row.reward) for row in rows] == [("a", 1.0)] * 4 + [("b", 1.0)] * 4
    assert alone == {"a": 0.0, "b": 0.0}
    assert asked == ["collaborator"] * 8 + ["actor"] * 10


def test_what_ends_a_step_ends_the_plays_without_the_trainee(journal: Journal) -> None:
    scene, cancelled = Scene(journal, hint), list[str]()

    async def advise(messages: Any, sampling: Any, seed: int) -> str:
        await asyncio.sleep(0.2)
        raise Refused("no such model")

    async def answer(messages: Any, sampling: Any, seed: int) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(messages[-1]["content"])
            raise
        return ""

    scene.trainee, scene.actor = Spoken(advise, identity=None), ScriptedEngine(answer)
    ids = [str(RowId(task)) for task in TASKS for _ in range(4)]
    scene.rollout.team = Team(scene.rollout.team.members, {"collaborator": scene.trainee, "actor": scene.actor})
    with pytest.raises(Refused, match="no such model"):
        asyncio.run(asyncio.wait_for(scene.rollout.compared(ids, 0), 20))
    assert len(cancelled) == len(TASKS)


def test_where_the_trainee_is_not_asked_the_tasks_are_played_all_the_same(journal: Journal) -> None:
    scene = Scene(journal, hint)
    rows = compared(scene)[0]
    calls = scene.trainee.calls
    again, alone = compared(scene)
    assert [row.text for row in again] == [row.text for row in rows]
    assert scene.trainee.calls == calls == 8
    assert set(alone) == set(TASKS)


def test_the_diagnostics_are_counted_by_hand(journal: Journal) -> None:
    scene = Scene(journal, hint)
    hints = {"a": ["think", "it is 19", "say 19", "add"], "b": ["x", "y", "z", "19"]}
    order = {task: iter(said) for task, said in hints.items()}

    def advise(messages: Any, sampling: Any, seed: int) -> str:
        return next(order[messages[-1]["content"].removeprefix("What is ")[0]])

    # The actor repeats what it is told: right where the hint holds 19; alone it is right on b only.
    def answer(messages: Any, sampling: Any, seed: int) -> str:
        asked = messages[-1]["content"]
        return "19" if "19" in asked or ("Hint" not in asked and "is b" in asked) else "no"

    async def judge(task: Task, answer: str, form: str) -> Verdict:
        return Verdict(float(answer == "19"), answer)

    trainee, actor = Spoken(advise, identity=None), ScriptedEngine(answer)
    scene.rollout.team = Team(scene.rollout.team.members, {"collaborator": trainee, "actor": actor})
    scene.rollout.judge = judge

    async def played() -> Any:
        rows = await scene.rollout.step([str(RowId(task)) for task in TASKS for _ in range(4)], 0)
        return rows, await scene.rollout.without_trainee([row.id.task for row in rows])

    rows, alone = asyncio.run(played())
    assert alone == {"a": 0.0, "b": 1.0}
    found = diagnose(rows, alone, TASKS, 4)
    # A token is a word: 30 ask for a hint, the 8 hints have 11, "What is a? (Hint:" has 4, an answer is one.
    assert found == pytest.approx(
        {
            "team/accuracy": 3 / 8,
            "team/no_verdict": 0.0,
            "group/no_spread": 0.0,
            "group/ended_early": 0.0,
            "trainee/tokens": (1 + 3 + 2 + 1 + 1 + 1 + 1 + 1) / 8,
            "trainee/leak_rate": 3 / 8,
            "flips/wrong_to_right": 2 / 8,
            "flips/right_to_wrong": 3 / 8,
            "tokens/collaborator": (8 * 30 + 11) / 8,
            "tokens/actor": (8 * 4 + 11 + 8) / 8,
        }
    )


def test_rewards_without_a_verdict_are_in_no_mean_of_the_diagnostics(journal: Journal) -> None:
    scene = Scene(journal, hint, outages=1.0)

    async def judge(task: Task, answer: str, form: str) -> Verdict:
        return Verdict(None if task.id == "a" else 1.0, answer, "away")

    scene.rollout.judge = judge
    found = diagnose(scene.step(), {"a": 0.0, "b": 0.0}, TASKS, 4)
    assert (found["team/accuracy"], found["team/no_verdict"]) == (1.0, 0.5)
    assert found["group/no_spread"] == 1.0
    assert found["flips/wrong_to_right"] == 1.0


@topology
async def until_right(task: Task, room: Any) -> str:
    """Asks a second time where the first words are not right."""
    for attempt in range(2):
        if (await room.ask("collaborator", f"{task.question} {attempt}")).text == "right":
            return "yes"
    return "no"


def speaks(scene: Scene, words: str, judge: float | None = 1.0) -> None:
    async def verdict(task: Task, answer: str, form: str) -> Verdict:
        return Verdict(judge, answer, "" if judge is not None else "the verifier is away")

    trainee = Spoken(lambda messages, sampling, seed: words, identity=None)
    scene.rollout.team = Team(scene.rollout.team.members, {"collaborator": trainee, "actor": scene.actor})
    scene.rollout.judge = verdict


@pytest.mark.parametrize("credit", ["decision", "episode"])
def test_a_step_whose_episodes_all_end_before_the_decision_teaches_nothing_and_stops_nothing(
    credit: str, journal: Journal
) -> None:
    scene = Scene(journal, until_right, credit=credit)
    speaks(scene, "right")
    rows = scene.step(decision=1)
    assert not any(row.trained or row.learnable for row in rows)
    found = diagnose(rows, {}, TASKS, 4)
    assert (found["group/ended_early"], found["team/no_verdict"], found["team/accuracy"]) == (1.0, 0.0, 1.0)


def test_episodes_that_end_early_and_that_nobody_can_judge_are_an_outage(journal: Journal) -> None:
    scene = Scene(journal, until_right)
    speaks(scene, "right", None)
    with pytest.raises(TooManyOutages, match="step 1: 8 of 8 rows have no verdict \\(the verifier is away\\)"):
        scene.step(decision=1)


@pytest.mark.parametrize("apart", [False, True])
def test_topologies_of_a_mix_that_ask_in_equal_words_have_answers_of_their_own(apart: bool, journal: Journal) -> None:
    scene = Scene(journal, hint, mix=[hint.bind(prompts={"solve": {"user": "{question} {hint} now"}})])
    groups = [RowId("a"), RowId("a", topology=1)]
    steps = [groups[:1], groups[1:]] if apart else [groups]
    rows = [row for step, part in enumerate(steps) for row in scene.train(part, step)]
    assert len({row.text for row in rows}) == scene.trainee.calls == 8
    assert [row.episodes[0].scope for row in rows[::4]] == ["train/0/a/0", f"train/{int(apart)}/a/0#1"]


@topology
async def branching(task: Task, room: Any) -> Any:
    said = await room.gather(*(room.ask("collaborator", f"{task.question} {n}") for n in range(2)))
    return said[0]


wandering = itertools.count()


@topology
async def restless(task: Task, room: Any) -> Any:
    """Not a function of its task: each run asks something else."""
    said = await room.ask("collaborator", f"{task.question} {next(wandering)}")
    return await room.ask("actor", said.text, final=True)


def test_what_cannot_be_a_group_is_refused_by_name(journal: Journal) -> None:
    with pytest.raises(ValueError, match="branching asks collaborator for decision 0 on 2 concurrent branches"):
        Scene(journal, branching).step()
    with pytest.raises(ReplayMismatch, match="call 0: collaborator is asked something else"):
        Scene(journal, restless).step()


def test_a_trainee_without_token_ids_is_refused(journal: Journal) -> None:
    scene = Scene(journal, hint)
    engines = {"collaborator": ScriptedEngine(["words"] * 8, identity=None), "actor": scene.actor}
    scene.rollout.team = Team(scene.rollout.team.members, engines)
    with pytest.raises(ValueError, match="collaborator: its engine reports no token ids, so it cannot be trained"):
        scene.step()


def test_a_row_id_survives_being_written_down() -> None:
    for task in ("t1", "a|b|3", "αβ|"):
        assert RowId.parse(str(RowId(task, 2, 1, 3))) == RowId(task, 2, 1, 3)
