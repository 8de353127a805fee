"""A mix: one trainee in several topologies, from the estimate over training, holdout and resume to the arms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilotfish.collect.main import collect
from pilotfish.evaluate.lineup import standard_arms
from pilotfish.preflight.estimate import estimate_recipe
from pilotfish.preflight.filler import Ledger, RehearsedSeats, quarter_of_characters
from pilotfish.preflight.tryout import tryout
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.run import Run, RunError
from pilotfish.task import Task
from pilotfish.train.main import train
from training import vowels_recipe

VOWELS = Path(__file__).with_name("vowels.py")
CRITIC = {"name": "critic", "options": {"rounds": 2}}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


def mixed(folder: Path, **train: Any) -> Recipe:
    data = vowels_recipe(folder, holdout=4, decision="all", **train).model_dump(mode="json")
    return parse_recipe({**data, "mix": [f"{VOWELS}:twice"]})


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Recipe]:
    """A recipe with 40 tasks to train on, 10 held out, 20 to evaluate on."""
    for name, count in (("train", 50), ("test", 20)):
        rows = [{"id": f"{name}{n}", "question": f"{name} {n:04d}?", "answer": "1"} for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def recipe(**changes: Any) -> Recipe:
        greedy = {"temperature": 0.0, "max_tokens": 40}
        team = {
            "collaborator": {"model": "own/model", "train": "full", "sampling": greedy},
            "actor": {"engine": "openai", "model": "some", "base_url": "http://localhost:9/v1", "sampling": greedy},
        }
        sized = {"group_size": 4, "tasks_per_step": 4, "micro_batch": 4, "updates_per_step": 1, "evaluate_every": 10}
        train = {**sized, **changes.pop("train", {})}
        tasks = {"train": str(tmp_path / "train.jsonl"), "holdout": 10}
        evaluate = {"benchmarks": [str(tmp_path / "test.jsonl")], "against": ["solo"]}
        base = {"tasks": tasks, "team": team, "topology": "hint", "train": train, "evaluate": evaluate}
        return parse_recipe({**base, **changes})

    return recipe


def calls(recipe: Recipe) -> dict[tuple[str, str], int]:
    return {(line.stage, line.member): round(line.likely.calls) for line in estimate_recipe(recipe).lines}


def test_a_mix_is_estimated_as_all_its_topologies(make: Callable[..., Recipe]) -> None:
    recipe = make(mix=["critic"])
    found = calls(recipe)
    assert found["training", "collaborator"] == 2 * 160
    assert found["training", "actor"] == 160 + 160 + 40, "the drafts are the comparison's answers"
    assert found["holdout", "collaborator"] == 3 * 2 * 10, "before, after step 10 and at the end"
    assert estimate_recipe(recipe).steps == 20
    names = {f"{topology}, {weights}" for topology in ("hint", "critic") for weights in ("untrained", "trained")}
    assert {stage for stage, _ in found} == {"training", "holdout", "solo", *names}


def test_the_estimate_knows_that_a_later_decision_goes_on_from_a_branch_of_the_earlier_one(
    make: Callable[..., Recipe],
) -> None:
    found = calls(make(topology=CRITIC, train={"decision": "all"}))
    assert found["training", "collaborator"] == 40 * (4 + 4 + 4)
    assert found["training", "actor"] == 40 * (1 + 4 + 4 + 4)
    whole = calls(make(topology=CRITIC, train={"decision": "all", "credit": "episode"}))
    assert whole["training", "collaborator"] == 40 * (4 + 4)
    assert whole["training", "actor"] == 40 * (1 + 4 + 4)


CRITIC3 = {"name": "critic", "options": {"rounds": 3}}


@pytest.mark.parametrize(
    ("topology", "mix", "size", "comments", "drafts"),
    [
        (CRITIC3, (), 3, 40 * 4 * 3, 40),
        (CRITIC3, (), 4, 20 * 4 * 3 + 20 * 2 * 4 * 3, 40),  # half of the episodes are divided, and played twice
        (CRITIC, (), 1, 2 * 40 * 4 * 2, 40),
        ("hint", (CRITIC,), 4, 40 * 4 * (1 + 2), 40),
    ],
)
def test_the_estimate_counts_whole_episodes_as_steps_divide_them(
    topology: Any, mix: Any, size: int, comments: int, drafts: int, make: Callable[..., Recipe]
) -> None:
    recipe = make(topology=topology, mix=mix, train={"decision": "all", "credit": "episode", "tasks_per_step": size})
    found = calls(recipe)
    assert found["training", "collaborator"] == comments
    assert found["training", "actor"] == comments + drafts, "a revision for each comment, or an answer for each hint"
    told = [note for note in estimate_recipe(recipe).notes if "tasks_per_step is" in note]
    assert len(told) == (size in (1, 4) and not mix)


def test_a_mix_is_not_collected_for(make: Callable[..., Recipe], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="mix: answers are stored for one topology, and with it stands critic; leave"):
        collect(make(mix=["critic"]), tmp_path / "run")


def test_a_rehearsal_plays_each_topology_and_names_the_one_that_cannot_be(make: Callable[..., Recipe]) -> None:
    tasks = [Task("a", "What is a?", "1"), Task("b", "What is b?", "1")]
    (finding,) = tryout(make(mix=[CRITIC], train={"decision": "all"}), tasks)
    # A task: 4 hints, 12 comments in 3 groups; 4 answers, 1 draft, which is also the actor alone, 12 revisions.
    assert (
        finding.what == f"hint, critic: the calls of a group of 4 are {16 / 3:g} of collaborator, {17 / 3:g} of actor"
    )
    lost = make(mix=[{"name": "critic", "options": {"actor": "nobody"}}], train={"decision": "all"})
    (finding,) = tryout(lost, tasks)
    assert finding.status == "fail"
    assert "critic(actor=nobody) cannot be counted (TopologyError: no member 'nobody'" in finding.what


def test_each_topology_is_trained_and_measured(tmp_path: Path) -> None:
    made = mixed(tmp_path, group_size=8, tasks_per_step=3, micro_batch=24, steps=2, evaluate_every=2)
    run = train(made, tmp_path / "run")
    rows = list(run.logged())
    held = [row for row in rows if row["kind"] == "holdout"]
    assert [row["step"] for row in held] == [0, 2]
    for row in held:
        each = [row["holdout/accuracy/vowels"], row["holdout/accuracy/twice"]]
        assert row["holdout/accuracy"] == pytest.approx(sum(each) / 2)
    journal = run.journal(writable=False)
    played = {(episode.topology, episode.id.rpartition("|")[2]) for episode in journal.episodes("train/%")}
    assert {topology for topology, _ in played} <= {"vowels", "twice"}
    assert {fork[:1] for topology, fork in played if topology == "twice"} == {"0"}, "decision 1 goes on from a branch"
    held_out = {(episode.topology, episode.task) for episode in journal.episodes("eval/holdout/%")}
    assert len(held_out) == 2 * 4
    journal.close()
    with pytest.raises(RunError, match="holds a run of another recipe \\(mix differ\\)"):
        Run(tmp_path / "run", made.model_copy(update={"mix": ()}))


class Cut(Exception):
    """The machine went down."""


def test_a_mix_that_was_cut_off_goes_on_with_the_same_rows(tmp_path: Path) -> None:
    def cut(kind: str, step: int, figures: Any) -> None:
        if (kind, step) == ("step", 2):
            raise Cut

    made = mixed(tmp_path, group_size=4, tasks_per_step=3, micro_batch=12, steps=3, evaluate_every=9, save_every=1)
    whole = [row for row in train(made, tmp_path / "whole").logged() if row["kind"] == "step"]
    with pytest.raises(Cut):
        train(made, tmp_path / "run", told=cut)
    again = [row for row in train(made, tmp_path / "run").logged() if row["kind"] == "step"]
    for name in ("reward", "team/accuracy", "trainee/tokens"):
        assert [row[name] for row in again] == [row[name] for row in whole]


def test_evaluation_has_each_topology_of_a_mix_and_the_recipes_own_last(
    make: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = make(
        mix=["critic"], evaluate={"benchmarks": [str(tmp_path / "test.jsonl")], "against": ["solo", "critic"]}
    )
    run = Run(tmp_path / "run", recipe)
    run.best.mkdir()
    run.mark_best(run.best, 1)
    seats = RehearsedSeats(
        recipe, Ledger(), dict.fromkeys(recipe.team, quarter_of_characters), dict.fromkeys(recipe.team, 4)
    )
    arms = standard_arms(recipe, run, seats)
    names = [f"{topology}, {weights}" for weights in ("untrained", "trained") for topology in ("critic", "hint")]
    assert [arm.name for arm in arms] == ["solo", *names]
