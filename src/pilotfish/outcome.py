"""What trainings left: the step that the best weights of a run, or of each of its stages, are of.

outcomes(run)[-1].trained     # False: the best weights are those before training
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pilotfish.run import VERSIONS, Run


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best weights of one training."""

    name: str
    """Of these weights in an evaluation: `trained`, the stage's, or that in `evaluate.weights`."""
    step: int | None
    """Of that training; 0 is before it, None is not known."""
    stage: str = ""
    """Empty for a run without stages."""
    begun_from: str = ""
    """The last stage before it whose training changed the weights; empty where none did."""

    @property
    def trained(self) -> bool:
        """Whether this training or one before it has changed the weights."""
        return self.step != 0 or bool(self.begun_from)

    @property
    def note(self) -> str:
        """Which weights these are where no step of the training was better; else empty."""
        if self.step != 0:
            return ""
        if self.begun_from:
            return (
                f"stage {self.stage} did not help on the holdout: its best weights are those that it began with "
                f"(step 0), which stage {self.begun_from} left"
            )
        of = f"of stage {self.stage} " if self.stage else ""
        return f"the best weights {of}are those before training (step 0): no later step was better on the holdout"

    @property
    def told(self) -> str:
        """The note beside the figures of an evaluation."""
        return f"{self.name}: {self.note}" if self.note and self.name != self.stage else self.note


def outcomes(run: Run, spoken: Mapping[str, int] | None = None) -> list[Outcome]:
    """Of a run, or of each of its stages in their order, that has left weights; the run's `best` is the last one's.

    Args:
        run: with its weights, or what is left of it.
        spoken: versions of weights that are told of, by their name, where these may be others than are there now.
    """
    stages = {stage.folder.name: stage for stage in run.stages()}
    trainings = [(name, stages.get(name)) for name, config in run.recipe.stages.items() if config]
    found: list[Outcome] = []
    before = ""
    for name, of in trainings or [("trained", run)]:
        version = (spoken or {}).get(name)
        step = _step(of, version)
        if step is None and version is None and not (of and of.best.exists()):
            continue
        found.append(Outcome(name, step, name if trainings else "", before))
        before = name if step != 0 else before
    return found


def _step(run: Run | None, version: int | None) -> int | None:
    """Of a training's best weights, wherever they are now, or of those whose version is given."""
    step = None
    if run is not None:
        step = run.best_step if run.best.exists() else run.state("finished").get("best")
    if version is None:
        return step
    return 0 if version % VERSIONS == 0 else step or None
