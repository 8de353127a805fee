"""An adapter merged into a folder of weights says what the adapter on its base said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from pilotfish.engine.adapter import cast, merged
from pilotfish.engine.loading import load
from pilotfish.recipe import LoraConfig, MemberConfig
from pilotfish.train.lora import merge, peft_config
from tiny import save_tiny

torch.set_num_threads(1)
IDS = torch.arange(3, 40)[None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model`, and an `adapter` that changes what it says."""
    folder = tmp_path_factory.mktemp("merge")
    base: Any = load(str(save_tiny(folder / "model")), dtype="float32", device="cpu")[0]
    adapted: Any = get_peft_model(base, peft_config(LoraConfig(rank=4), base))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if ".lora_" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) / 8)
    adapted.save_pretrained(folder / "adapter")
    return folder


def member(folder: Path, dtype: str = "float32") -> MemberConfig:
    return MemberConfig(model=str(folder / "model"), train=LoraConfig(rank=4), dtype=dtype, device="cpu")


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def test_the_merged_weights_say_what_base_and_adapter_said(folder, tmp_path):
    merge(member(folder), folder / "adapter", tmp_path / "merged")
    base = load(str(folder / "model"), dtype="float32", device="cpu")[0]
    before = logits(base)
    apart = logits(PeftModel.from_pretrained(base, str(folder / "adapter")))
    whole = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32))
    assert torch.allclose(whole, apart, atol=1e-4)
    assert not torch.allclose(whole, before, atol=1e-1)


def test_the_sum_is_of_the_base_as_it_was_trained_on_and_is_not_rounded(folder, tmp_path):
    merge(member(folder, "bfloat16"), folder / "adapter", tmp_path / "merged")
    rounded: Any = load(str(folder / "model"), dtype="bfloat16", device="cpu")[0].float()
    apart: Any = PeftModel.from_pretrained(rounded, str(folder / "adapter")).merge_and_unload()
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto")
    assert whole.dtype == torch.float32
    assert all(torch.equal(weight, apart.state_dict()[name]) for name, weight in whole.state_dict().items())


def test_the_folder_loads_with_its_tokenizer_and_nothing_lies_beside_it(folder, tmp_path):
    merge(member(folder), folder / "adapter", tmp_path / "merged")
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]
    assert not (tmp_path / "merged" / "adapter_config.json").exists()


def test_a_sum_that_is_rounded_says_what_it_says_when_it_is_loaded_in_that_type(folder, tmp_path):
    merge(member(folder), folder / "adapter", tmp_path / "merged")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.bfloat16)
    base = load(str(folder / "model"), dtype="float32", device="cpu")[0]
    rounded = cast(merged(base, folder / "adapter"), torch.bfloat16)
    assert torch.equal(logits(rounded), logits(loaded))  # `to` would round the frequencies of the positions too
