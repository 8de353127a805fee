"""Topologies x models x benchmarks x samples from one recipe: who is asked, what is charged, what is written."""

from __future__ import annotations

import gc
import json
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scipy import stats as referee

from board import board, said, seat, tasks_file
from mock_server import Call, MockServer
from pilotfish import Run, Sampling, seats
from pilotfish.cli import main
from pilotfish.engine.meter import MaxCostReached
from pilotfish.episode import calls
from pilotfish.evaluate.bench import Result, evaluate
from pilotfish.evaluate.table import Row
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.report.evaluation import read_evaluation
from pilotfish.team import Member
from tiny import save_tiny

BIG = {"big": {"actor": {"model": "big"}}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(reply=said) as opened:
        yield opened


def play(data: dict[str, Any], folder: Path) -> list[Result]:
    recipe = parse_recipe(data)
    with Run(folder, recipe) as run:
        return evaluate(recipe, run)


def record(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "results.json").read_text()))


def scores(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]


def files(folder: Path) -> dict[str, str]:
    """What an evaluation has written, without the time of day."""
    kept = {file.name: file.read_text() for file in folder.glob("results*") if file.suffix in (".csv", ".md")}
    told = {name: part for name, part in record(folder).items() if name != "written"}
    return {**kept, "results.json": json.dumps(told), "scores.jsonl": (folder / "scores.jsonl").read_text()}


def timeless(text: str) -> Any:
    """Figures without seconds, which differ between runs that both asked."""

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: kept(entry) for key, entry in value.items() if key != "seconds"}
        return [kept(entry) for entry in value] if isinstance(value, list) else value

    return kept(json.loads(text))


def test_the_whole_comparison_is_played_for_every_model_and_sample(server: MockServer, tmp_path: Path) -> None:
    first, second = play(board(tmp_path, server.base_url, models=BIG, samples=2), tmp_path / "run")
    names = ["vote", "reflect", "solo", "big: vote", "big: reflect", "big: solo"]
    assert [row.name for row in first.rows] == [row.name for row in second.rows] == names
    assert {(row.n, row.samples, row.failed) for row in first.rows} == {(6, 2, 0)}
    written = scores(tmp_path / "run")
    assert len(written) == 2 * 6 * 6 * 2
    places = {(line["benchmark"], line["arm"], line["model"], line["task"], line["sample"]) for line in written}
    assert len(places) == len(written)
    assert {line["model"] for line in written} == {"", "big"}
    vote = next(line for line in written if line["arm"] == "vote" and line["task"] == "t4")
    assert (vote["role"], vote["level"], vote["subject"], vote["calls"]) == ("baseline", 1, "sums", 3)
    assert vote["usage"]["actor"].keys() == {"prompt", "completion", "cached", "reasoning", "estimated"}


def test_controls_of_a_team_without_a_trainee_are_left_out_with_a_word(server: MockServer, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="controls are left out, since nobody in the team has `train`: empty, trainee"):
        (first, _) = play(board(tmp_path, server.base_url, controls=["empty", "trainee"]), tmp_path / "run")
    assert [row.name for row in first.rows] == ["vote", "reflect", "solo"]


def untrained(folder: Path, base_url: str, **evaluate: Any) -> dict[str, Any]:
    """A recipe whose adviser is not trained yet."""
    data = board(folder, base_url, **{"against": ["solo"], "controls": ["empty", "constant", "shuffled"], **evaluate})
    sampling = {"temperature": 0, "max_tokens": 2}
    collaborator = {"model": str(save_tiny(folder / "mind")), "train": "full", "sampling": sampling}
    return {**data, "topology": "hint", "team": {"collaborator": collaborator, **data["team"]}}


@pytest.mark.parametrize(
    ("changes", "told", "played"),
    [
        ({}, [": constant", ": big: constant"], ["solo", "hint, untrained", "empty words", "another task's words"]),
        (
            {"untrained": False},
            [
                " and with evaluate.untrained: false: empty, constant, shuffled",
                " and with evaluate.untrained: false: big: empty, big: constant, big: shuffled",
            ],
            ["solo"],
        ),
    ],
)
def test_controls_that_need_trained_weights_are_left_out_with_a_word(
    changes: dict[str, Any], told: list[str], played: list[str], server: MockServer, tmp_path: Path
) -> None:
    data = untrained(tmp_path, server.base_url, models=BIG, **changes)
    with pytest.warns(UserWarning, match="left out, for lack of") as warned:
        (first, _) = play(data, tmp_path / "run")
    lines = [str(one.message) for one in warned]
    assert lines == [f"evaluate.controls are left out, for lack of trained weights{more}" for more in told]
    assert [row.name for row in first.rows] == [*played, *(f"big: {name}" for name in played)]


@pytest.mark.filterwarnings("ignore:evaluate.controls are left out")
def test_an_evaluation_of_nothing_is_refused(server: MockServer, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"nothing is measured: no trained weights, evaluate\.untrained is"):
        play(untrained(tmp_path, server.base_url, untrained=False, against=[]), tmp_path / "run")
    assert not server.calls


def test_weights_of_a_team_without_a_trainee_are_left_out_with_a_word(server: MockServer, tmp_path: Path) -> None:
    data = board(tmp_path, server.base_url, against=[], weights={"zero-shot": "runs/nowhere"})
    with pytest.warns(UserWarning, match="weights are left out, since nobody in the team has `train`: zero-shot"):
        play(data, tmp_path / "run")


def test_the_servers_own_count_is_the_reports(server: MockServer, tmp_path: Path) -> None:
    play(board(tmp_path, server.base_url, models=BIG, samples=2), tmp_path / "run")
    told = [asked["actor"] for asked in record(tmp_path / "run")["asked"].values()]
    assert sum(asked["calls"] for asked in told) == server.calls
    assert sum(asked["prompt"] for asked in told) == server.prompt_tokens
    assert sum(asked["completion"] for asked in told) == server.completion_tokens
    money = (server.prompt_tokens + 2 * server.completion_tokens) / 1e6
    assert sum(asked["cost"] for asked in told) == pytest.approx(money)


def test_benchmarks_that_share_greedy_calls_count_each_once(server: MockServer, tmp_path: Path) -> None:
    data = board(tmp_path, server.base_url, against=[{"name": "reflect", "options": {"rounds": 2}}])
    data["team"]["actor"] = seat(server.base_url, temperature=0.0)
    tasks_file(tmp_path / "second.jsonl", 9)
    play(data, tmp_path / "run")
    told = record(tmp_path / "run")["asked"]
    for count, of in (
        ("calls", server.calls),
        ("prompt", server.prompt_tokens),
        ("completion", server.completion_tokens),
    ):
        assert sum(asked["actor"][count] for asked in told.values()) == of
    assert 0 < told["second"]["actor"]["calls"] < told["first"]["actor"]["calls"], "only of the questions that are new"


def test_calls_are_those_that_were_answered_in_every_figure(tmp_path: Path) -> None:
    def lost(call: Call) -> str | None:
        return "503" if "What is 3" in str(call.body["messages"]) else None

    with MockServer(reply="The answer is 1.", fault=lost) as server:
        (result, _) = play(board(tmp_path, server.base_url), tmp_path / "run")
    by_arm = {row.name: row for row in result.rows}
    assert by_arm["solo"].calls == by_arm["solo"].usage["actor"].calls / 5 == 1
    for row in result.rows:
        lines = [line for line in scores(tmp_path / "run") if (line["benchmark"], line["arm"]) == ("first", row.name)]
        assert sum(line["calls"] for line in lines) == row.usage["actor"].calls
        judged = [line for line in lines if line["reward"] is not None]
        assert sum(line["calls"] for line in judged) == row.counted[0]["actor"].calls == pytest.approx(5 * row.calls)


def test_an_outage_makes_no_method_cheaper(tmp_path: Path) -> None:
    """Of a method that asks five times, all calls but the first are lost on two of six tasks."""

    def lost(call: Call) -> str | None:
        asked = str(call.body["messages"])
        return "503" if "Your answer" in asked and any(f"What is {n} " in asked for n in (3, 4)) else None

    def played(folder: Path, fault: Callable[[Call], str | None]) -> Row:
        folder.mkdir()
        against = [{"name": "reflect", "options": {"rounds": 2}}]
        with MockServer(reply="The answer is 1.", fault=fault) as server:
            (result, _) = play(board(folder, server.base_url, against=against), folder / "run")
        (points,) = [points for arm, points in result.budgets.items() if arm == "reflect"]
        assert [point.calls for point in points] == [3, 5]
        return next(row for row in result.rows if row.name == "reflect")

    up, down = played(tmp_path / "up", lambda call: None), played(tmp_path / "down", lost)
    assert (up.failed, down.failed) == (0, 2)
    for name in ("calls", "tokens_per_member", "cost_per_task"):
        assert getattr(down, name) == pytest.approx(getattr(up, name), rel=0.02), name
    assert down.usage["actor"].calls < up.usage["actor"].calls, "the sums are of all episodes"
    page = (tmp_path / "down/run/results.md").read_text()
    assert page.count("| reflect | actor | 5 |") == 2, "on both benchmarks"
    kept, made = record(tmp_path / "down/run")["first"][0], read_evaluation(tmp_path / "down/run").benchmarks["first"]
    assert made.cost(kept) == pytest.approx(down.cost_per_task)
    assert made.counted(kept)[1] == 4


def test_an_evaluation_goes_on_elsewhere_at_another_price_and_counts_all_by_that(tmp_path: Path) -> None:
    def down(call: Call) -> str | None:
        return "503" if "What is 3" in str(call.body["messages"]) else None

    with MockServer(reply="The answer is 1.", fault=down) as first:
        play(board(tmp_path, first.base_url), tmp_path / "run")
    before = record(tmp_path / "run")["first"]
    with MockServer(reply="The answer is 1.") as second:
        data = board(tmp_path, second.base_url)
        data["team"]["actor"]["price"] = {"input": 10, "output": 20}
        play(data, tmp_path / "run")
        assert 0 < second.calls < first.calls
        assert all("What is 3" in str(call.body["messages"]) for call in second.requests)
    for was, now in zip(before, record(tmp_path / "run")["first"], strict=True):
        assert (was["failed"], now["failed"]) == (1, 0)
        assert now["cost"] == pytest.approx(10 * was["cost"] * 6 / 5, rel=0.05)
    assert Run(tmp_path / "run").recipe.team["actor"].base_url == second.base_url


TIMED = """
import time

from pilotfish import topology


@topology
async def timed(task, room):
    return await room.ask("actor", f"{task.question} It is {time.time_ns()}.", final=True)
"""


def test_a_method_whose_prompts_differ_between_two_plays_is_told(server: MockServer, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TIMED)
    data = board(tmp_path, server.base_url, against=[f"{tmp_path}/mine.py:timed"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(data, tmp_path / "run")
    with pytest.warns(UserWarning, match="timed asked 12 calls in place of others that its record holds: ") as warned:
        play(data, tmp_path / "run")
    assert len(warned) == 1, "solo is asked what it was asked"


def test_other_calls_than_the_record_holds_are_told_when_they_are_made_and_not_again(
    server: MockServer, tmp_path: Path
) -> None:
    file, data = tmp_path / "mine.py", board(tmp_path, server.base_url, against=[f"{tmp_path}/mine.py:timed"])
    file.write_text(TIMED.replace("time.time_ns()", "1"))
    play(data, tmp_path / "run")
    file.write_text(TIMED.replace("time.time_ns()", "2"))
    with pytest.warns(UserWarning, match="timed asked 12 calls in place of others"):
        play(data, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(data, tmp_path / "run")


@pytest.mark.filterwarnings("error")
def test_what_failed_is_asked_again_without_a_word(tmp_path: Path) -> None:
    def lost(call: Call) -> str | None:
        return "503" if call.number % 5 == 0 else None

    with MockServer(reply=said, fault=lost) as server:
        for _ in range(3):
            play(board(tmp_path, server.base_url), tmp_path / "run")
        assert server.calls > 12


def test_a_call_that_methods_share_is_made_once_and_charged_to_each(server: MockServer, tmp_path: Path) -> None:
    data = board(tmp_path, server.base_url)
    play({**data, "evaluate": {**data["evaluate"], "against": [data["evaluate"]["against"][0]]}}, tmp_path / "run")
    assert server.calls == 2 * 6 * 3, "solo's answer is the vote's first"
    vote, solo = record(tmp_path / "run")["first"]
    assert (vote["usage"]["actor"]["calls"], solo["usage"]["actor"]["calls"]) == (18, 6)


def test_a_model_does_not_answer_for_another_and_a_member_that_stays_is_not_asked_again(
    server: MockServer, tmp_path: Path
) -> None:
    data = board(tmp_path, server.base_url, models={"big": {"actor": {"model": "big"}}})
    data["team"]["helper"] = seat(server.base_url, "helper")
    data["topology"] = {"name": "hint", "prompts": {"advise": {"user": "Advise. {question}"}}}
    data["team"]["collaborator"] = seat(server.base_url, "adviser")
    data["evaluate"]["against"] = ["solo"]
    play(data, tmp_path / "run")
    asked = [call.body["model"] for call in server.requests]
    assert asked.count("adviser") == 12, "the same hint goes to both"
    assert (asked.count("small"), asked.count("big")) == (24, 24)
    for name in ("other", "big"):
        data["evaluate"]["models"] = {name: {"actor": {"model": "other"}}}
        play(data, tmp_path / "run")
    assert [call.body["model"] for call in server.requests].count("other") == 24, "by what it is, not by its name"


def test_a_greedy_model_beside_the_sampled_one_is_asked_once_for_all_samples(
    server: MockServer, tmp_path: Path
) -> None:
    greedy = {"greedy": {"actor": {"sampling": {"temperature": 0}}}}
    data = board(tmp_path, server.base_url, models=greedy, samples=4)
    (result, _) = play({**data, "evaluate": {**data["evaluate"], "against": []}}, tmp_path / "run")
    temperatures = [call.body["temperature"] for call in server.requests]
    assert (temperatures.count(0.7), temperatures.count(0)) == (2 * 6 * 4, 6), "two benchmarks of the same questions"
    assert {call.body["max_tokens"] for call in server.requests} == {99}
    assert [row.name for row in result.rows] == ["solo", "greedy: solo"]


def test_samples_of_a_greedy_team_are_one_and_a_warning_says_so(server: MockServer, tmp_path: Path) -> None:
    data = board(tmp_path, server.base_url, samples=3, against=[])
    data["team"]["actor"]["sampling"]["temperature"] = 0
    with pytest.warns(UserWarning, match=r"samples is 3, .* set team.actor.sampling.temperature"):
        play(data, tmp_path / "run")


def test_keys_of_a_recipes_own_team_stay_what_they_were() -> None:
    member = Member("actor", "m", False, Sampling(temperature=0.7))
    call = calls.Call(member, [{"role": "user", "content": "2 + 2?"}], (0,), (0, 1), ("0.1",), 1, False, None)
    own = calls.Scopes("eval/b/t/0")
    assert calls.name(call, own, 0, "id", {}) == ("9a29e7bb5345a2b7c14fd6029675cf08", "eval/b/t/0")
    others = [calls.Scopes("eval/b/t/0", deployments={"actor": model}) for model in ("one", "two")]
    assert len({calls.name(call, scopes, 0, "id", {})[0] for scopes in (own, *others)}) == 3
    elsewhere = calls.Scopes("eval/b/t/0", deployments={"somebody": "one"})
    assert calls.name(call, elsewhere, 0, "id", {}) == calls.name(call, own, 0, "id", {})


def test_a_failed_task_is_shown_and_counted_and_never_wrong(tmp_path: Path) -> None:
    def lost(call: Call) -> str | None:
        return "503" if "What is 3" in str(call.body["messages"]) else None

    with MockServer(reply="The answer is 1.", fault=lost) as server:
        (result, _) = play(board(tmp_path, server.base_url, samples=2), tmp_path / "run")
        solo = result.rows[-1]
        assert (solo.n, solo.unjudged, solo.failed, solo.accuracy) == (5, 1, 2, pytest.approx(1 / 5))
        lines = [line for line in scores(tmp_path / "run") if line["arm"] == "solo" and line["task"] == "t3"]
        assert {(line["reward"], line["answer"]) for line in lines} == {(None, None)}
        assert all("no answer in 1 tries" in line["why"] for line in lines)
        assert "| failed |" in (tmp_path / "run" / "results.md").read_text()
        server.fault = None
        (result, _) = play(board(tmp_path, server.base_url, samples=2), tmp_path / "run")
    assert (result.rows[-1].n, result.rows[-1].failed) == (6, 0), "what has failed is asked again"


@pytest.mark.parametrize("stop_at", [1, 60])
def test_stopped_at_any_call_and_gone_on_with_the_same_tables_come_out(stop_at: int, tmp_path: Path) -> None:
    def stop(call: Call) -> str | None:
        return "401" if call.number >= stop_at else None  # refused: the run ends here

    with MockServer(reply=said) as server:
        play(board(tmp_path, server.base_url, models=BIG, samples=2), tmp_path / "whole")
        whole = server.calls
    with MockServer(reply=said, fault=stop) as server:
        data = board(tmp_path, server.base_url, models=BIG, samples=2, concurrency=4)
        with pytest.raises(Exception, match="401"):
            play(data, tmp_path / "run")
        answered, server.fault = server.answered, None
        assert answered < whole
        play(data, tmp_path / "run")
        assert server.answered <= whole + 4 * 3, "paid again at most what was in flight: four votes of three"
        again = files(tmp_path / "run")
        play(data, tmp_path / "run")
        assert files(tmp_path / "run") == again, "seconds come from the journal"
    assert timeless(again["results.json"]) == timeless(files(tmp_path / "whole")["results.json"])


def test_tokens_that_no_server_counted_are_marked(tmp_path: Path) -> None:
    with MockServer(reply="The answer is 1.", usage=False) as server:
        play(board(tmp_path, server.base_url), tmp_path / "run")
    page = (tmp_path / "run" / "results.md").read_text()
    assert "| solo | actor | 1 | ~" in page
    assert record(tmp_path / "run")["first"][2]["usage"]["actor"]["estimated"] is True


def test_cached_and_reasoning_tokens_are_told_and_a_cached_one_has_its_own_price(tmp_path: Path) -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 600},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }
    choice = {"index": 0, "message": {"content": "The answer is 1."}, "finish_reason": "stop"}
    with MockServer(reply=lambda body: {"usage": usage, "choices": [choice]}) as server:
        data = board(tmp_path, server.base_url, against=[])
        data["team"]["actor"]["price"] = {"input": 10, "output": 20, "cached": 1}
        (result, _) = play(data, tmp_path / "run")
    used = result.rows[0].usage["actor"]
    assert (used.prompt, used.cached, used.completion, used.reasoning) == (6000, 3600, 600, 240)
    assert used.cost == pytest.approx((2400 * 10 + 3600 * 1 + 600 * 20) / 1e6)
    assert "| solo | actor | 1 | 1,000 | 600 | 100 | 40 |" in (tmp_path / "run" / "results.md").read_text()


def test_p_values_are_mcnemars_after_holm_and_only_where_there_is_one_answer_a_task(
    server: MockServer, tmp_path: Path
) -> None:
    (result, _) = play(board(tmp_path, server.base_url, tasks=30, models=BIG), tmp_path / "run")
    pairs = {(row.name, other): gap for row in result.rows for other, gap in row.difference_to.items()}
    raw = {pair: referee.binomtest(gap.better, max(1, gap.better + gap.worse)).pvalue for pair, gap in pairs.items()
           if gap.better + gap.worse}  # fmt: skip
    found = {(row.name, other): p for row in result.rows for other, p in row.p.items()}
    assert {pair: found[pair] for pair in raw} == pytest.approx(raw)
    assert set(found) == set(pairs)
    adjusted = {(row.name, other): p for row in result.rows for other, p in row.adjusted_p.items()}
    smallest = min(found, key=lambda pair: found[pair])
    assert adjusted[smallest] == pytest.approx(min(1, len(found) * found[smallest]))
    assert all(adjusted[pair] >= found[pair] for pair in found)
    written = scores(tmp_path / "run")
    solo = [line["reward"] for line in written if (line["benchmark"], line["arm"]) == ("first", "solo")]
    assert result.rows[2].standard_error == pytest.approx(referee.sem(solo))
    assert "at 80 % power this needs about" in (tmp_path / "run" / "results.md").read_text()
    (sampled, _) = play(board(tmp_path, server.base_url, samples=2), tmp_path / "other")
    assert not any(row.p or row.adjusted_p for row in sampled.rows)


@pytest.mark.parametrize(
    ("models", "why"),
    [
        ({"x": {"nobody": {"model": "m"}}}, r"models\.x\.nobody: nobody of that name in the team; there are: actor"),
        ({"x": {"actor": {"modle": "m"}}}, r"models\.x\.actor\.modle: no such field"),
        ({"x": {"actor": {"train": "lora"}}}, "train cannot change"),
        ({"a: b": {}}, "one is called 'a: b'"),
    ],
)
def test_a_wrong_model_is_refused_by_its_place(models: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=why):
        parse_recipe(board(tmp_path, "http://127.0.0.1:1/v1", models=models))


def test_eval_draws_the_curve_and_tells_samples(
    server: MockServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("own.yaml").write_text(json.dumps(board(tmp_path, server.base_url, samples=2)))
    assert main(["eval", "own.yaml"]) == 0
    out, err = capfd.readouterr()
    assert "first: vote: 6 tasks x 2 samples" in err
    assert "Several samples a task, %" in out
    assert "within so many calls a" in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("in runs/own")) <= 80
    assert Path("runs/own/results-first-budget.png").read_bytes().startswith(b"\x89PNG")


def test_all_is_spent_says_how_far_it_came(server: MockServer, tmp_path: Path) -> None:
    data = {**board(tmp_path, server.base_url, concurrency=2), "max_cost": 0.0003}
    with pytest.raises(MaxCostReached, match=r"max_cost is 0.0003.* \d+ of about 36 episodes are played"):
        play(data, tmp_path / "run")


def test_a_teams_weights_are_let_go_before_the_next_teams_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[weakref.ref[Any]] = []
    held: list[int] = []

    def load(member: Any, dtype: str) -> Any:
        gc.collect()
        held.append(sum(model() is not None for model in loaded))
        model, tokenizer = seats_module_load(member, dtype)
        loaded.append(weakref.ref(model))
        return model, tokenizer

    seats_module_load = seats._load
    monkeypatch.setattr(seats, "_load", load)
    names = {name: str(save_tiny(tmp_path / name)) for name in ("own", "one", "two")}
    data = board(tmp_path, "", against=[], models={name: {"actor": {"model": names[name]}} for name in ("one", "two")})
    data["team"]["actor"] = {"model": names["own"], "sampling": {"max_tokens": 2}}
    (result, _) = play(data, tmp_path / "run")
    assert [row.name for row in result.rows] == ["solo", "one: solo", "two: solo"]
    assert held == [0, 0, 0]
