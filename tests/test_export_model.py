"""`pilotfish export RUN --model`: the folder says what the trained weights say, and differs from the base."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from exporting import LORA, leave, logits, recipe, trained
from pilotfish.cli import main
from pilotfish.engine.loading import load
from pilotfish.export import export_model
from pilotfish.export.change import compare
from pilotfish.run import Run, RunError
from tiny import tiny_model, tiny_tokenizer

torch.set_num_threads(1)


@pytest.mark.parametrize("train", [LORA, "full"], ids=["lora", "full"])
def test_the_folder_says_what_the_trained_weights_say_and_not_what_the_base_says(tmp_path: Path, train: Any) -> None:
    run = trained(tmp_path, train)
    done = export_model(run, tmp_path / "out")
    base = load(str(tmp_path / "model"), dtype="float32", device="cpu")[0]
    before = logits(base)
    if train == "full":
        whole: Any = AutoModelForCausalLM.from_pretrained(run / "best")
    else:
        whole = PeftModel.from_pretrained(base, str(run / "best"))
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.allclose(logits(exported), logits(whole), atol=1e-4)
    assert not torch.allclose(logits(exported), before, atol=0.1)
    assert done.proof.read_back < 1e-3 < 0.1 < done.proof.from_base
    assert done.proof.change.parameters_changed > 10_000
    assert exported.config.use_cache
    assert {file.stat().st_mode for file in (tmp_path / "out").iterdir()} == {
        run.joinpath("recipe.yaml").stat().st_mode
    }


def test_an_answer_ends_with_the_turn_whatever_the_base_names_as_its_end(tmp_path: Path) -> None:
    run = trained(tmp_path)
    for name in ("config.json", "generation_config.json"):
        file = tmp_path / "model" / name
        file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": 0}))
    export_model(run, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.chat_template == tiny_tokenizer().chat_template
    assert GenerationConfig.from_pretrained(tmp_path / "out").eos_token_id == [0, tokenizer.eos_token_id]


def test_changes_are_counted() -> None:
    base, exported = tiny_model(0), tiny_model(0)
    with torch.no_grad():
        exported.model.layers[1].mlp.up_proj.weight[0, :3] += torch.tensor([0.5, -0.25, 0.25])
    change = compare(base, exported)
    size, norm = sum(w.numel() for w in base.parameters()), sum(w.square().sum().item() for w in base.parameters())
    assert (change.tensors_changed, change.parameters_changed, change.parameters) == (1, 3, size)
    assert change.largest == pytest.approx(0.5)
    assert change.mean == pytest.approx(1 / size)
    assert change.relative_norm == pytest.approx((0.375 / norm) ** 0.5, rel=1e-4)


def test_a_training_that_changed_nothing_is_refused_and_with_force_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, change=0)
    Run(run).mark_best(run / "best", 0)
    assert main(["export", str(run), "--model", str(tmp_path / "out")]) == 2
    assert "training changed none of the weights" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(["export", str(run), "--model", str(tmp_path / "out"), "--force"]) == 0
    printed = capsys.readouterr()
    assert "warning: training changed nothing" in printed.err
    assert "changed    none of 115,008 parameters" in printed.out
    assert "**Training changed nothing" in (tmp_path / "out" / "README.md").read_text()


def test_a_change_that_rounding_swallows_counts_as_none(tmp_path: Path) -> None:
    run = trained(tmp_path, "full", change=0)
    model: Any = AutoModelForCausalLM.from_pretrained(run / "best")
    with torch.no_grad():
        for norm in (layer.input_layernorm for layer in model.model.layers):
            norm.weight.add_(1e-5)  # of 1.0, which bfloat16 has no name for
    model.save_pretrained(run / "best")
    with pytest.raises(RunError, match=r"all are equal in bfloat16.*try --dtype float32"):
        export_model(run, tmp_path / "out", dtype="bfloat16")
    assert export_model(run, tmp_path / "out").proof.change.parameters_changed == 128


def test_weights_that_read_back_otherwise_are_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path)
    base = load(str(tmp_path / "model"), dtype="float32", device="cpu")[0]
    monkeypatch.setattr("pilotfish.export.weights._read_back", lambda *place: base)
    with pytest.raises(RunError, match="read back, the weights differ"):
        export_model(run, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "run", "sums.jsonl", "train.jsonl"}


def test_an_adapter_is_exported_alone(tmp_path: Path) -> None:
    run = trained(tmp_path)
    done = export_model(run, tmp_path / "out", adapter=True)
    base = load(str(tmp_path / "model"), dtype="float32", device="cpu")[0]
    export_model(run, tmp_path / "whole")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    assert torch.allclose(logits(PeftModel.from_pretrained(base, str(tmp_path / "out"))), logits(whole), atol=1e-4)
    assert done.proof.change == export_model(run, tmp_path / "whole", force=True).proof.change
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["base_model_name_or_path"] == "model"
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_whole_weights_have_no_adapter(tmp_path: Path) -> None:
    run = trained(tmp_path, "full")
    with pytest.raises(RunError, match="whole weights, no adapter; leave --adapter out"):
        export_model(run, tmp_path / "out", adapter=True)


def test_the_last_stage_is_exported_on_the_weights_that_the_one_before_left(tmp_path: Path) -> None:
    stages = {"form": {"method": "sft", "data": "lab:actor"}, "learn": {"profile": "paper"}, "later": {}}
    whole = Run(tmp_path / "run", recipe(tmp_path, stages=stages))
    form = whole.stage("form", whole.recipe.at("form", None), "")
    leave(form, 1 / 16, base=tmp_path / "model", adapter=False)
    learn = whole.stage("learn", whole.recipe.at("learn", form.best), form.stamp)
    leave(learn, 1 / 16, base=form.best, adapter=True)
    whole.folder.rename(tmp_path / "moved")
    done = export_model(tmp_path / "moved", tmp_path / "out")
    before: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "moved" / "stages" / "form" / "best")
    both = PeftModel.from_pretrained(before, str(tmp_path / "moved" / "stages" / "learn" / "best"))
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out")), logits(both), atol=1e-4)
    assert not done.finished
    text = (tmp_path / "out" / "README.md").read_text()
    assert "**The training was not finished" in text
    assert "step 3 of stage `learn`" in text
    with pytest.raises(RunError, match="an adapter to the weights that the stage before left"):
        export_model(tmp_path / "moved", tmp_path / "other", adapter=True)


def test_nothing_is_written_over_but_a_model_with_force(tmp_path: Path) -> None:
    run = trained(tmp_path)
    export_model(run, tmp_path / "out")
    (tmp_path / "out" / "old").touch()
    with pytest.raises(RunError, match=r"holds a model already.*--force"):
        export_model(run, tmp_path / "out")
    export_model(run, tmp_path / "out", force=True)
    assert not (tmp_path / "out" / "old").exists()
    with pytest.raises(RunError, match="holds something else"):
        export_model(run, run, force=True)


def test_a_run_without_weights_and_a_command_without_a_format_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "run", recipe(tmp_path)).folder
    assert main(["export", str(run), "--model", str(tmp_path / "out")]) == 2
    assert "no trained weights there yet" in capsys.readouterr().err
    assert main(["export", str(run), "--adapter"]) == 2
    assert "pilotfish export RUN --model FOLDER" in capsys.readouterr().err
    assert main(["export", str(run), "--inspect", "--dtype", "float32"]) == 2
    assert "add --model FOLDER" in capsys.readouterr().err
