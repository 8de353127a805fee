"""What a recipe will ask for, against figures that can be worked out by hand; nothing is loaded or asked."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pilotfish.cli import main
from pilotfish.engine.base import Completion
from pilotfish.episode import Journal, Turn
from pilotfish.preflight.estimate import estimate_recipe
from pilotfish.preflight.filler import Tally
from pilotfish.preflight.lengths import Length
from pilotfish.preflight.measured import measured
from pilotfish.preflight.memory import in_each, measure, memory
from pilotfish.preflight.room import divided, places
from pilotfish.recipe import Recipe, RecipeError, parse_recipe
from pilotfish.team import Sampling, Usage

Make = Callable[..., dict[str, Any]]
Gpu = Callable[[float | None], None]
GREEDY = {"temperature": 0.0, "max_tokens": 40}
FROZEN = {"engine": "openai", "model": "some", "base_url": "http://localhost:9/v1", "price": {"input": 1, "output": 2}}


def tasks_file(file: Path, count: int, prefix: str) -> str:
    rows = [
        {"id": f"{prefix}{n}", "question": f"{prefix} question number {n:04d}?", "answer": "1"} for n in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Has this machine own one GPU of so many GiB, or none."""

    def owned(gib: float | None) -> None:
        size = int((gib or 0) * 2**30)
        monkeypatch.setattr("pilotfish.preflight.room.DRIVERS", ["/"])
        monkeypatch.setattr("torch.cuda.is_available", lambda: gib is not None)
        monkeypatch.setattr("torch.cuda.device_count", lambda: 0 if gib is None else 1)
        monkeypatch.setattr("torch.cuda.mem_get_info", lambda number: (size, size))

    return owned


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A recipe's data; 40 tasks to train on, 10 held out, 20 to evaluate on."""
    train, test = tasks_file(tmp_path / "train.jsonl", 50, "alpha"), tasks_file(tmp_path / "test.jsonl", 20, "beta")

    def recipe(topology: str | dict[str, Any] = "hint", **changes: Any) -> dict[str, Any]:
        return {
            "tasks": {"train": train, "holdout": 10},
            "team": {
                "collaborator": {"model": "own/model-3B", "train": "full", "sampling": {**GREEDY, "max_tokens": 20}},
                "actor": {**FROZEN, "sampling": GREEDY},
            },
            "topology": topology,
            "train": {
                "group_size": 4,
                "tasks_per_step": 4,
                "micro_batch": 4,
                "updates_per_step": 1,
                "evaluate_every": 4,
            },
            "evaluate": {"benchmarks": [test], "against": ["solo"]},
            **changes,
        }

    return recipe


def calls(data: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    return {(line.stage, line.member): round(line.likely.calls) for line in estimate_recipe(parse_recipe(data)).lines}


def test_hint_asks_for_a_hint_and_an_answer_a_row(make: Make) -> None:
    found = calls(make())
    assert found == {
        ("training", "collaborator"): 160,  # 10 steps x 4 tasks x 4 rows
        ("training", "actor"): 160 + 40,  # and once a task alone, to compare with
        ("holdout", "collaborator"): 40,  # before, after steps 4 and 8, and at the end: 4 x 10
        ("holdout", "actor"): 40,
        ("solo", "actor"): 20,
        ("hint, untrained", "collaborator"): 20,
        ("hint, untrained", "actor"): 20,
        ("hint, trained", "collaborator"): 20,
        ("hint, trained", "actor"): 20,
    }


def test_a_group_of_the_critic_shares_its_draft(make: Make) -> None:
    found = calls(make("critic"))
    assert found["training", "collaborator"] == 160
    assert found["training", "actor"] == 40 + 160  # the draft is the actor's answer alone
    assert found["holdout", "actor"] == 10 + 40  # drafts are made once, at temperature 0
    assert found["solo", "actor"] == 20
    assert found["critic, trained", "actor"] == 20


def test_tasks_that_are_met_again_cost_what_cannot_be_shared(make: Make) -> None:
    once, twice = make("critic"), make("critic")
    twice["train"] = {**twice["train"], "epochs": 2}
    assert calls(twice)["training", "actor"] == calls(once)["training", "actor"] + 160
    sampled = make("critic", team={**make()["team"], "actor": {**FROZEN, "sampling": {**GREEDY, "temperature": 1.0}}})
    assert calls(sampled)["training", "actor"] == 40 + 40 + 160  # a draft of its own for the comparison


def test_controls_are_counted_with_the_search_for_the_constant_words(make: Make) -> None:
    data = make()
    data["evaluate"] = {**data["evaluate"], "controls": ["empty", "constant", "shuffled", "trainee"]}
    found = calls(data)
    assert found["collaborator alone", "collaborator"] == 20
    assert found["empty words", "actor"] == 20
    assert found["another task's words", "actor"] == 20
    assert found["best constant words", "actor"] == 20
    assert (
        found["search for constant words", "actor"] == 10 * 10 - 10
    )  # each of 10 hints on each of 10 tasks, but for its own


def test_a_team_without_a_trainee_is_only_evaluated(make: Make) -> None:
    found = calls(make("solo", team={"actor": {**FROZEN, "sampling": GREEDY}}, train={}))
    assert set(found) == {("solo", "actor")}


def test_tokens_and_money_are_bounded_by_the_members_limits(make: Make) -> None:
    recipe = parse_recipe(make())
    solo = next(line for line in estimate_recipe(recipe).lines if line.stage == "solo")
    characters = len("beta question number 0000?\n") + len(instruction(recipe))
    assert solo.likely == Tally(20, 20 * characters / 4, 20 * 20)
    assert solo.most == Tally(20, 20 * characters / 4, 20 * 40)
    likely, most = (20 * characters / 4 + 2 * 400) / 1e6, (20 * characters / 4 + 2 * 800) / 1e6
    assert solo.cost() == pytest.approx((likely, likely, most))


def instruction(recipe: Recipe) -> str:
    from pilotfish.task import load_tasks

    return load_tasks(recipe.evaluate.benchmarks[0])[0].instruction


def test_a_longer_hint_makes_a_longer_prompt(make: Make) -> None:
    found = {(line.stage, line.member): line for line in estimate_recipe(parse_recipe(make())).lines}
    actor = found["hint, trained", "actor"]
    assert 20 * 9 <= actor.most.prompt - actor.likely.prompt <= 20 * 11  # 20 tokens of hint and not 10


def test_lengths_come_from_what_a_run_has_recorded(make: Make, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for number, tokens in enumerate((4, 8)):
        done = Completion("x", "stop", Usage(3, tokens))
        messages = [{"role": "user", "content": str(number)}]
        journal.record(Turn(str(number), "s", "actor", 0, messages, Sampling(), "answered", done))  # type: ignore[arg-type]
    journal.record(Turn("lost", "s", "actor", 0, [], Sampling(), "failed", None))
    means = measured(journal.turns())
    journal.close()
    found = estimate_recipe(parse_recipe(make()), means)
    assert found.lengths["actor"] == Length(likely=6.0, least=2.0, most=10.0, measured=2), "two standard errors"
    assert found.lengths["collaborator"] == Length(likely=10.0, least=10.0, most=20.0)
    solo = next(line for line in found.lines if line.stage == "solo")
    assert [tally.completion for tally in (solo.likely, solo.least, solo.most)] == [20 * 6, 20 * 2, 20 * 10]
    characters = len("beta question number 0000?\n") + len(instruction(parse_recipe(make())))
    assert solo.likely.prompt == pytest.approx(20 * characters / 4 * 12), "3 tokens for a prompt of one character"
    assert found.rough == ("collaborator",)


def test_a_trainee_that_is_never_asked_is_named(make: Make) -> None:
    with pytest.raises(RecipeError, match="solo asks collaborator for 0 decisions"):
        estimate_recipe(parse_recipe(make("solo")))


def test_estimating_imports_no_torch_and_asks_nobody(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(make()))
    script = (
        "import sys; from pilotfish.cli import main; from pilotfish.preflight import room; room.DRIVERS = ()\n"
        f"code = main(['estimate', {str(file)!r}])\n"
        "print(code, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "0 False"


def test_the_table_fits_80_columns_and_says_what_is_a_guess(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(make()))
    assert main(["estimate", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "half of max_tokens, a guess" in shown
    assert "characters / 4, an estimate" in shown
    assert "10 training steps" in shown
    assert max(len(line) for line in shown.splitlines() if "┃" not in line and "a guess" not in line) <= 80


def write_weights(folder: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header = {name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw)


CONFIG = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 100,
    "tie_word_embeddings": True,
}


def test_weights_are_counted_by_headers_then_config_then_name(tmp_path: Path) -> None:
    stored, planned = tmp_path / "stored", tmp_path / "planned"
    write_weights(stored, {"a": (3, 4), "b": (5,)})
    planned.mkdir()
    (planned / "config.json").write_text(json.dumps(CONFIG))
    layer = 8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 16
    assert (measure(str(stored)).parameters, measure(str(stored)).known_from) == (17, "safetensors")
    assert (measure(str(planned)).parameters, measure(str(planned)).known_from) == (800 + 2 * layer, "config.json")
    assert measure("Qwen/Qwen2.5-Math-7B").parameters == 7e9
    assert measure("HuggingFaceTB/SmolLM2-135M-Instruct").parameters == 135e6
    assert measure("own/unknown").parameters is None


def test_a_fully_trained_model_takes_weights_copy_gradients_and_optimizer(make: Make) -> None:
    (held,) = memory(parse_recipe(make()))
    assert held.parts == {"weights": 12e9, "engine's copy": 6e9, "gradients": 12e9, "optimizer": 24e9}
    paper = make()
    paper["train"] = {**paper["train"], "profile": "paper"}
    (held,) = memory(parse_recipe(paper))
    assert held.parts is not None
    assert held.parts["reference"] == 12e9


def test_logits_are_a_tile_and_all_trained_weights_have_casts(tmp_path: Path, make: Make) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    layers = 2 * (8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 16)
    data = make()
    data["team"]["collaborator"]["model"] = str(tmp_path)
    (held,) = memory(parse_recipe(data))
    assert held.parts is not None
    assert held.parts["logits"] == 2 * 4 * 20 * 100 + 4 * 100 * 8, "4 rows x 20 tokens x 100 words; the head's gradient"
    assert held.parts["bfloat16 casts"] == 2 * layers
    data["team"]["collaborator"]["train"] = "lora"
    (held,) = memory(parse_recipe(data))
    assert held.parts is not None
    assert (held.parts["logits"], "bfloat16 casts" in held.parts) == (2 * 4 * 20 * 100, False)
    data["train"] |= {"micro_batch": 16, "group_size": 16}
    data["team"]["collaborator"]["sampling"]["max_tokens"] = 1000
    (held,) = memory(parse_recipe(data))
    assert held.parts is not None
    assert held.parts["logits"] == 2 * 4096 * 100, "no more than 4,096 tokens at once"


def test_fine_tuning_an_adapter_stands_on_float32(tmp_path: Path, make: Make) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    data = staged(make)
    data["team"]["leader"] |= {"model": str(tmp_path), "train": "lora"}
    (held,) = memory(parse_recipe(only(data, "answers", "sft")))
    assert held.parts is not None
    assert held.parts["weights"] == 4 * (measure(str(tmp_path)).parameters or 0)
    assert "bfloat16 casts" in held.parts


def test_gemma_ties_its_head_where_its_config_says_nothing(tmp_path: Path) -> None:
    plain = {name: value for name, value in CONFIG.items() if name != "tie_word_embeddings"}
    sizes = []
    for kind in ("llama", "gemma2"):
        (tmp_path / "config.json").write_text(json.dumps({**plain, "model_type": kind}))
        sizes.append(measure(str(tmp_path)).parameters or 0)
    assert sizes[0] - sizes[1] == 100 * 8


@pytest.mark.parametrize(
    ("gib", "train", "said"),
    [
        (None, "full", "Weights take at least 50.3 GiB of GPU 0; one of 80 GB holds them."),
        (80, "full", "Weights take at least 50.3 GiB of GPU 0, which has 80."),
        (
            48,
            "full",
            "which has 48. They do not fit; use `train: lora` at collaborator, or put",
        ),
    ],
)
def test_what_a_gpu_has_to_hold_is_compared_with_it(
    gib: float | None, train: str, said: str, make: Make, tmp_path: Path, gpu: Gpu, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu(gib)
    data = make()
    data["team"]["collaborator"]["train"] = train
    (tmp_path / "mine.yaml").write_text(json.dumps(data))
    assert main(["estimate", str(tmp_path / "mine.yaml")]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_each_gpu_holds_what_is_put_on_it_beside_the_servers_there(make: Make, gpu: Gpu) -> None:
    gpu(80)
    data = make()
    data["team"]["judge"] = {"model": "own/judge-40B", "device": "cuda:0"}
    data["team"]["other"] = {"model": "own/other-7B", "device": "cpu"}
    data["team"]["actor"] = {"engine": "vllm", "model": "own/actor-8B", "vllm": {"memory": 0.5}}
    data["team"]["collaborator"]["device"] = "cuda:1"
    recipe = parse_recipe(data)
    first, second = places(recipe, memory(recipe))
    assert (first.gpu, first.fits, first.full) == (0, False, "")
    assert first.what.endswith("which has 80, 0.5 of which is its servers'")
    assert (second.gpu, second.total, second.smallest) == (1, None, 80)


def test_what_no_common_gpu_holds_is_told(make: Make, gpu: Gpu) -> None:
    gpu(None)
    data = make()
    data["team"]["collaborator"]["model"] = "own/model-9B"
    recipe = parse_recipe(data)
    (place,) = places(recipe, memory(recipe))
    assert "no common one holds them (141 GB is the largest). They do not fit" in place.sentence


def test_what_processes_divide_is_told_of_a_trainee_that_a_small_gpu_does_not_hold(
    make: Make, tmp_path: Path, gpu: Gpu, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 9e9 weights 16 bytes are divided and 2, the engine's copy, are not; to begin, each process has 6 of each."""
    gpu(80)
    data = make()
    data["team"]["collaborator"]["model"] = "own/model-9B"
    (tmp_path / "mine.yaml").write_text(json.dumps(data))
    assert main(["estimate", str(tmp_path / "mine.yaml")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Divided among 2, 4 or 8 processes" in said
    assert "collaborator takes 84, 50 or 50 GiB of each GPU." in said
    for change in ({"train": "lora"}, {"model": "own/model-1B"}, {"device": "cpu"}):
        other = make()
        other["team"]["collaborator"] |= {"model": "own/model-9B", **change}
        recipe = parse_recipe(other)
        assert divided(recipe, memory(recipe)) == ""


def test_what_lies_outside_the_layers_is_whole_while_it_computes(tmp_path: Path, make: Make) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    data = make()
    data["team"]["collaborator"]["model"] = str(tmp_path)
    (held,) = memory(parse_recipe(data))
    weights, logits = 800 + 2 * (8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 16), 2 * 4 * 20 * 100 + 4 * 100 * 8
    assert in_each(held, 4) == 16 * weights / 4 + 2 * weights + logits + 8 * 800


def test_a_lora_shares_its_base_with_a_frozen_seat(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_weights(
        folder, {"model.embed_tokens.weight": (100, 8), "layers.0.q.weight": (8, 8), "layers.1.q.weight": (8, 4)}
    )
    lora = {"model": str(folder), "train": {"rank": 2, "layers": 1}}
    team = {"collaborator": lora, "actor": {"model": str(folder)}}
    (held,) = memory(parse_recipe({"team": team, "topology": "hint"}))
    assert held.members == ("collaborator", "actor")
    weights = 800 + 64 + 32
    adapter = 2 * (8 + 4)
    assert held.parts == {
        "weights": 2 * weights,
        "engine's copy": 2 * weights,
        "adapter": 4 * adapter,
        "gradients": 4 * adapter,
        "optimizer": 8 * adapter,
    }


def test_a_model_of_unknown_size_makes_its_device_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"team": {"actor": {"model": "own/unknown"}}, "topology": "solo"}))
    assert main(["estimate", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "size unknown" in shown
    assert "device auto" in shown


def staged(make: Make, topology: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A leader over two agents, and the stages of MLPO+: 40 tasks, 4 sets of answers."""
    agent = {**FROZEN, "sampling": {"temperature": 0.7, "max_tokens": 40}}
    grpo = {"group_size": 4, "tasks_per_step": 4, "micro_batch": 4, "updates_per_step": 1, "evaluate_every": 20}
    grpo["horizon"] = "decision"
    data = {
        "team": {"leader": {"model": "own/model-3B", "train": "full", "sampling": GREEDY}, "ann": agent, "bob": agent},
        "stages": {
            "answers": {"method": "collect"},
            "sft": {"method": "backtrack", "samples": 6},
            "mlpo": {**grpo, "prefix": "stored"},
            "shaped": {"method": "collect", "rounds": [1, 2]},
            "mlpo+": {**grpo, "prefix": "shaped", "decision": [1, 2]},
        },
        "evaluate": {**make()["evaluate"], "against": [{"name": "solo", "options": {"member": "ann"}}]},
        **changes,
    }
    made = make({"name": "leader", "options": {"rounds": 3, **(topology or {})}}, **data)
    return {name: value for name, value in made.items() if name != "train"}


def only(data: dict[str, Any], *stages: str, **changes: Any) -> dict[str, Any]:
    """The recipe with some of its stages, and changes in the last of them."""
    kept = {name: data["stages"][name] for name in stages}
    kept[stages[-1]] = {**kept[stages[-1]], **changes}
    return {**data, "stages": kept, "evaluate": {"against": data["evaluate"]["against"]}}


def test_each_stage_is_charged_what_no_stage_before_it_has_asked(make: Make) -> None:
    data = staged(make)
    assert calls(data) == {
        ("answers: collect", "ann"): 160,  # 40 tasks x 4 sets
        ("answers: collect", "bob"): 160,
        ("sft: samples", "leader"): 240,  # 40 tasks x 6
        ("sft: chains, at most", "leader"): 40,
        ("mlpo: training", "leader"): 640,  # 160 groups x 4 rows; the agents' answers are there
        ("mlpo: training", "ann"): 40,  # once a task alone, to compare with
        ("mlpo: holdout", "leader"): 90,  # 3 evaluations x 10 tasks x 3 turns
        ("mlpo: holdout", "ann"): 70,  # round 0 once, rounds 1 and 2 at each evaluation
        ("mlpo: holdout", "bob"): 70,
        ("shaped: collect", "leader"): 320,  # turns 0 and 1 of each set
        ("shaped: collect", "ann"): 320,
        ("shaped: collect", "bob"): 320,
        ("mlpo+: training", "leader"): 1280,  # 160 sets x 2 decisions x 4 rows
        ("mlpo+: holdout", "leader"): 150,  # 80 steps: 5 evaluations
        ("mlpo+: holdout", "ann"): 110,
        ("mlpo+: holdout", "bob"): 110,
        ("solo", "ann"): 20,
        ("leader, untrained", "leader"): 60,
        ("leader, untrained", "ann"): 40,  # its round 0 is solo's answer
        ("leader, untrained", "bob"): 60,
        **{(f"leader, {stage}", "leader"): 60 for stage in ("sft", "mlpo", "mlpo+")},
        **{(f"leader, {stage}", agent): 40 for stage in ("sft", "mlpo", "mlpo+") for agent in ("ann", "bob")},
    }
    found = estimate_recipe(parse_recipe(data))
    assert found.steps == 40 + 80
    assert found.notes == (
        "Steps: mlpo 40, mlpo+ 80.",
        "sft, mlpo, mlpo+: counted on all 40 tasks; the filter (`collect.drop_right`) leaves fewer.",
    )


def test_a_stage_whose_answers_nobody_collected_asks_for_them_once(make: Make) -> None:
    data = staged(make)
    data["stages"]["again"] = data["stages"]["mlpo"]
    found = calls(only(data, "mlpo", "again"))
    assert found["mlpo: training", "leader"] == found["again: training", "leader"] == 640
    assert found["mlpo: training", "ann"] == 160 + 40
    assert found["mlpo: training", "bob"] == 160
    assert ("again: training", "bob") not in found
    notes = estimate_recipe(parse_recipe(only(data, "mlpo", "again"))).notes
    assert notes[1].startswith("mlpo: stored answers: no stage collects before it")


def test_backtracking_asks_for_answers_that_are_not_there_and_no_spliced_chains(make: Make) -> None:
    data = only(staged(make), "sft", samples=3, chains="spliced")
    assert calls(data) == {
        ("sft: samples", "leader"): 120,
        ("sft: samples", "ann"): 120,  # three of the four sets
        ("sft: samples", "bob"): 120,
    }
    pairs = only(staged(make), "sft", per_task=20)
    assert calls(pairs)["sft: chains, at most", "leader"] == 40 * 9  # of 3 right and 3 wrong ones


def test_sets_at_temperature_0_are_one(make: Make) -> None:
    data = staged(make)
    data["team"]["bob"] = {**FROZEN, "sampling": GREEDY}
    found = calls(only(data, "answers"))
    assert found == {("answers: collect", "ann"): 160, ("answers: collect", "bob"): 40}


def test_answers_from_a_file_cost_nothing(make: Make) -> None:
    data = staged(make, collect={"answers": "answers.jsonl"})
    assert calls(only(data, "answers", "mlpo"))["mlpo: training", "leader"] == 640
    for stages in (("answers", "mlpo"), ("mlpo",), ("sft",)):
        found = calls(only(data, *stages))
        assert not {stage for stage, member in found if member == "bob"} - {"mlpo: holdout"}
    assert "answers.jsonl" in estimate_recipe(parse_recipe(only(data, "mlpo"))).notes[1]
    shaped = calls(only(data, "shaped"))
    assert shaped["shaped: collect", "bob"] == 320


def test_an_episode_that_goes_on_behind_the_decision_costs_its_rest(make: Make) -> None:
    data = only(staged(make, {"rounds": 2}), "answers", "mlpo", horizon="episode")
    found = calls(data)
    assert found["mlpo: training", "leader"] == 2 * 640
    assert found["mlpo: training", "bob"] == 640


def test_answers_that_no_earlier_stage_shapes_are_missed_by_name(make: Make) -> None:
    data = staged(make)
    for stages in (("mlpo", "mlpo+"), ("answers", "mlpo+")):
        with pytest.raises(RecipeError, match=r"stages\.mlpo\+\.prefix is shaped.* round 1, 2, .*rounds: \[1, 2\]"):
            calls(only(data, *stages))
    data["stages"]["shaped"]["rounds"] = [1]
    with pytest.raises(RecipeError, match="on answers of round 2,"):
        calls(only(data, "shaped", "mlpo+"))
    data["stages"]["shaped"]["rounds"] = []
    with pytest.raises(RecipeError, match=r"stages: shaped\.rounds: .*at least 1 item"):
        calls(only(data, "shaped"))


def test_a_second_leader_shapes_its_own_answers(make: Make) -> None:
    data = staged(make)
    data["stages"]["more"] = data["stages"]["shaped"]
    found = calls(only(data, "shaped", "mlpo", "more"))
    assert found["more: collect", "leader"] == found["shaped: collect", "leader"] == 320
    assert found["shaped: collect", "bob"] == 160 + 320  # round 0 as well
    assert found["more: collect", "bob"] == 320
    assert ("more: collect", "leader") not in calls(only(data, "shaped", "more"))
    data["stages"]["more"] = {"method": "collect", "rounds": [1]}
    with pytest.raises(RecipeError, match="on answers of round 2,"):
        calls(only(data, "shaped", "mlpo", "more", "mlpo+"))


def test_without_stages_what_another_command_collects_is_told(make: Make) -> None:
    data = staged(make)
    stored = {**only(data, "mlpo"), "stages": {}, "train": data["stages"]["mlpo"]}
    assert calls(stored)["training", "bob"] == 160
    assert "unless `pilotfish collect` has been run" in estimate_recipe(parse_recipe(stored)).notes[0]
    shaped = {**stored, "train": data["stages"]["mlpo+"]}
    found = calls(shaped)
    assert found["training", "leader"] == 1280
    assert ("training", "bob") not in found
    assert "round 1, 2 are taken as there" in estimate_recipe(parse_recipe(shaped)).notes[0]


def test_a_stage_that_is_null_is_left_out(make: Make) -> None:
    data = staged(make)
    data["stages"] = {**data["stages"], "answers": None, "sft": None, "shaped": None, "mlpo+": None}
    assert {stage for stage, _ in calls(data)} == {
        "mlpo: training",
        "mlpo: holdout",
        "solo",
        "leader, untrained",
        "leader, mlpo",
    }


def test_the_largest_stage_is_what_memory_must_hold(make: Make) -> None:
    data = staged(make)
    data["stages"]["mlpo"]["profile"] = "paper"
    (held,) = memory(parse_recipe(data))
    assert held.parts is not None
    assert held.parts["reference"] == 12e9
    (held,) = memory(parse_recipe(only(data, "answers", "sft")))
    assert held.parts == {"weights": 12e9, "gradients": 12e9, "optimizer": 24e9}, "who samples leaves before it"


def test_a_recipe_with_stages_fits_80_columns_and_tells_its_steps(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(staged(make)))
    assert main(["estimate", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "120 training steps" in shown
    assert "Steps: mlpo 40, mlpo+ 80." in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_samples_and_models_are_counted_each_with_its_own_length_and_price(make: Make) -> None:
    data = make("critic")
    data["team"]["actor"]["sampling"] = {**GREEDY, "temperature": 0.7}
    models = {"big": {"actor": {"model": "big", "price": {"input": 10}, "sampling": {"max_tokens": 80}}}}
    data["evaluate"] = {**data["evaluate"], "samples": 3, "models": models}
    found = estimate_recipe(parse_recipe(data))
    lines = {(line.stage, line.member): line for line in found.lines}
    assert round(lines["solo", "actor"].likely.calls) == 20 * 3
    assert round(lines["critic, untrained", "actor"].likely.calls) == 20 * 3, "the draft is solo's answer"
    assert round(lines["big: critic, trained", "actor"].likely.calls) == 20 * 3
    assert round(lines["big: critic, trained", "collaborator"].likely.calls) == 20 * 3, "of other drafts"
    small, big = lines["solo", "actor"], lines["big: solo", "actor"]
    assert (small.likely.completion, big.likely.completion) == (60 * 20, 60 * 40)
    assert big.cost()[0] == pytest.approx((big.likely.prompt * 10 + big.likely.completion * 2) / 1e6)
    assert found.lengths["big: actor"] == Length(likely=40.0, least=40.0, most=80.0)
    assert "big: collaborator" not in found.lengths


def test_greedy_samples_cost_once(make: Make) -> None:
    data = make()
    data["evaluate"] = {**data["evaluate"], "samples": 8}
    assert calls(data) == calls(make())


def test_a_cap_below_the_likely_cost_is_told(make: Make) -> None:
    likely = sum(line.cost()[0] for line in estimate_recipe(parse_recipe(make())).lines)
    assert estimate_recipe(parse_recipe({**make(), "max_cost": 2 * likely})).notes == ()
    (note,) = estimate_recipe(parse_recipe({**make(), "max_cost": likely / 2})).notes
    assert note.startswith("max_cost is ")
    assert "the run will stop there" in note
