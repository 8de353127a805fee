"""Keeps from the user's terminal what the training libraries say to their own developers.

with quiet():
    trainer.train()

Only messages that are known to mean nothing here are dropped, each by its words; every other warning is shown. Bars
that count the loading and writing of weights go too; those of downloads stay.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub.utils.tqdm import enable_progress_bars
from transformers.utils import logging as transformers_logging

bars: Any = transformers_logging

WARNINGS = (
    r".*gradient_checkpointing\w*` is deprecated",  # TRL still uses the old names; nothing the user wrote
    r".*Could not find a config file in .* will assume that the vocabulary was not modified",  # true: it was not
)
LOGGED = (
    ("trl.trainer.grpo_trainer", "You passed `model_init_kwargs`"),  # said to be ignored; the KL's reference needs them
    ("trl.trainer.grpo_trainer", "[RANK 0] All reward functions returned None"),  # a row without a verdict is counted
    ("transformers.trainer_utils", "mtime may not be reliable"),  # checkpoints go by their number then, which is right
)
"""Loggers, and how the message begins that is dropped."""


@contextmanager
def quiet() -> Iterator[None]:
    """Drop the noise while the block runs."""
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # also those of downloads
    enable_progress_bars()
    filters = [(logging.getLogger(name), _Without(words)) for name, words in LOGGED]
    for logger, dropped in filters:
        logger.addFilter(dropped)
    try:
        with warnings.catch_warnings():
            for words in WARNINGS:
                warnings.filterwarnings("ignore", message=words)
            yield
    finally:
        for logger, dropped in filters:
            logger.removeFilter(dropped)
        if shown:
            bars.enable_progress_bar()


class _Without(logging.Filter):
    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(self.words)
