"""The glossary: docs/metrics.md explains what is logged, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from tiny import save_tiny
from training import PROMPTS, learn, recipe

GLOSSARY = Path(__file__).parents[1] / "docs" / "metrics.md"
BY_MEMBER = {"tokens/collaborator", "tokens/actor"}


def explained() -> set[str]:
    """The names in the first column of the tables; one without a slash takes the prefix of the row's first name."""
    names = set()
    for line in GLOSSARY.read_text().splitlines():
        prefix = ""
        for name in re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else []:
            prefix = f"{name.split('/')[0]}/" if "/" in name else prefix
            names.add(name if "/" in name else prefix + name)
    return names


def test_every_metric_that_is_logged_is_explained_and_the_other_way_round(tmp_path: Path) -> None:
    made = recipe(save_tiny(tmp_path / "model"), "hint", profile="paper", steps=1)
    logged = set(learn(made, PROMPTS["hint"], tmp_path, alone=PROMPTS["alone"]).logged[0])
    assert logged >= BY_MEMBER
    holdout = {"holdout/accuracy", "holdout/leak_rate", "holdout/no_verdict"}
    tagged = {"form/broken", "form/FAULT"}
    mixed = {"team/accuracy/TOPOLOGY", "holdout/accuracy/TOPOLOGY"}
    assert (logged - BY_MEMBER) | {"tokens/MEMBER"} | holdout | tagged | mixed == explained()
