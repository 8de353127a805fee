"""The model card of an export: README.md, as Hugging Face's hub reads it.

The front matter names the base, the tags and the accuracy of the team; the text is for a reader who has not seen the
run. It holds no folder of this machine, no key and no address.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from huggingface_hub import ModelCardData

from pilotfish.export import sections
from pilotfish.export.measured import Measured, measured, results, tables
from pilotfish.export.names import described, on_hub, public
from pilotfish.export.trained import Trained
from pilotfish.export.weights import Proof
from pilotfish.recipe import Recipe
from pilotfish.run import Run


def card(run: Run, found: Trained, proof: Proof, *, name: str, adapter: bool) -> str:
    """Write the card.

    Args:
        run: that was trained.
        found: its trained weights.
        proof: how they differ from the base.
        name: of the exported folder.
        adapter: whether it holds an adapter.
    """
    recipe, figures, base = run.recipe, measured(run, found), public(found.base.model)
    parts = [
        f"---\n{front(recipe, figures, name=name, adapter=adapter).to_yaml()}\n---",
        f"# {name}",
        _opening(recipe),
        *_warnings(found, proof),
        *sections.team(recipe),
        *sections.use(recipe, name=name, base=base, adapter=adapter),
        *_evaluation(figures),
        *sections.training(recipe, found, _version()),
        *sections.weights(proof, described(found.base.model)),
        *sections.limits(recipe),
    ]
    return "\n\n".join(parts) + "\n"


def front(recipe: Recipe, figures: Measured, *, name: str, adapter: bool) -> ModelCardData:
    """The front matter. A base that is on no hub is told in the text alone, and no license is made up."""
    base = recipe.team[recipe.trainee or ""].model
    hub = public(base) if base == "smollm2" or on_hub(base) else None
    return ModelCardData(
        base_model=hub,
        base_model_relation=("adapter" if adapter else "finetune") if hub else None,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=[
            "pilotfish",
            "multi-agent",
            "reinforcement-learning",
            *(f"topology-{name}" for name in _topologies(recipe)),
        ],
        model_name=name if figures.benchmarks else None,
        eval_results=list(results(figures)) or None,
        ignore_metadata_errors=False,
    )


def _opening(recipe: Recipe) -> str:
    others = [seat for seat in recipe.team if seat != recipe.trainee]
    beside = f"; the other members ({', '.join(others)}) are frozen" if others else ""
    base, topology = described(recipe.team[recipe.trainee or ""].model), " and ".join(_topologies(recipe))
    return f"This is {base}, trained as the `{recipe.trainee}` of a team in the topology {topology}{beside}."


def _topologies(recipe: Recipe) -> list[str]:
    return [topology.name for topology in recipe.topologies()]


def _warnings(found: Trained, proof: Proof) -> list[str]:
    """What a reader must know before the rest."""
    told = []
    if not proof.change.parameters_changed:
        told.append("**Training changed nothing: these are the weights of the base.**")
    elif proof.from_base <= proof.rounding:
        told.append(f"**Rounding to {proof.dtype} moved the model as far as training did; see The weights.**")
    if not found.finished:
        told.append("**The training was not finished when this was exported; these are its best weights so far.**")
    if note := found.outcome.note:
        told.append(f"**{note[0].upper()}{note[1:]}.**")
    return told


def _evaluation(figures: Measured) -> list[str]:
    parts = ["## Evaluation"]
    if figures.why_not:
        return [*parts, figures.why_not]
    parts.append("Intervals are 95 %, by bootstrap over tasks; differences are paired by task.")
    for one in figures.benchmarks:
        parts += [f"### {one.name}", *tables(one)]
    return parts


def _version() -> str:
    try:
        return version("pilotfish")
    except PackageNotFoundError:
        return "(not installed)"
