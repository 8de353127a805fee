"""A run's folder: what it remembers, and what it refuses."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.run import Run, RunError
from pilotfish.state import WAYS_OUT, write
from test_journal import a_turn


def answered(run: Run, outcome: str = "answered") -> Run:
    """The run as it is when somebody has had it in hand and asked a call."""
    (run.folder / "lock").touch()
    with closing(run.journal()) as journal:
        journal.record(a_turn(outcome=outcome))
    return run


OWN = """\
from pilotfish import topology


@topology
async def mine(task, room):
    return await room.ask("actor", "hi")
"""


@pytest.mark.parametrize("votes", [0, 1, 2], ids=["itself", "voted on", "in a vote of votes"])
def test_another_text_of_the_users_topology_is_refused_in_the_same_run(votes: int, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    topology: dict[str, Any] = {"name": f"{file}:mine"}
    for _ in range(votes):
        topology = {"name": "vote", "options": {"of": topology["name"], "options": topology.get("options", {})}}
    recipe = parse_recipe({"team": {"actor": {"model": "m"}}, "topology": topology})
    answered(Run(tmp_path / "run", recipe)).hold_code()
    Run(tmp_path / "run", recipe).hold_code()
    file.write_text(OWN.replace("hi", "hello"))
    with pytest.raises(
        RunError, match=r"the file has changed since .* began; restore it, or train into another folder"
    ):
        Run(tmp_path / "run", recipe).hold_code()
    Run(tmp_path / "other", recipe).hold_code()


def silent(kind: str, step: int, figures: dict[str, float]) -> None:
    """Takes no news."""


def sums(file: Path, **edited: Any) -> Path:
    """Four tasks with a note that nobody reads, the second one edited."""
    rows: list[dict[str, Any]] = [
        {"id": f"t{n}", "question": f"What is {n} and 7?", "answer": str(n + 7), "alt_answers": ["x"], "note": "a"}
        for n in range(4)
    ]
    rows[1] |= edited
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def learning(source: Any, topology: str = "solo") -> Recipe:
    team = {"actor": {"model": "m", "train": "full"}}
    return parse_recipe({"team": team, "topology": topology, "tasks": {"train": source, "holdout": 1}})


@pytest.mark.parametrize(
    "edited", [{"question": "Say 1 and 7."}, {"answer": "9"}, {"alt_answers": ["y"]}, {"choices": ["8", "9"]}]
)
def test_a_task_that_was_edited_since_the_run_began_is_refused_by_its_id(
    tmp_path: Path, edited: dict[str, Any]
) -> None:
    run = answered(Run(tmp_path / "run", learning(str(sums(tmp_path / "rows.jsonl")))))
    begun = run.curriculum(silent).ids()
    sums(tmp_path / "rows.jsonl", **edited)
    with pytest.raises(
        RunError, match=r"'t1' .*has changed since .*run began; restore the source, or train into another"
    ):
        run.curriculum(silent)
    sums(tmp_path / "rows.jsonl")
    assert run.curriculum(silent).ids() == begun


def test_the_same_task_is_known_again_whatever_the_order_of_its_fields(tmp_path: Path) -> None:
    file = sums(tmp_path / "rows.jsonl", rubric={"a": 1, "b": 2})
    run = Run(tmp_path / "run", learning(str(file)))
    run.curriculum(silent)
    kept = (tmp_path / "run" / "curriculum.json").read_text()
    rows = [json.loads(line) for line in sums(file, rubric={"b": 2, "a": 1}).read_text().splitlines()]
    file.write_text("".join(json.dumps(dict(reversed(row.items()))) + "\n" for row in rows))
    run.curriculum(silent)
    assert (tmp_path / "run" / "curriculum.json").read_text() == kept


def test_a_field_counts_where_somebody_may_read_it(tmp_path: Path) -> None:
    mine, file = tmp_path / "mine.py", str(sums(tmp_path / "rows.jsonl"))
    mine.write_text(OWN + "\n\ndef score(gold, text, task):\n    return True\n")
    built_in = Run(tmp_path / "built-in", learning(file))
    topology = Run(tmp_path / "topology", learning(file, f"{mine}:mine"))
    verifier = Run(tmp_path / "verifier", learning({"source": file, "verifier": f"{mine}:score"}))
    for run in map(answered, (built_in, topology, verifier)):
        run.curriculum(silent)
    sums(tmp_path / "rows.jsonl", note="b")
    built_in.curriculum(silent)
    for run in (topology, verifier):
        with pytest.raises(RunError, match=r"'t1' .*has changed"):
            run.curriculum(silent)


def test_a_run_that_has_kept_no_digests_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", learning(str(sums(tmp_path / "rows.jsonl"))))
    run.keep("curriculum", run.curriculum(silent).ids())
    sums(tmp_path / "rows.jsonl", answer="9")
    assert "9" in [task.answer for task in run.curriculum(silent).train + run.curriculum(silent).holdout]


HANDLED = {
    "base_url": "http://127.0.0.1:2/v1",
    "key_env": "OTHER_KEY",
    "timeout_s": 9.0,
    "retries": 1,
    "concurrency": 2,
    "requests_per_minute": 3.0,
    "tokens_per_minute": 4.0,
    "hedge_after_s": 5.0,
    "price": {"input": 2.0},
}


def seated(**actor: Any) -> Recipe:
    """A recipe with one stage and an actor behind an API."""
    team = {
        "collaborator": {"model": "m", "train": "full"},
        "actor": {"engine": "openai", "model": "a", "base_url": "http://127.0.0.1:1/v1", **actor},
    }
    return parse_recipe({"team": team, "topology": "hint", "stages": {"one": {"steps": 1}}})


@pytest.mark.parametrize("field", [*HANDLED, None])
def test_how_a_member_is_reached_and_paid_may_change_within_a_run(field: str | None, tmp_path: Path) -> None:
    before, after = seated(), seated(**(HANDLED if field is None else {field: HANDLED[field]}))
    run = Run(tmp_path / "run", before)
    run.stage("one", before.at("one", None), "")
    again = Run(tmp_path / "run", after)
    again.check_stages({"one": after.at("one", None)})
    stage = again.stage("one", after.at("one", None), "")
    for folder in (run.folder, stage.folder):
        assert Run(folder).recipe.team == after.team, "the record tells what was used last"


def test_what_the_trainee_is_paid_may_change_within_a_stage(tmp_path: Path) -> None:
    before = seated()
    paid = before.team["collaborator"].changed({"price": {"input": 2.0}})
    after = before.model_copy(update={"team": {**before.team, "collaborator": paid}})
    Run(tmp_path / "run", before).stage("one", before.at("one", None), "")
    stage = Run(tmp_path / "run", after).stage("one", after.at("one", None), "")
    assert Run(stage.folder).recipe.team == after.team


@pytest.mark.parametrize("model", ["b", "a"])
def test_a_judge_that_is_another_one_by_now_stays_on_record_whole(model: str, tmp_path: Path) -> None:
    def judged(**judge: Any) -> Recipe:
        verifier = {"name": "judge", "member": "judge"}
        data = seated().model_dump(mode="json", exclude_unset=True)
        sources = [{"source": "gsm8k", "verifier": verifier}]
        return parse_recipe({**data, "team": {**data["team"], "judge": judge}, "evaluate": {"benchmarks": sources}})

    api = {"engine": "openai", "model": "a", "base_url": "http://127.0.0.1:1/v1"}
    for was, now in ((judged(**api), judged(model=model)), (judged(model=model), judged(**api))):
        folder = tmp_path / was.team["judge"].engine
        Run(folder, was)
        assert Run(folder, now).recipe.team["judge"] == now.team["judge"]
        assert Run(folder).recipe.team["judge"] == was.team["judge"]


@pytest.mark.parametrize(
    ("field", "value"), [("model", "b"), ("extra", {"top_k": 1}), ("form", "completions"), ("revision", "2")]
)
def test_what_an_answer_depends_on_may_not(field: str, value: Any, tmp_path: Path) -> None:
    answered(Run(tmp_path / "run", seated()))
    with pytest.raises(RunError, match=rf"\(team.actor.{field}.* differ\); choose another folder with --run$"):
        Run(tmp_path / "run", seated(**{field: value}))


def test_a_run_by_which_nothing_was_answered_gives_way_to_another_recipe(tmp_path: Path) -> None:
    before, after = seated(), seated(model="b")
    with Run(tmp_path / "run", before) as run:
        run.keep("seated", {"": {}})
        run.checkpoints.mkdir()
        with run.stage("one", before.at("one", None), "") as stage:
            stage.keep("topology", {})
        answered(run, "failed")
    assert Run(tmp_path / "run", after).recipe == after
    assert Run(tmp_path / "run").recipe == before, "until somebody has the folder in hand"
    with Run(tmp_path / "run", after) as run:
        assert run.state("seated") == {}
        assert run.stage("one", after.at("one", None), "").recipe == after.at("one", None)
    assert Run(tmp_path / "run").recipe == after
    with closing(run.journal()) as journal:
        assert [turn.outcome for turn in journal.turns()] == ["failed"], "a try may have cost something"


@pytest.mark.parametrize(
    "left",
    [
        "checkpoints/checkpoint-1/x",
        "metrics.jsonl",
        "best/step.json",
        "collected.jsonl",
        "stages/one/metrics.jsonl",
        "x",
    ],
)
def test_a_run_that_holds_anything_else_does_not(left: str, tmp_path: Path) -> None:
    with Run(tmp_path / "run", seated()):
        pass
    file = tmp_path / "run" / left
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    with pytest.raises(RunError, match=r"team\.actor\.model differ"):
        Run(tmp_path / "run", seated(model="b"))


def test_a_recipe_in_a_folder_that_no_run_had_in_hand_stays(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(seated().dump())
    with pytest.raises(RunError, match=r"team\.actor\.model differ"):
        Run(tmp_path, seated(model="b"))


def test_a_run_in_which_another_process_is_at_work_does_not_give_way(tmp_path: Path) -> None:
    with Run(tmp_path / "run", seated()) as run:
        other = Run(tmp_path / "run", seated(model="b"))
        with pytest.raises(RunError, match="another process is at work"):
            other.__enter__()
        assert Run(tmp_path / "run").recipe == run.recipe
    answered(run)
    with pytest.raises(RunError, match=r"team\.actor\.model differ"):
        other.__enter__()
    with Run(tmp_path / "run"):
        """Nobody holds the lock."""


def test_own_files_and_tasks_may_be_mended_before_anything_is_answered(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    rows = sums(tmp_path / "rows.jsonl")
    with Run(tmp_path / "run", learning(str(rows), f"{tmp_path}/mine.py:mine")) as run:
        run.curriculum(silent)
        (tmp_path / "mine.py").write_text(OWN.replace("hi", "hello"))
        sums(rows, answer="9")
        run.curriculum(silent)
        sums(rows)
        with pytest.raises(RunError, match=r"'t1' .*has changed since"):
            answered(run).curriculum(silent)


def test_a_line_that_a_kill_left_unfinished_costs_no_other(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", parse_recipe({"team": {"actor": {"model": "m"}}, "topology": "solo"}))
    run.log({"kind": "step", "step": 1})
    with run.metrics.open("a") as file:
        file.write('{"kind": "step", "st')
    run.log({"kind": "step", "step": 2})
    run.log({"kind": "step", "step": 2, "reward": 1.0})
    assert [(row["step"], row.get("reward")) for row in run.logged()] == [(1, None), (2, 1.0)]


@pytest.mark.parametrize("left", ["", '{"count": ', "null", "\0\0"])
@pytest.mark.parametrize("name", WAYS_OUT)
def test_a_state_that_was_cut_off_is_named_with_the_way_out(name: str, left: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", parse_recipe({"team": {"actor": {"model": "m"}}, "topology": "solo"}))
    file = run.folder / ("best/step.json" if name == "step" else f"{name}.json")
    file.parent.mkdir(exist_ok=True)
    file.write_text(left)
    with pytest.raises(RunError, match=rf"{file}: empty or cut off, .*; (remove|write) .*"):
        run.best_step if name == "step" else run.state(name)


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, done = tmp_path / "state.json", []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(("on the disk", os.fstat(handle).st_size))
        fsync(handle)

    def named(old: Path, new: Path) -> None:
        done.append(("named", old.stat().st_size))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    write(file, "{}")
    assert done == [("on the disk", 2), ("named", 2)]
    assert file.read_text() == "{}"
