"""Credit: whose reward a decision learns from, and the terms that are taken off it, counted by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from pilotfish import Journal, ScriptedEngine, Task, Verdict, topology
from pilotfish.episode import Team
from pilotfish.preflight.measured import measured
from pilotfish.topology import critic, hint
from pilotfish.train.diagnostics import diagnose
from pilotfish.train.profile import TrainConfig
from pilotfish.train.row import Row, RowId
from pilotfish.verify.registry import leaks
from scene import TASKS, Scene, Spoken
from tiny import save_tiny, tiny_tokenizer
from training import TASKS as SUMS
from training import learn, recipe


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal")
    yield opened
    opened.close()


def groups(*decisions: int) -> list[RowId]:
    return [RowId(task, decision=decision) for task in TASKS for decision in decisions]


def split(rows: list[Row], size: int = 4) -> list[list[Row]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def said(row: Row) -> list[str]:
    """The trainee's words in a row's episode, in order."""
    return [placed.turn.text for placed in row.episodes[0].decisions()]


# -- credit: decision


def test_the_prefix_of_a_later_decision_is_a_row_of_the_earlier_group_and_costs_nothing(journal: Journal) -> None:
    scene = Scene(journal, critic.bind(rounds=3), actor_temperature=0.7)
    firsts, seconds, thirds = split(scene.train(groups(0, 1, 2)))[:3]
    # A task: 4 first comments, 4 + 4 second ones, 4 + 4 + 4 third ones; revisions likewise, and the draft.
    assert (scene.trainee.calls, scene.actor.calls) == (2 * 24, 2 * 25)
    assert {said(row)[0] for row in seconds} <= {row.text for row in firsts}
    assert {tuple(said(row)[:2]) for row in thirds} <= {tuple(said(row)[:2]) for row in seconds}
    for group in (firsts, seconds, thirds):
        assert len({row.text for row in group}) == 4
        assert len({str(row.episodes[0].decisions(group[0].id.decision)[0].turn.messages) for row in group}) == 1


def test_the_branch_that_is_the_next_prefix_does_not_depend_on_rewards(tmp_path: Path) -> None:
    def taken(folder: str, right: float) -> list[int]:
        """Which of the first group's rows each second group goes on from."""
        opened = Journal(tmp_path / folder)
        scene = Scene(opened, critic.bind(rounds=2), actor_temperature=0.7)
        rewards = itertools.cycle([right, 1 - right, 1 - right])

        async def judge(task: Task, answer: str, form: str) -> Verdict:
            return Verdict(next(rewards), answer)

        scene.rollout.judge = judge
        found = []
        for step in range(6):
            first, second = split(scene.train([RowId("a", decision=decision) for decision in (0, 1)], step))
            found.append([row.text for row in first].index(said(second[0])[0]))
        opened.close()
        return found

    drawn = taken("one", 1.0)
    assert taken("other", 0.0) == drawn
    assert len(set(drawn)) > 1, "always the same row"


def fails_behind(scene: Scene, words: set[str]) -> None:
    """The actor is away whenever it is to revise after one of these comments."""

    def is_away(messages: Any, sampling: Any, seed: int) -> bool:
        return bool(words & set(messages[-1]["content"].splitlines()))

    trainee = Spoken(lambda messages, sampling, seed: f"hint {seed}", identity=None)
    actor = ScriptedEngine(lambda messages, sampling, seed: f"answer {seed}", fail=is_away)
    scene.rollout.team = Team(scene.rollout.team.members, {"collaborator": trainee, "actor": actor})


@topology
async def commented(task: Task, room: Any) -> Any:
    """Three comments and revisions in turn, each of which shows all that was said."""
    told = [task.question]
    for _ in range(3):
        for member in ("collaborator", "actor"):
            told.append((await room.ask(member, "\n".join(told))).text)
    return told[-1]


def test_later_decisions_go_on_from_a_row_that_no_outage_ended_and_a_resumed_run_from_the_same(tmp_path: Path) -> None:
    def played(folder: str, away: set[str]) -> list[list[Row]]:
        opened = Journal(tmp_path / folder)
        scene = Scene(opened, commented, actor_temperature=0.7)
        fails_behind(scene, away)
        found = split(scene.train([RowId("a", decision=decision) for decision in (0, 1, 2)]))
        opened.close()
        return found

    first_drawn = said(played("whole", set())[1][0])[0]
    then_drawn = said(played("once", {first_drawn})[2][0])[1]
    firsts, seconds, thirds = played("cut", {first_drawn, then_drawn})
    assert [sum(row.lost for row in group) for group in (firsts, seconds, thirds)] == [1, 1, 0]
    assert {said(row)[0] for row in seconds} == {said(row)[0] for row in thirds} < {row.text for row in firsts}
    assert {said(row)[1] for row in thirds} < {row.text for row in seconds if not row.lost}
    again = played("cut", set())
    assert [[row.text for row in group] for group in again] == [
        [row.text for row in group] for group in (firsts, seconds, thirds)
    ]


# -- credit: episode


def test_whole_episodes_are_played_once_for_all_their_decisions(journal: Journal) -> None:
    scene = Scene(journal, critic.bind(rounds=2), actor_temperature=0.7, credit="episode")
    first, second = split(scene.train(groups(0, 1)))[:2]
    assert (scene.trainee.calls, scene.actor.calls) == (2 * 8, 2 * 9), "a draft is the group's, all else the row's"
    assert [row.episodes[0].id for row in first] == [row.episodes[0].id for row in second]
    assert [row.reward for row in first] == [row.reward for row in second]
    assert [[one.text, other.text] for one, other in zip(first, second, strict=True)] == [said(row) for row in first]


def test_a_whole_episode_is_judged_once_for_all_its_decisions(journal: Journal) -> None:
    """A judge may say something else the second time; the rows of one episode have one reward all the same."""
    scene = Scene(journal, critic.bind(rounds=2), credit="episode")
    times = itertools.count()

    async def moody(task: Task, answer: str, form: str) -> Verdict:
        return Verdict(float(next(times) % 2), answer)

    scene.rollout.judge = moody
    first, second = split(scene.train([RowId("a", decision=0), RowId("a", decision=1)]))
    assert [row.reward for row in first] == [row.reward for row in second]
    assert next(times) == 4


def test_the_terms_of_an_episode_are_the_mean_over_its_decisions(journal: Journal) -> None:
    scene = Scene(journal, critic.bind(rounds=2), credit="episode", reward={"length": 0.8})
    numbers = itertools.count()
    words = iter(["w", "w w w"] * 8)
    scene.trainee = Spoken(lambda messages, sampling, seed: next(words), identity=None)
    scene.actor = ScriptedEngine(lambda messages, sampling, seed: f"answer {next(numbers)}")
    scene.rollout.team = Team(scene.rollout.team.members, {"collaborator": scene.trainee, "actor": scene.actor})
    rows = scene.train(groups(0, 1))
    assert any(row.episodes[0].verdict.reward for row in rows)
    for row in rows:
        lengths = [len(text.split()) for text in said(row)]
        right = row.episodes[0].verdict.reward or 0
        assert row.reward == pytest.approx(right * (1 - 0.8 * mean(lengths) / 8)), "a wrong answer loses nothing"


@topology
async def until_even(task: Task, room: Any) -> str:
    """Ends with the trainee's first words, or its second ones, that begin with a letter of an even code."""
    for attempt in range(2):
        turn = await room.ask("collaborator", f"{task.question} {attempt}")
        if ord(turn.text[:1] or "a") % 2 == 0:
            return "yes" if attempt else "early"
    return "no"


async def by_time(task: Task, answer: str, form: str) -> Verdict:
    return Verdict({"early": 1.0, "yes": 0.5, "no": 0.0}[answer], answer)


def test_every_decision_has_the_advantage_of_its_episode_among_the_groups_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where some episodes are over before their second decision: they count once, and carry no loss there."""
    seen: list[dict[str, Any]] = []
    compute = GRPOTrainer._compute_loss

    def recorded(self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        seen.append(inputs)
        return compute(self, model, inputs)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", recorded)
    made = recipe(save_tiny(tmp_path / "model"), "solo", credit="episode", decision="all", steps=1)
    rows = [RowId(task, decision=decision) for task in SUMS for decision in (0, 1)]
    learned = learn(made, until_even, tmp_path, judge=by_time, rows=rows)
    table: dict[Any, set[float]] = {}
    fillers, silence = 0, tiny_tokenizer().eos_token_id
    played = split(learned.rows[0], 16)
    for first, second in zip(played[::2], played[1::2], strict=True):
        assert [row.id.decision for row in (first[0], second[0])] == [0, 1], "an episode's decisions stand together"
        rewards = [row.episodes[0].verdict.reward or 0.0 for row in first]
        for row in (*first, *second):
            value = ((row.episodes[0].verdict.reward or 0.0) - mean(rewards)) / (stdev(rewards) + 1e-4)
            words = row.completion_ids if row.trained else [silence]
            table.setdefault((tuple(row.prompt_ids), tuple(words)), set()).add(round(value, 4))
            fillers += not row.trained
        assert [row.trained for row in second] == [row.episodes[0].answer != "early" for row in first]
    assert 4 < fillers < 28
    (inputs,) = seen
    for at, advantage in enumerate(inputs["advantages"].tolist()):
        prompt = tuple(inputs["prompt_ids"][at][inputs["prompt_mask"][at].bool()].tolist())
        said_there = tuple(inputs["completion_ids"][at][inputs["completion_mask"][at].bool()].tolist())
        assert min(abs(advantage - value) for value in table[prompt, said_there]) < 2e-4
    assert int((inputs["tool_mask"] * inputs["completion_mask"]).any(1).sum()) == 64 - fillers
    assert torch.isfinite(inputs["advantages"]).all()


# -- terms


@topology
async def first_counts(task: Task, room: Any) -> Any:
    first = await room.ask("collaborator", f"{task.question} first")
    await room.ask("collaborator", f"{task.question} second, after {first.text}")
    return await room.ask("actor", f"{task.question} {first.text}", final=True)


@topology
async def last_counts(task: Task, room: Any) -> Any:
    first = await room.ask("collaborator", f"{task.question} first")
    last = await room.ask("collaborator", f"{task.question} second, after {first.text}")
    return await room.ask("actor", f"{task.question} {last.text}", final=True)


async def helped(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(float(answer.endswith(("0", "2", "4", "6", "8"))), answer)


@pytest.mark.parametrize(("played", "earned"), [(first_counts, False), (last_counts, True)])
def test_the_counterfactual_takes_off_what_the_episode_is_worth_without_the_words(
    played: Any, earned: bool, journal: Journal
) -> None:
    """A second decision that nobody reads earns nothing, one that decides earns all."""
    scene = Scene(journal, played, credit="episode", reward={"counterfactual": 1.0})
    scene.actor = ScriptedEngine(lambda messages, sampling, seed: messages[-1]["content"])
    scene.rollout.team = Team(scene.rollout.team.members, {"collaborator": scene.trainee, "actor": scene.actor})
    scene.rollout.judge = helped
    first, second = split(scene.train(groups(0, 1)))[:2]
    rewards = [row.episodes[0].verdict.reward for row in first]
    assert {0.0, 1.0} == set(rewards)
    assert [row.reward for row in first] == rewards, "the first decision stands on the same in every row"
    assert [row.reward for row in second] == (rewards if earned else [0.0] * 4)
    assert scene.trainee.calls == 2 * 8, "the silent trainee was asked"
    for row in second:
        assert row.silent is not None
        assert [placed.turn.text for placed in row.silent.decisions()] == [said(row)[0], ""]


@topology
async def three(task: Task, room: Any) -> Any:
    said: list[str] = []
    for number in range(3):
        said.append((await room.ask("collaborator", f"{task.question} {number}, after {said}")).text)
    return await room.ask("actor", f"{task.question} {said}", final=True)


def test_episodes_that_fall_silent_at_different_decisions_are_two_and_the_silence_is_no_call(journal: Journal) -> None:
    scene = Scene(journal, three, credit="episode", reward={"counterfactual": 1.0})
    rows = scene.train([RowId("a", decision=decision) for decision in (0, 1, 2)])
    silent = [row.silent for row in rows if row.silent]
    assert len({episode.id for episode in silent}) == len(silent) == 8
    for episode in silent:
        assert journal.episode(episode.id) == episode
    assert measured(journal.turns())["collaborator"].calls == scene.trainee.calls == 4 * 3


def test_what_the_silent_episode_costs_is_counted(journal: Journal) -> None:
    plain = Scene(journal, last_counts, credit="episode")
    tokens = diagnose(plain.train(groups(0, 1)), {}, TASKS, 4)["tokens/actor"]
    compared = Scene(journal, last_counts, credit="episode", reward={"counterfactual": 1.0})
    assert diagnose(compared.train(groups(0, 1), 1), {}, TASKS, 4)["tokens/actor"] > tokens


def test_words_that_hold_the_gold_answer_are_punished(journal: Journal) -> None:
    scene = Scene(journal, hint, reward={"leak": 0.5})
    words = iter(["it is 19", "add the two"] * 4)
    scene.trainee = Spoken(lambda messages, sampling, seed: next(words), identity=None)
    scene.rollout.team = Team(scene.rollout.team.members, {"collaborator": scene.trainee, "actor": scene.actor})
    rows = scene.step()
    assert {row.text for row in rows} == {"it is 19", "add the two"}
    for row in rows:
        assert row.reward == (row.episodes[0].verdict.reward or 0) - 0.5 * ("19" in row.text)


def test_every_accepted_answer_is_one_that_words_may_hold() -> None:
    task = Task("a", "The capital of the Netherlands?", "Amsterdam", "exact", meta={"alt_answers": ["Mokum"]})
    found = [leaks(task, f"It is {city}.") for city in ("Amsterdam", "Mokum", "The Hague")]
    assert found == [True, True, False]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"reward": {"counterfactual": 0.5}}, "counterfactual would cancel: .* add `credit: episode`"),
        ({"reward": {"leak": 0.5}, "horizon": "decision"}, "leak punishes right answers where the decision is"),
        ({"credit": "episode", "horizon": "decision"}, "credit episode: whole episodes"),
        ({"credit": "episode", "answers": 2}, "credit episode: whole episodes"),
        ({"credit": "episode", "prefix": "shaped", "decision": 1}, "credit episode: whole episodes"),
        ({"decision": "all", "prefix": "shaped"}, "decision is all: the first decision stands on no shaped answers"),
        ({"decision": "some"}, "decision"),
    ],
)
def test_terms_and_credits_that_contradict_each_other_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        TrainConfig(**settings)
