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
from pilotfish.preflight.estimate import estimate_recipe, mean_completions
from pilotfish.preflight.memory import measure, memory
from pilotfish.preflight.rehearsal import Tally
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.team import Sampling, Usage

Make = Callable[..., dict[str, Any]]
GREEDY = {"temperature": 0.0, "max_tokens": 40}
FROZEN = {"engine": "openai", "model": "some", "base_url": "http://localhost:9/v1", "price": {"input": 1, "output": 2}}


def tasks_file(file: Path, count: int, prefix: str) -> str:
    rows = [
        {"id": f"{prefix}{n}", "question": f"{prefix} question number {n:04d}?", "answer": "1"} for n in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


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
    assert solo.cost(recipe.team["actor"].price) == pytest.approx(
        ((20 * characters / 4 + 2 * 400) / 1e6, (20 * characters / 4 + 2 * 800) / 1e6)
    )


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
    means = mean_completions(journal)
    journal.close()
    assert means == {"actor": 6.0}
    found = estimate_recipe(parse_recipe(make()), means)
    assert found.lengths["actor"] == (6.0, "measured")
    assert next(line for line in found.lines if line.stage == "solo").likely.completion == 20 * 6
    assert found.rough == ("collaborator", "actor")


def test_a_trainee_that_is_never_asked_is_named(make: Make) -> None:
    with pytest.raises(ValueError, match="does not come to decision 0 of collaborator"):
        estimate_recipe(parse_recipe(make("solo")))


def test_estimating_imports_no_torch_and_asks_nobody(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(make()))
    script = (
        "import sys; from pilotfish.cli import main\n"
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
