"""Which weights of a run are exported: its best, of several stages the last one's, and what they were trained from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from pilotfish.engine.adapter import adapter_in
from pilotfish.outcome import Outcome, outcomes
from pilotfish.recipe import MemberConfig
from pilotfish.run import Gain, Run, RunError


@dataclass(frozen=True)
class Trained:
    """Trained weights as they lie in a run."""

    folder: Path
    """An adapter's folder, or a whole model's."""
    begun_from: MemberConfig
    """The trainee as this training found it: what an adapter is added to."""
    base: MemberConfig
    """The trainee as the recipe names it: what the weights are compared with."""
    outcome: Outcome
    """Their name in an evaluation, their stage and their step."""
    version: int
    """See `Run.version`."""
    finished: bool
    gain: Gain | None
    """What this training was worth on the holdout."""

    @property
    def is_adapter(self) -> bool:
        return adapter_in(self.folder) is not None


def trained(run: Run) -> Trained:
    """Find them.

    Raises:
        RunError: the run has no trained weights yet.
    """
    stages = [stage for stage in run.stages() if stage.best.exists()]
    of = stages[-1] if stages else run
    if run.recipe.trainee is None or not any(of.best.glob("*.safetensors")):
        command = f"pilotfish train {quote(str(run.folder))}"
        raise RunError(f"{run.folder}: no trained weights there yet; train it first: {command}")
    base = run.recipe.team[run.recipe.trainee]
    begun_from, stage = base, of.folder.name if stages else ""
    if len(stages) > 1:
        from pilotfish.train.stages import whole_weights

        # Not as the stage's recipe has it: the run may have moved since.
        begun_from = run.recipe.at(stage, whole_weights(stages[-2])).team[run.recipe.trainee]
    return Trained(
        folder=of.best,
        begun_from=begun_from,
        base=base,
        outcome=next(one for one in outcomes(run) if one.stage == stage),
        version=of.best_version,
        finished=run.finished,
        gain=of.gain(),
    )
