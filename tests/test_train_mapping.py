"""From a recipe to what TRL does with it: updates, old log-probabilities, advantages, missing verdicts, outages."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM
from trl.trainer import grpo_trainer
from trl.trainer.grpo_trainer import GRPOTrainer

from pilotfish import ScriptedEngine, Task, Verdict
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.recipe import parse_recipe
from pilotfish.train.grpo import arguments
from pilotfish.train.order import order
from pilotfish.train.profile import TrainConfig, steps
from pilotfish.train.rollout import Row, RowId, TooManyOutages
from tiny import VOCABULARY, save_tiny, tiny_model
from training import PROMPTS, TASKS, helps, learn, recipe

TWELVE = {f"u{n}": Task(f"u{n}", f"Is {n} odd?", "yes", verifier="exact") for n in range(12)}


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each forward and backward pass was given; `now` are the log-probabilities it started from."""
    seen: list[dict[str, Any]] = []
    compute = GRPOTrainer._compute_loss
    scored = GRPOTrainer._get_per_token_logps_and_entropies

    def recorded(self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        seen.append({**inputs, "update": self.state.global_step})
        return compute(self, model, inputs)

    def scoring(self: Any, *args: Any, **more: Any) -> Any:
        found = scored(self, *args, **more)
        if torch.is_grad_enabled():
            seen[-1]["now"] = found[0].detach()
        return found

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", recorded)
    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", scoring)
    return seen


def test_what_a_recipe_says_of_the_update_is_what_trl_is_told(tmp_path: Path) -> None:
    config = TrainConfig(weight_decay=0.3, max_grad_norm=0.5, warmup_steps=7, gradient_checkpointing=True)
    args = arguments(config, 1, tmp_path, seed=3, limit=9)
    assert (args.weight_decay, args.max_grad_norm, args.warmup_steps) == (0.3, 0.5, 7)
    assert (args.gradient_checkpointing, args.disable_dropout) == (True, True)
    assert (args.seed, args.data_seed, args.max_completion_length) == (3, 3, 9)


def rows_of(inputs: dict[str, Any]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Prompt and completion of each row of a pass, without padding."""
    prompts = [
        tuple(ids[mask.bool()].tolist()) for ids, mask in zip(inputs["prompt_ids"], inputs["prompt_mask"], strict=True)
    ]
    words = zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)
    return list(zip(prompts, (tuple(ids[mask.bool()].tolist()) for ids, mask in words), strict=True))


def advantages(rows: list[Row], size: int) -> dict[Any, float]:
    """By hand: the reward less the mean of the group's judged rows, over their standard deviation."""
    table = {}
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        rewards = [row.reward for row in group if row.reward is not None]
        for row in group:
            judged = row.reward is not None and len(rewards) > 1
            value = (row.reward - mean(rewards)) / (stdev(rewards) + 1e-4) if judged else 0.0
            table[tuple(row.prompt_ids), tuple(row.completion_ids)] = value
    return table


def test_a_step_of_192_rows_is_learned_in_three_updates_from_the_sampling_weights(tmp_path: Path, passes: Any) -> None:
    settings = {"group_size": 16, "tasks_per_step": 12, "updates_per_step": 3, "micro_batch": 32, "steps": 2}
    made = recipe(save_tiny(tmp_path / "model"), "hint", profile="release", **settings)
    learned = learn(made, PROMPTS["hint"], tmp_path, tasks=TWELVE)
    assert learned.trainer.state.global_step == 6
    assert [len(rows) for rows in learned.rows] == [192, 192]
    first = [inputs for inputs in passes if inputs["update"] < 3]
    assert [inputs["update"] for inputs in first] == [0, 0, 1, 1, 2, 2]

    by_hand = advantages(learned.rows[0], 16)
    seen = [row for inputs in first for row in rows_of(inputs)]
    assert sorted(seen) == sorted((tuple(row.prompt_ids), tuple(row.completion_ids)) for row in learned.rows[0])
    found = [value for inputs in first for value in inputs["advantages"].tolist()]
    assert found == pytest.approx([by_hand[row] for row in seen], abs=1e-4)

    before = tiny_model(0)
    for inputs in first:
        mask = inputs["completion_mask"].bool()
        old, now = inputs["old_per_token_logps"], inputs["now"]
        if inputs["update"] == 0:
            assert old is None, "the first update's are those that it computes"
            old = now
        torch.testing.assert_close(old[mask], log_probabilities(before, inputs)[mask], rtol=0, atol=1e-4)
        assert inputs["update"] == 0 or (now - old)[mask].abs().max() > 1e-2


def log_probabilities(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    words = inputs["completion_ids"]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[:, -words.size(1) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, words[..., None])[..., 0]


def test_without_normalisation_the_advantage_is_the_plain_difference(tmp_path: Path, passes: Any) -> None:
    made = recipe(save_tiny(tmp_path / "model"), "solo", normalise="none", steps=1)
    learned = learn(made, PROMPTS["solo"], tmp_path)
    groups = [[row.reward for row in learned.rows[0][start : start + 16]] for start in range(0, 64, 16)]
    expected = sorted(reward - mean(group) for group in groups for reward in group)
    assert sorted(passes[0]["advantages"].tolist()) == pytest.approx(expected, abs=1e-5)


async def lost_for_small_letters(task: Task, answer: str, form: str) -> Verdict:
    """No verdict where the words begin with a small letter, none at all for task t0."""
    if task.id == "t0" or answer[:1].islower():
        return Verdict(None, None, "the judge is away")
    return Verdict(float(answer[:1].isupper()), answer)


@pytest.mark.parametrize("profile", ["release", "paper"])
def test_a_row_without_a_verdict_leaves_the_baseline_and_teaches_nothing(
    profile: str, tmp_path: Path, passes: Any
) -> None:
    settings = {"tasks_per_step": 8, "micro_batch": 128, "updates_per_step": 1, "outages": 0.9, "steps": 1}
    made = recipe(save_tiny(tmp_path / "model"), "solo", profile=profile, **settings)
    learned = learn(made, PROMPTS["solo"], tmp_path, judge=lost_for_small_letters)
    lost = {(tuple(row.prompt_ids), tuple(row.completion_ids)) for row in learned.rows[0] if row.reward is None}
    assert 16 < sum(row.reward is None for row in learned.rows[0]) < 64

    (inputs,) = passes
    by_hand = advantages(learned.rows[0], 16)
    assert inputs["advantages"].tolist() == pytest.approx([by_hand[row] for row in rows_of(inputs)], abs=1e-4)
    assert any(by_hand.values())
    at = torch.tensor([row in lost for row in rows_of(inputs)])
    assert inputs["advantages"][at].abs().max() == 0
    learned_from = sum(len(row.completion_ids) for row in learned.rows[0] if row.reward is not None)
    assert int(inputs["num_items_in_batch"]) == learned_from

    trainer = learned.trainer  # its weights have moved away from the reference, so a KL would have a gradient
    only = {name: value[at] if torch.is_tensor(value) and value.ndim else value for name, value in inputs.items()}
    trainer.model.zero_grad()
    trainer._compute_loss(trainer.model, only).backward()
    assert max(float(weight.grad.abs().max()) for weight in trainer.model.parameters() if weight.grad is not None) == 0


def test_a_row_whose_decision_was_never_reached_is_logged_and_carries_no_loss(tmp_path: Path, passes: Any) -> None:
    actor = ScriptedEngine(helps, fail=lambda messages, sampling, seed: "What is 3" in messages[-1]["content"])
    made = recipe(save_tiny(tmp_path / "model"), "critic", tasks_per_step=8, micro_batch=128, steps=1)
    learned = learn(made, PROMPTS["critic"], tmp_path, actor=actor)
    assert learned.logged[0]["team/no_verdict"] == pytest.approx(1 / 8)
    assert int(passes[0]["tool_mask"][:, 0].sum()) == 7 * 16


def test_too_many_outages_stop_the_run_by_name_and_mended_it_goes_on_from_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = counted(monkeypatch)
    made = recipe(save_tiny(tmp_path / "model"), "hint", steps=1, outages=0.4)
    dead: list[str] = []
    flaky = ScriptedEngine(
        helps, fail=lambda messages, sampling, seed: seed % 2 == 0 and not dead.append(str(messages))
    )
    with pytest.raises(TooManyOutages, match=r"step 1: \d+ of 64 rows have no verdict \(actor: scripted outage\)"):
        learn(made, PROMPTS["hint"], tmp_path, actor=flaky)
    assert len(said) == 64
    mended = ScriptedEngine(helps)
    learned = learn(made, PROMPTS["hint"], tmp_path, actor=mended)
    assert len(said) == 64, "the trainee was asked again for what it had said"
    assert mended.calls == len(set(dead)) == len(dead)
    assert learned.logged[0]["team/no_verdict"] == 0


def test_a_few_outages_stand_when_the_step_is_played_again(tmp_path: Path) -> None:
    made = recipe(save_tiny(tmp_path / "model"), "hint", steps=1, outages=0.6, save_every=9)
    flaky = ScriptedEngine(helps, fail=lambda messages, sampling, seed: seed % 4 == 0)
    first = learn(made, PROMPTS["hint"], tmp_path, actor=flaky)
    mended = ScriptedEngine(helps)
    for folder in (tmp_path / "checkpoints").glob("checkpoint-*"):
        folder.rename(tmp_path / folder.name)
    again = learn(made, PROMPTS["hint"], tmp_path, actor=mended)
    assert first.logged[0]["team/no_verdict"] > 0
    assert mended.calls == 0
    assert [row.reward for row in again.rows[0]] == [row.reward for row in first.rows[0]]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one entry at each call of an engine in process: the trainee's."""
    said: list[int] = []
    complete = TransformersEngine.complete

    async def counting(self: Any, messages: Any, sampling: Any, seed: int) -> Any:
        said.append(seed)
        return await complete(self, messages, sampling, seed)

    monkeypatch.setattr(TransformersEngine, "complete", counting)
    return said


def test_the_release_numbers_map_to_trls_fields(tmp_path: Path) -> None:
    args = arguments(TrainConfig(profile="release"), 41, tmp_path, seed=0, limit=768)
    found = (args.per_device_train_batch_size, args.steps_per_generation, args.gradient_accumulation_steps)
    assert found == (16, 12, 4)
    assert (args.generation_batch_size, args.num_generations, args.max_steps) == (192, 16, 123)
    assert (args.loss_type, args.epsilon, args.epsilon_high, args.delta, args.beta) == ("dapo", 0.2, 0.28, 10.0, 0.0)
    assert steps(TrainConfig(profile="release"), 500) == 41


def test_the_papers_formula_maps_to_trls_fields(tmp_path: Path) -> None:
    args = arguments(TrainConfig(profile="paper"), 41, tmp_path, seed=0, limit=768)
    assert (args.loss_type, args.epsilon, args.epsilon_high, args.delta, args.beta) == ("grpo", 0.2, 0.2, None, 0.04)
    assert not args.use_bias_correction_kl
    assert args.steps_per_generation == args.gradient_accumulation_steps == 12


def test_groups_that_would_straddle_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(
        ValueError, match=r"tasks_per_step is 12 and there are 5 processes: groups of 16 would straddle"
    ):
        arguments(TrainConfig(), 1, tmp_path, seed=0, limit=8)


def test_rows_that_do_not_divide_among_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "12")
    with pytest.raises(ValueError, match=r"192 rows a step do not divide into 3 updates x 12 processes; .* to 36,"):
        arguments(TrainConfig(), 1, tmp_path, seed=0, limit=8)


def test_rows_that_do_not_divide_into_updates_are_refused_when_the_recipe_is_read() -> None:
    with pytest.raises(ValueError, match=r"= 192 rows a step do not divide into .* 3 x micro_batch = 48; change one"):
        TrainConfig(micro_batch=48)


def test_tasks_that_do_not_fill_a_step_are_refused() -> None:
    with pytest.raises(ValueError, match=r"3 groups .* x 1\.0 epochs do not fill one step of tasks_per_step = 12"):
        steps(TrainConfig(), 3)
    with pytest.raises(ValueError, match=r"20 groups .* x 0\.5 epochs do not fill one step"):
        steps(TrainConfig(epochs=0.5), 20)


def test_an_epoch_goes_through_each_task_once_in_an_order_of_its_own() -> None:
    rows = [RowId(f"t{n}") for n in range(25)]
    laid = order(rows, TrainConfig(epochs=2), seed=0)
    first, second = laid[:24], laid[24:]
    assert len(set(first)) == len(set(second)) == 24
    assert first != second != rows[:24]
    assert laid == order(rows, TrainConfig(epochs=2), seed=0) != order(rows, TrainConfig(epochs=2), seed=1)
    assert order(rows, TrainConfig(steps=1), seed=0) == first[:12]


def test_trl_takes_the_groups_in_this_order(tmp_path: Path) -> None:
    made = recipe(save_tiny(tmp_path / "model"), "solo", group_size=2, micro_batch=8, steps=4)
    learned = learn(made, PROMPTS["solo"], tmp_path)
    played = [row.id for rows in learned.rows for row in rows[::2]]
    assert played == order([RowId(task) for task in TASKS], made.train, seed=0)


@pytest.mark.parametrize("version", ["v2", None])
def test_the_reference_of_the_kl_is_the_version_of_the_model_that_is_trained(
    version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[dict[str, Any]] = []

    def loading(model: str, **how: Any) -> Any:
        loaded.append({"model": model, "revision": how.get("revision")})
        return load_reference(model, **how)

    load_reference = grpo_trainer.create_model_from_path
    monkeypatch.setattr(grpo_trainer, "create_model_from_path", loading)
    data = recipe(save_tiny(tmp_path / "model"), "solo", steps=1, beta=0.1).model_dump(mode="json")
    data["team"]["collaborator"]["revision"] = version
    learn(parse_recipe(data), PROMPTS["solo"], tmp_path, at_step=lambda step, learned: True)
    assert loaded == [{"model": str(tmp_path / "model"), "revision": version}]


def test_a_seed_makes_the_same_adapter_whatever_was_drawn_before(tmp_path: Path) -> None:
    made = recipe(save_tiny(tmp_path / "model"), "solo", lora={"rank": 4}, steps=1, beta=0.0)

    def adapter(folder: str) -> torch.Tensor:
        torch.rand(len(folder))
        learned = learn(made, PROMPTS["solo"], tmp_path / folder, at_step=lambda step, learned: True)
        layers = learned.trainer.model.named_parameters()
        return next(weight.detach().clone() for name, weight in layers if "lora_A" in name)

    assert torch.equal(adapter("one"), adapter("other"))


@pytest.mark.parametrize("lora", [None, {"rank": 4, "targets": ["q_proj"]}], ids=["full", "lora"])
def test_words_of_a_model_with_absolute_positions_are_learned_where_they_were_said(
    lora: Any, tmp_path: Path, passes: list[dict[str, Any]]
) -> None:
    model = absolute_model()
    folder = save_tiny(tmp_path / "model")
    model.save_pretrained(folder)
    tasks = {f"t{n}": Task(f"t{n}", "How " * n + "is it?", "yes", verifier="exact") for n in range(8)}
    made = recipe(folder, "hint", steps=1, lora=lora)
    learn(made, PROMPTS["hint"], tmp_path, tasks=tasks, model=model)
    before = absolute_model()
    apart = [
        float((spoken(before, prompt, words) - held["now"][row, : len(words)]).abs().max())
        for held in passes
        for row, (prompt, words) in enumerate(rows_of(held))
    ]
    assert len({len(prompt) for held in passes for prompt, _ in rows_of(held)}) > 1
    assert max(apart) < 1e-4


def absolute_model() -> GPTNeoForCausalLM:
    settings: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_layers": 2, "num_heads": 2}
    config = GPTNeoConfig(**settings, attention_types=[[["global"], 2]], max_position_embeddings=512, pad_token_id=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPTNeoForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(8)
    return model


def spoken(model: Any, prompt: tuple[int, ...], words: tuple[int, ...]) -> torch.Tensor:
    """Log-probabilities of words behind a prompt without padding, [words]."""
    with torch.no_grad():
        scores = model(torch.tensor([prompt + words])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return scores.gather(1, torch.tensor(words)[:, None])[:, 0]
