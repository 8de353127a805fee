"""A stage that fine-tunes the trainee on rows of chat: `sft` as a recipe asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pilotfish.lab.row import Row
from pilotfish.processes import Processes
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.train.profile import BacktrackConfig, SftConfig
from pilotfish.train.sft import SftMetrics, sft

if TYPE_CHECKING:
    from pilotfish.train.main import Told


def fine_tune(
    recipe: Recipe,
    config: SftConfig | BacktrackConfig,
    run: Run,
    processes: Processes,
    told: Told,
    rows: Sequence[Row],
    batch: int,
    micro_batch: int | None,
    *,
    steps: int | None = None,
    epochs: float = 1.0,
) -> SftMetrics:
    """Fine-tune the trainee into `run.best`, in all processes, and say what was left out.

    Raises:
        NotFinite, Refused, ValueError: as `sft`.
    """
    member = recipe.team[recipe.trainee or ""]
    work = partial(
        sft,
        member.model,
        rows,
        run.best,
        steps=steps,
        epochs=epochs,
        lr=config.learning_rate,
        batch=batch,
        micro_batch=micro_batch,
        max_length=config.max_length,
        gradient_checkpointing=config.gradient_checkpointing,
        lora=member.lora,
        seed=recipe.seed,
        revision=member.revision,
        trust_remote_code=member.trust_remote_code,
    )
    processes.call(work)
    metrics = work(processes)
    run.mark_best(run.best, metrics["steps"])
    if dropped := metrics["dropped"]:
        told(f"note: {dropped} of {len(rows)} rows are longer than {config.max_length} tokens and left out", 0, {})
    if lost := metrics["lost"]:
        told(f"note: {lost} of {metrics['steps']} updates were left out: their gradient was not finite", 0, {})
    return metrics
