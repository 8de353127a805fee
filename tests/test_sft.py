"""Supervised fine-tuning: what the loss is on, what is saved, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pilotfish.cli.errors import expected
from pilotfish.engine.chat import render
from pilotfish.engine.loading import load
from pilotfish.lab.row import Row, ask, row
from pilotfish.recipe import LoraConfig, parse_recipe
from pilotfish.train.main import train
from pilotfish.train.sft import IGNORED, sft, tokenize
from pilotfish.train.updates import LOST_UPDATES, NotFinite
from tiny import save_tiny, spoil, tiny_tokenizer

torch.set_num_threads(1)
ROWS = [row("sums", "solve", ask(f"What is the sum of {n} and 7?"), f"The answer is {n + 7}.") for n in range(12, 20)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def trained(model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("trained")
    return folder, dict(sft(model, ROWS, folder, steps=40, lr=3e-3, batch=8, seed=1))


def weights(folder: str | Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def test_the_loss_is_on_the_answer_and_the_end_of_its_turn_and_on_nothing_else():
    tokenizer = tiny_tokenizer()
    example = tokenize(tokenizer, ROWS[:1], 200)[0]
    told = [token for token in example["labels"] if token != IGNORED]
    assert tokenizer.decode(told) == "The answer is 19.<|im_end|>"
    assert example["input_ids"][-len(told) :] == told


def test_the_prompt_is_the_one_that_an_engine_sends():
    tokenizer = tiny_tokenizer()
    example = tokenize(tokenizer, ROWS[:1], 200)[0]
    prompt = [token for token, label in zip(example["input_ids"], example["labels"], strict=True) if label == IGNORED]
    assert prompt == render(tokenizer, ROWS[0]["messages"][:-1])


def test_a_row_that_is_too_long_is_left_out_whole():
    tokenizer = tiny_tokenizer()
    long = row("sums", "solve", ask("What is the sum? " * 50), "19")
    assert tokenize(tokenizer, [ROWS[0], long], 100) == tokenize(tokenizer, ROWS[:1], 100)


def test_the_saved_folder_answers_as_it_was_taught(trained):
    folder, metrics = trained
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([render(tokenizer, ROWS[0]["messages"][:-1])])
    said = model.generate(ids, max_new_tokens=20, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(said, skip_special_tokens=True).startswith("The answer is")
    assert metrics["final_loss"] < metrics["loss"]


def test_what_was_learned_and_how_is_kept_beside_the_weights(trained, model):
    folder, metrics = trained
    lines = (folder / "data.jsonl").read_text().splitlines()
    record = json.loads((folder / "sft.json").read_text())
    assert [json.loads(line) for line in lines] == ROWS
    assert record["metrics"] == metrics
    assert record["settings"]["seed"] == 1
    assert record["settings"]["model"] == model
    assert (metrics["steps"], metrics["rows"], metrics["dropped"]) == (40, 8, 0)


def test_the_same_seed_gives_the_same_weights_and_another_order_others(model, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        sft(model, ROWS, tmp_path / name, steps=2, batch=4, seed=seed)
    first, again, other = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_micro_batches_make_the_same_step(model, tmp_path):
    sft(model, ROWS, tmp_path / "whole", steps=1, batch=8)
    sft(model, ROWS, tmp_path / "halves", steps=1, batch=8, micro_batch=4)
    whole, halves = weights(tmp_path / "whole"), weights(tmp_path / "halves")
    assert all(torch.allclose(whole[name], halves[name], atol=2e-4) for name in whole)


@pytest.mark.parametrize("kind", ["full", {"rank": 4}])
def test_checkpointed_activations_are_computed_twice_and_make_the_same_weights(model, tmp_path, kind, monkeypatch):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"messages": given["messages"]}) + "\n" for given in ROWS))
    passes: list[int] = []

    def loading(*args, **named):
        found, tokenizer = load(*args, **named)
        found.model.layers[0].mlp.register_forward_pre_hook(lambda *_: passes.append(1))
        return found, tokenizer

    monkeypatch.setattr("pilotfish.engine.loading.load", loading)
    made, counts = [], []
    for twice in (False, True):
        passes.clear()
        training = {"method": "sft", "data": str(tmp_path / "rows.jsonl"), "steps": 3, "batch": 8}
        training |= {"gradient_checkpointing": twice}
        team = {"leader": {"model": model, "train": kind, "dtype": "float32"}}
        run = train(parse_recipe({"team": team, "topology": "alone", "train": training}), tmp_path / f"{twice}")
        made.append(weights(run.best))
        counts.append(len(passes))
    assert counts == [3, 6]
    assert all(torch.allclose(made[0][name], made[1][name], atol=2e-4) for name in made[0])


def test_adapters_are_merged_into_the_layers_they_were_asked_for(model, tmp_path):
    sft(model, ROWS, tmp_path / "lora", steps=3, batch=8, lora=LoraConfig(rank=4, layers=1, targets=("q_proj",)))
    before, after = weights(model), weights(tmp_path / "lora")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"model.layers.1.self_attn.q_proj.weight"}


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "no rows"),
        ([Row(messages=ask("hello"), family="", kind="")], {}, "row 0 does not end with an assistant message"),
        (ROWS, {"max_length": 5}, "none of 8 rows fits into max_length = 5"),
        (ROWS, {"batch": 8, "micro_batch": 3}, "micro_batch = 3 does not divide batch = 8"),
    ],
)
def test_what_cannot_be_learned_is_refused_with_the_reason(model, tmp_path, rows, options, message):
    with pytest.raises(ValueError, match=message):
        sft(model, rows, tmp_path, **options)


def test_a_tokenizer_without_a_chat_template_is_refused():
    with pytest.raises(ValueError, match="has no chat template"):
        tokenize(tiny_tokenizer(template=None), ROWS, 100)


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[set[int]], None]:
    """Spoils these updates of the next fine-tuning."""

    def losing(updates: set[int]) -> None:
        def loading(*args, **named):
            found, tokenizer = load(*args, **named)
            spoil(found, updates)
            return found, tokenizer

        monkeypatch.setattr("pilotfish.engine.loading.load", loading)

    return losing


def test_an_update_without_a_finite_gradient_is_left_out_and_counted(model, tmp_path, lose):
    lose({1})
    metrics = sft(model, ROWS, tmp_path, steps=3, batch=8)
    assert (metrics["lost"], metrics["steps"]) == (1, 3)
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path).values())


def test_a_run_whose_gradients_stay_so_ends_with_the_reason_and_leaves_nothing(model, tmp_path, lose):
    lose(set(range(LOST_UPDATES)))
    with pytest.raises(NotFinite, match="8 updates in a row") as raised:
        sft(model, ROWS, tmp_path / "best", steps=LOST_UPDATES + 1, batch=8)
    assert expected(raised.value) == str(raised.value)  # a line for who gave the command, no traceback
    assert not (tmp_path / "best").exists()


def test_a_recipe_says_how_long_rows_may_be_and_is_told_how_many_were_longer(model, tmp_path):
    words = {"role": "user", "content": "What is the sum of 12 and 7?"}
    chats = [{"messages": [words, {"role": "assistant", "content": "So: " + "1 and " * times}]} for times in (1, 1, 99)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    training = {"method": "sft", "data": str(tmp_path / "rows.jsonl"), "steps": 1, "batch": 3, "max_length": 100}
    team = {"leader": {"model": model, "train": "full", "dtype": "float32"}}
    recipe = parse_recipe({"team": team, "topology": "alone", "train": training})
    notes: list[str] = []
    run = train(recipe, tmp_path / "run", told=lambda kind, step, figures: notes.append(kind))
    assert "note: 1 of 3 rows are longer than 100 tokens and left out" in notes
    assert json.loads((run.best / "sft.json").read_text())["metrics"]["rows"] == 2
