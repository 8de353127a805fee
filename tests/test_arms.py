"""What is compared is what it is called: controls say their own words, and nothing is measured that was trained on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pilotfish import Journal, Sampling, ScriptedEngine, Task, Team, Verdict
from pilotfish.curriculum import curriculum
from pilotfish.engine.base import Completion, Refused
from pilotfish.evaluate.accounts import SEARCH, asked
from pilotfish.evaluate.arms import Arm, Field, Played, another_tasks_words, baselines, best_constant, control
from pilotfish.evaluate.comparison import rows as rows_of
from pilotfish.evaluate.record import ASKED, AT_K, ATTRIBUTION, BUDGET, ROUNDS, SEEDS, WEIGHTS, file_name
from pilotfish.evaluate.scores import scored
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.seats import Seats
from pilotfish.team import Member, Messages, Usage
from pilotfish.topology import hint, solo

TASKS = [Task(f"t{n}", f"What is {n} + 1?", str(n + 1)) for n in range(4)]


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(float("good" in answer), answer)


def arm(temperature: float) -> Arm:
    members = {
        "collaborator": Member("collaborator", "m", True, Sampling(temperature=temperature)),
        "actor": Member("actor", "m", False, Sampling(temperature=0)),
    }
    engines = {
        "collaborator": ScriptedEngine(lambda messages, sampling, seed: f"sampled {messages[-1]['content']}"),
        "actor": ScriptedEngine(lambda messages, sampling, seed: messages[-1]["content"]),
    }
    return Arm("hint, untrained", hint, Team(members, engines))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_control_says_its_own_words_at_any_temperature(temperature: float, tmp_path: Path) -> None:
    field = Field("b", TASKS, Journal(tmp_path), judge)

    async def scenario() -> None:
        team = arm(temperature)
        played = await field.play(team)
        assert all("sampled" in (episode.answer or "") for episode in played)
        constant = await field.play(control("constant", team, lambda task: "good words"))
        assert all("(Hint: good words)" in (episode.answer or "") for episode in constant)
        shuffled = await field.play(control("shuffled", team, another_tasks_words(played, TASKS)))
        for task, episode in zip(TASKS, shuffled, strict=True):
            assert f"Hint: sampled {task.question}" not in (episode.answer or "")
        assert constant[0].usage()["collaborator"].total == 0, "nobody generated these words"

    asyncio.run(scenario())


def test_the_best_constant_is_the_one_that_serves_best(tmp_path: Path) -> None:
    team = arm(0.0)
    said = {"What is 0 + 1?": "bad", "What is 1 + 1?": "good", "What is 2 + 1?": "worse", "What is 3 + 1?": "worst"}
    engine = ScriptedEngine(said)
    actor = ScriptedEngine(lambda messages, sampling, seed: messages[-1]["content"])
    team = Arm(
        "big: hint, trained",
        team.topology,
        Team(team.team.members, {"collaborator": engine, "actor": actor}),
        model="big",
    )
    found, tried = asyncio.run(best_constant(team, Field("holdout", TASKS, Journal(tmp_path), judge), 4))
    assert found == "good"
    assert [one.arm.name for one in tried] == [team.name, *(f"big: constant {number}" for number in range(4))]
    asked_of = {member: told.account.calls for member, told in asked(tried, set()).items()}
    assert asked_of == {"collaborator": engine.calls, "actor": actor.calls}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_words_that_are_put_in_are_no_call_and_are_not_kept_for_another_run(temperature: float, tmp_path: Path) -> None:
    kept = Journal(tmp_path / "kept", shared=True)
    field = Field("b", TASKS, Journal(tmp_path / "run"), judge, kept=kept)
    silent = control("constant", arm(temperature), lambda task: "good words")
    played = Played(silent, [asyncio.run(field.play(silent))])
    assert {turn.member for turn in kept.turns()} == {"actor"}
    assert asked([played], set()).keys() == {"actor"}
    (row,) = rows_of([played], TASKS)
    assert (row.calls, row.usage["collaborator"].calls) == (1, 0)
    assert {score.calls for score in scored("b", played, TASKS)} == {1}


class Uncounted(ScriptedEngine):
    """Says what it took no tokens to say."""

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        return replace(await super().complete(messages, sampling, seed), usage=Usage())


def test_an_answer_that_took_no_tokens_is_a_call_all_the_same(tmp_path: Path) -> None:
    team = arm(0.0)
    wordless = Uncounted(["word"] * 4)
    team = Arm(team.name, team.topology, Team(team.team.members, {**team.team.engines, "collaborator": wordless}))
    played = Played(team, [asyncio.run(Field("b", TASKS, Journal(tmp_path), judge).play(team))])
    assert asked([played], set())["collaborator"].account.calls == wordless.calls == 4


class Stopping(ScriptedEngine):
    """Answers nobody, and refuses the last task."""

    def __init__(self) -> None:
        super().__init__([])
        self.waiting = 0

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        if TASKS[-1].question in messages[-1]["content"]:
            raise Refused("no such model")
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
        raise AssertionError


def test_an_evaluation_that_ends_by_an_error_leaves_no_call_in_flight(tmp_path: Path) -> None:
    actor = Stopping()
    alone = Arm("solo", solo, Team({"actor": arm(0.0).team.members["actor"]}, {"actor": actor}))

    async def scenario() -> None:
        with pytest.raises(Refused, match="no such model"):
            await Field("b", TASKS, Journal(tmp_path), judge).play(alone)
        assert actor.waiting == 0
        assert len(asyncio.all_tasks()) == 1, "what would ask again once engines are closed"

    asyncio.run(scenario())


def test_a_benchmark_with_a_slash_in_its_name_has_a_file() -> None:
    assert file_name("owner/name", "csv") == "results-owner-name.csv"


def recipe(**changes: Any) -> dict[str, Any]:
    team = {"collaborator": {"model": "m", "train": "lora"}, "actor": {"model": "m"}}
    return {"team": team, "topology": "hint", **changes}


def test_benchmarks_of_one_name_are_refused_until_one_has_a_label() -> None:
    twins = [{"source": "a/test.jsonl"}, {"source": "b/test.jsonl"}]
    with pytest.raises(RecipeError, match="two are called 'test'; give one of them a label"):
        parse_recipe(recipe(evaluate={"benchmarks": twins}))
    told_apart = [twins[0], {**twins[1], "label": "other"}]
    assert [b.title for b in parse_recipe(recipe(evaluate={"benchmarks": told_apart})).evaluate.benchmarks] == [
        "test",
        "other",
    ]


def test_one_name_stands_for_a_list_of_one_and_an_unknown_one_is_refused_at_once() -> None:
    assert [other.name for other in parse_recipe(recipe(evaluate={"against": "solo"})).evaluate.against] == ["solo"]
    with pytest.raises(RecipeError, match="'slo': not one of solo"):
        parse_recipe(recipe(evaluate={"against": ["slo"]}))


def test_a_sampling_without_a_temperature_is_greedy() -> None:
    team = {"actor": {"model": "m", "sampling": {"max_tokens": 8}}}
    made = parse_recipe({"team": team, "topology": "solo"})
    assert made.team["actor"].sampling == Sampling(temperature=0.0, max_tokens=8)


def test_members_of_one_api_share_an_engine_whatever_their_extra_fields_hold() -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    api = {"engine": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1", "extra": extra}
    seats = Seats(
        parse_recipe({"team": {"a": api, "b": api}, "topology": {"name": "solo", "options": {"member": "a"}}})
    )
    assert seats.engine("a") is seats.engine("b")


def test_a_baseline_that_seats_the_trainee_or_nobody_is_left_out() -> None:
    alone = {"team": {"collaborator": {"model": "m", "train": "lora"}}, "topology": "hint"}
    assert baselines(parse_recipe(alone)) == [], "there is no actor whom solo could ask"
    seated = {"name": "solo", "options": {"member": "collaborator"}}
    assert baselines(parse_recipe(recipe(evaluate={"against": [seated]}))) == []
    assert [other.name for other in baselines(parse_recipe(recipe()))] == ["solo"]


# -- the curriculum


def rows(path: Path, questions: list[str]) -> str:
    lines = (f'{{"id": "{path.stem}{n}", "question": "{q}", "answer": "1"}}' for n, q in enumerate(questions))
    path.write_text("\n".join(lines))
    return str(path)


def test_no_training_task_asks_what_a_holdout_task_asks(tmp_path: Path) -> None:
    source = rows(tmp_path / "train.jsonl", [f"question {n % 10}" for n in range(40)])
    with pytest.warns(UserWarning, match="repeat an earlier question"):
        made = curriculum(parse_recipe(recipe(tasks={"train": source, "holdout": 4})))
    assert len(made.holdout) == 4
    assert len(made.train) == 24
    assert {task.question for task in made.holdout}.isdisjoint(task.question for task in made.train)


def test_a_run_keeps_its_tasks_whatever_is_measured_later(tmp_path: Path) -> None:
    source = rows(tmp_path / "train.jsonl", [f"question number {n}" for n in range(20)])
    begun = curriculum(parse_recipe(recipe(tasks={"train": source, "holdout": 4})))
    measured = rows(tmp_path / "bench.jsonl", [task.question for task in begun.train[:3]])
    later = parse_recipe(recipe(tasks={"train": source, "holdout": 4}, evaluate={"benchmarks": [measured]}))
    assert len(curriculum(later).repeats) == 3
    assert curriculum(later, begun.ids()).ids() == begun.ids()
    rows(tmp_path / "train.jsonl", ["another"])
    with pytest.raises(RecipeError, match="which this run began with; restore the source"):
        curriculum(later, begun.ids())


TEAM = {"actor": {"model": "m"}, "other": {"model": "n"}}


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ({"name": "debate", "options": {"agents": ["actor", "actr"]}}, r"debate: agents names 'actr'; in the team are"),
        ({"name": "cot", "options": {"member": "nobody"}}, "cot: member names 'nobody'"),
        ({"name": "best_of", "options": {"judge": "jugde"}}, "best_of: judge names 'jugde'"),
        ({"name": "vote", "options": {"of": "cot", "options": {"member": "actr"}}}, "vote: member names 'actr'"),
    ],
)
def test_a_method_that_names_nobody_of_the_team_is_refused(method: dict[str, Any], why: str) -> None:
    made = parse_recipe({"team": TEAM, "topology": "solo", "evaluate": {"against": [method]}})
    with pytest.raises(RecipeError, match=why):
        baselines(made)


OWN = """
from pilotfish import topology


@topology
async def {name}(task, room, *, rounds=1):
    return await room.ask("actor", task.question, final=True)
"""


def own(folder: Path, file: str, name: str) -> str:
    """A topology in a file of its own, as a recipe names it."""
    (folder / file).write_text(OWN.format(name=name))
    return f"{folder / file}:{name}"


def test_two_functions_of_one_name_are_refused_whatever_their_options(tmp_path: Path) -> None:
    one, other = own(tmp_path, "v1.py", "mine"), own(tmp_path, "v2.py", "mine")
    refused = [(["solo", one, other], "mine"), ([one, {"name": other, "options": {"rounds": 2}}], "mine")]
    refused += [([own(tmp_path, f"own_{name}.py", name)], name) for name in ("solo", "alone")]
    for against, name in refused:
        with pytest.raises(RecipeError, match=rf"against: .* and .* are both called {name}; name one with @topology"):
            parse_recipe({"team": TEAM, "topology": "solo", "evaluate": {"against": against, "alone": True}})
    spelled = f"{tmp_path}/../{tmp_path.name}/v1.py:mine"
    made = parse_recipe({"team": TEAM, "topology": one, "evaluate": {"against": ["solo", one, spelled, one, "solo"]}})
    assert [method.name for method in baselines(made)] == ["solo"], "one that is named twice is one arm"


def test_a_method_that_this_team_cannot_play_is_left_out_with_a_word() -> None:
    solo = {"name": "solo", "options": {"member": "other"}}
    made = parse_recipe({"team": {"other": {"model": "n"}}, "topology": solo, "evaluate": {"against": ["cot"]}})
    with pytest.warns(UserWarning, match="not compared with, since the team lacks who answers there: cot"):
        assert baselines(made) == []


PARTS = (ASKED, AT_K, ATTRIBUTION, BUDGET, ROUNDS, SEARCH, SEEDS, WEIGHTS, "written")


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        *(([part], f"'{part}', which names another part") for part in PARTS),
        (["a/b", "a-b"], r"written into results-a-b\.csv"),
        (["a-budget", "a"], r"written into results-a-budget\.csv"),
        (["a", "a"], "two are called 'a'"),
    ],
)
def test_labels_that_would_write_over_one_another_are_refused(labels: list[str], why: str) -> None:
    sources = [{"source": "gsm8k", "label": label} for label in labels]
    with pytest.raises(RecipeError, match=why):
        parse_recipe({"team": TEAM, "topology": "solo", "evaluate": {"benchmarks": sources}})


def test_a_team_without_a_name_is_refused() -> None:
    models = {"": {"actor": {"model": "big"}}}
    with pytest.raises(RecipeError, match="one is called ''"):
        parse_recipe({"team": TEAM, "topology": "solo", "evaluate": {"models": models}})
