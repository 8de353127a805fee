"""`export_model`: a run's trained weights as a folder that Hugging Face's libraries and vLLM read, with a model card.

    exported = export_model(Path("runs/hint"), Path("hint-3b"))
    exported.proof.change.share             # of the parameters that training changed

The folder appears whole or not at all. Its README.md says what the model is for, what it is worth in its team, and how
its weights differ from the base.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from pilotfish.export.card import card
from pilotfish.export.trained import Trained, trained
from pilotfish.export.weights import Proof, type_of, write
from pilotfish.run import Run, RunError
from pilotfish.train.quiet import quiet

CARD = "README.md"
MODEL_FILES = ("config.json", "adapter_config.json")


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    folder: Path
    proof: Proof
    finished: bool
    """Whether the training had come to its end."""
    note: str
    """See `Outcome.note`."""


def export_model(
    folder: Path, out: Path, *, adapter: bool = False, dtype: str | None = None, force: bool = False
) -> Exported:
    """Write the trained weights of a run, of several stages the last one's; of an unfinished run its best so far.

    Args:
        folder: of the run.
        out: of the export.
        adapter: a LoRA's adapter alone; by default it is merged into its base.
        dtype: of whole weights, `bfloat16` or `float32`; by default that in which the member is evaluated.
        force: write over a model that is there, and write weights that training did not change.

    Raises:
        RunError: the run has no trained weights, they are those of the base, or the folder is taken.
        Refused: the base cannot be loaded.
    """
    _check_free(out, force)
    with Run(folder) as run, quiet():
        found = trained(run)
        if adapter:
            _check_adapter(found)
        kind = getattr(torch, dtype) if dtype else type_of(found.base)
        partial = out.with_name(f"{out.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            proof = write(found, partial, adapter=adapter, dtype=kind)
            if not proof.change.parameters_changed and not force:
                raise RunError(_unchanged(found, proof))
            text = card(run, found, proof, name=out.resolve().name, adapter=adapter)
            (partial / CARD).write_text(text, encoding="utf-8", errors="replace")
            _readable(partial)
            shutil.rmtree(out, ignore_errors=True)
            partial.rename(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return Exported(out, proof, found.finished, found.outcome.note)


def _check_free(out: Path, force: bool) -> None:
    """Make sure that nothing is lost that is no export.

    Raises:
        RunError: the folder is not empty, and is no model or `force` is not given.
    """
    there = sorted(path.name for path in out.iterdir()) if out.is_dir() else [out.name] if out.exists() else []
    if not there:
        return
    if not any((out / name).exists() for name in MODEL_FILES):
        raise RunError(f"{out}: holds something else ({there[0]}, …); name a new folder")
    if not force:
        raise RunError(f"{out}: holds a model already; name a new folder, or replace it with --force")


def _readable(folder: Path) -> None:
    """Let whoever may read the card read the weights too: safetensors writes for the owner alone."""
    mode = (folder / CARD).stat().st_mode
    for file in folder.iterdir():
        file.chmod(mode)


def _check_adapter(found: Trained) -> None:
    if not found.is_adapter:
        raise RunError(f"{found.folder}: whole weights, no adapter; leave --adapter out")
    if found.begun_from.model != found.base.model:
        raise RunError(
            f"{found.folder}: an adapter to the weights that the stage before left, which nobody else has; leave "
            "--adapter out to export the sum"
        )


def _unchanged(found: Trained, proof: Proof) -> str:
    why = f"all are equal in {proof.dtype}" if found.outcome.trained else found.outcome.note
    wider = "" if proof.dtype == "float32" else ", try --dtype float32"
    return (
        f"{found.folder}: training changed none of the weights of {found.base.model}: {why}; nothing is exported. Look "
        f"at holdout/accuracy, group/no_spread and grad_norm in metrics.jsonl{wider}, or export them all the same with "
        "--force"
    )
