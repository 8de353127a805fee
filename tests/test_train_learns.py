"""GRPO learns: a model of a few hundred thousand weights and a scripted actor, in seconds, in each topology.

.venv/bin/python -m pytest tests/test_train_learns.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny import save_tiny
from training import PROMPTS, learn, recipe


@pytest.mark.parametrize("name", ["solo", "hint", "critic"])
def test_the_reward_rises_from_below_a_third_to_above_nine_tenths(name: str, tmp_path: Path) -> None:
    seen = learn(recipe(save_tiny(tmp_path / "model"), name), PROMPTS[name], tmp_path).rewards
    assert seen[0] < 0.3
    assert sum(seen[-3:]) / 3 > 0.9
