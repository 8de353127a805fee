"""`pilotfish export RUN`: the trained model as a Hugging Face folder (`--model`), the last evaluation in the format of
another program (`--inspect`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pilotfish.cli.console import out, say_error
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Traceback

if TYPE_CHECKING:
    from pilotfish.export import Exported

Inspect = Annotated[bool, typer.Option("--inspect", help="The last evaluation as logs, for `inspect view`.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where the logs go; inspect/ in the run by default.")
]
Model = Annotated[
    Path | None,
    typer.Option("--model", metavar="FOLDER", help="Write the trained model there, for transformers and vLLM."),
]
Adapter = Annotated[bool, typer.Option("--adapter", help="A LoRA's adapter alone; by default it is merged.")]
Dtype = Annotated[
    Literal["bfloat16", "float32"] | None,
    typer.Option("--dtype", help="Of whole weights; by default the type in which they are evaluated."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a model in FOLDER; also write weights that training did not change.")
]


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    model: Model = None,
    adapter: Adapter = False,
    dtype: Dtype = None,
    force: Force = False,
    inspect: Inspect = False,
    folder: Out = None,
    traceback: Traceback = False,
) -> None:
    """Write a run's trained model, or its last evaluation, for other programs."""
    with one_line(traceback):
        from pilotfish.recipe import RecipeError

        if model is None and not inspect:
            raise RecipeError(
                "say what is written: pilotfish export RUN --model FOLDER, or pilotfish export RUN --inspect"
            )
        if model is None and (adapter or dtype or force):
            raise RecipeError("--adapter, --dtype and --force are of a model; add --model FOLDER")
        if inspect:
            _inspect(run, folder)
        if model is not None:
            from pilotfish.export import export_model

            for line in summary(export_model(run, model, adapter=adapter, dtype=dtype, force=force)):
                out().print(line, soft_wrap=True)


def summary(done: Exported) -> Iterator[str]:
    """What was written, and how it differs from the base. What should worry goes to standard error."""
    proof = done.proof
    if not proof.change.parameters_changed:
        say_error("warning: training changed nothing: these are the weights of the base")
    elif proof.from_base <= proof.rounding:
        say_error(f"warning: rounding to {proof.dtype} moved the model as far as training did; try --dtype float32")
    if done.note:
        say_error(f"warning: {done.note}")
    if not done.finished:
        say_error("warning: the training is not finished; these are its best weights so far")
    yield f"weights    {done.folder}, {proof.dtype}"
    yield f"changed    {proof.change}"
    yield (
        f"read back  log-probabilities within {proof.read_back:.1g} nats of what was written, {proof.rounding:.2g} of "
        f"the trained weights, {proof.from_base:.2g} of the base"
    )
    yield f"card       {done.folder / 'README.md'}"


def _inspect(run: Path, folder: Path | None) -> None:
    from pilotfish.report.inspect_log import FOLDER
    from pilotfish.report.inspect_log import export as write

    written = write(run, folder)
    place = folder or run / FOLDER
    out().print(f"{len(written)} logs in {place}; see them with: inspect view --log-dir {place}", soft_wrap=True)
