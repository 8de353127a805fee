"""A training says nothing on the terminal that means nothing, and drops no warning that means something."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest
from transformers.utils import logging as transformers_logging

from pilotfish.train.main import train
from pilotfish.train.quiet import LOGGED, quiet
from training import vowels_recipe

NOISE = [
    "`gradient_checkpointing` is deprecated and will be removed in v6. Use `activation_checkpointing` instead.",
    "`is_gradient_checkpointing` is deprecated and will be removed in v6.",
    "`gradient_checkpointing_enable` is deprecated and will be removed in v6.",
    "Could not find a config file in some/model - will assume that the vocabulary was not modified.",
]


@pytest.mark.parametrize("lora", [{"rank": 4}, None], ids=["lora", "full"])
def test_a_whole_training_leaves_the_terminal_empty(
    lora: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    made = vowels_recipe(tmp_path, lora=lora, steps=3, save_every=1, profile="paper", gradient_checkpointing=True)
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *place, **more: print("warned:", message)  # type: ignore[assignment]
        train(made, tmp_path / "run")
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_noise_is_dropped_and_anything_else_is_shown() -> None:
    with warnings.catch_warnings(record=True) as shown, quiet():
        warnings.simplefilter("always", append=True)
        for words in NOISE:
            warnings.warn(words, FutureWarning, stacklevel=1)
        warnings.warn("the loss is not a number", UserWarning, stacklevel=1)
        warnings.warn("another thing is deprecated", FutureWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["the loss is not a number", "another thing is deprecated"]


def test_the_loggers_and_the_bars_are_as_before_afterwards() -> None:
    transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    name, words = LOGGED[0]
    seen: list[str] = []
    logger = logging.getLogger(name)
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        with quiet():
            assert not transformers_logging.is_progress_bar_enabled()
            logger.error("%s and more", words)
            logger.error("something real")
        logger.error("%s and more", words)
    finally:
        logger.removeHandler(handler)
    assert seen == ["something real", f"{words} and more"]
    assert transformers_logging.is_progress_bar_enabled()
