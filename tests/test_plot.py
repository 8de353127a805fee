"""The training picture: what is drawn, from files as runs leave them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.evaluate import plot
from pilotfish.evaluate.budget import Point

pytest.importorskip("matplotlib")


def written(path: Path, *rows: dict[str, object], end: str = "") -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + end, encoding="utf-8")
    return path


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_run_gives_a_png(tmp_path: Path) -> None:
    metrics = written(
        tmp_path / "metrics.jsonl",
        {"step": 1, "reward": 0.3, "trainee/leak_rate": 0.1, "tokens/actor": 100, "tokens/collaborator": 20},
        {"step": 2, "reward": 0.5, "holdout/accuracy": 0.4},
    )
    plot.plot_training(metrics, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_metric_that_no_line_has_makes_no_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr(plot, "_draw", lambda axes, title, curves: titles.append(title))
    metrics = written(tmp_path / "m.jsonl", {"step": 1, "tokens/actor": 3}, {"step": 2, "reward": float("nan")})
    plot.plot_training(metrics, tmp_path / "run.png")
    assert titles == ["tokens per member"]


def test_a_resumed_run_counts_its_last_words(tmp_path: Path) -> None:
    metrics = written(
        tmp_path / "m.jsonl",
        {"step": 1, "reward": 0.1},
        {"step": 2, "reward": 0.2, "holdout/accuracy": 0.6},
        {"step": 2, "reward": 0.3},
        {"note": "no step"},
        end='{"step": 3, "rew',
    )
    rows = plot._read(metrics)
    assert rows == [{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.3, "holdout/accuracy": 0.6}]


def test_files_that_cannot_be_drawn_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.plot_training(written(tmp_path / "empty.jsonl", {"step": 1, "loss": 2.0}), tmp_path / "x.png")
    with pytest.raises(ValueError, match=r"broken.jsonl, line 1: not JSON"):
        plot.plot_training(written(tmp_path / "broken.jsonl", end="{oops\n{}\n"), tmp_path / "x.png")


def test_methods_over_budget_give_a_png_with_calls_and_tokens(tmp_path: Path) -> None:
    def point(by: str, calls: float, accuracy: float) -> Point:
        return Point(by, 1, accuracy, 0, 1, 9, calls, 10 * calls)

    curves = {f"method {n}": [point("samples", 1, 0.2), point("majority", 2, 0.4)] for n in range(9)}
    curves["unjudged"] = [point("whole", 1, float("nan"))]
    plot.plot_budget(curves, tmp_path / "budget.svg")
    drawn = (tmp_path / "budget.svg").read_text()
    assert drawn.startswith("<?xml")
    assert all(f"<!-- {words} -->" in drawn for words in ("accuracy over calls a task", "accuracy over tokens a task"))
    assert drawn.count("<!-- method ") == 9, "one name a method"


@pytest.mark.parametrize("colour", [plot._INK, *plot._COLOURS])
@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_ink_stands_out_on_light_and_dark_pages(colour: str, page: str) -> None:
    dark, light = sorted((luminance(colour), luminance(page)))
    assert (light + 0.05) / (dark + 0.05) >= 3


def test_matplotlib_and_torch_are_not_imported_before_they_are_needed() -> None:
    modules = "pilotfish.evaluate.plot, pilotfish.evaluate.table, pilotfish.evaluate.at_k, pilotfish.train.early_stop"
    code = f"import sys, {modules}; sys.exit(any(name in sys.modules for name in ('matplotlib', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
