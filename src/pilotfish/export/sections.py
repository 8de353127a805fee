"""The sections of a model card: what the team is, how the trainee is used, how it was trained, what changed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from pilotfish.engine.vllm_command import max_rank
from pilotfish.evaluate.table import markdown_table, percent
from pilotfish.export.names import described, public_recipe, public_value
from pilotfish.export.trained import Trained
from pilotfish.export.weights import TOLERANCE, Proof
from pilotfish.recipe import Recipe
from pilotfish.report.team import seated
from pilotfish.topology import Topology
from pilotfish.topology.prompts import Prompts

SEAT_FIELDS = {"engine", "model", "revision", "base_url", "sampling"}
"""What a reader needs to seat a member."""

ALONE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}", dtype="auto")
tokenizer = AutoTokenizer.from_pretrained("{name}")
messages = [{{"role": "user", "content": "…"}}]  # in the words of its prompt, above
prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
said = model.generate(**prompt, max_new_tokens={limit})
print(tokenizer.decode(said[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))"""
ALONE_ADAPTER = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("{base}", dtype="auto")
model = PeftModel.from_pretrained(base, "{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")"""
SERVED = "vllm serve {name}"
SERVED_ADAPTER = "vllm serve {base} --enable-lora --max-lora-rank {rank} --lora-modules {name}={name}"


def team(recipe: Recipe) -> Iterator[str]:
    """Who sits where, who asks whom, and in which words."""
    told = public_recipe(recipe)
    seats = seated(told)
    yield "## The team"
    yield markdown_table(seats.section())
    yield seats.note
    for topology in recipe.topologies():
        yield from _topology(topology)


def _topology(topology: Topology) -> Iterator[str]:
    """What a topology does, where it is one of Pilotfish's own, and its prompts."""
    module = topology.function.__module__
    if module.startswith("pilotfish.topology."):
        first = (sys.modules[module].__doc__ or "").partition("\n\n")[0]
        yield " ".join(first.split())
    options = {**topology.defaults(), **topology.options}
    for prompts in (value for value in options.values() if isinstance(value, Prompts)):
        yield f"The prompts of `{topology.name}`; `{{names}}` are filled in:"
        yield fenced(as_yaml(prompts.as_dict()), "yaml")


def use(recipe: Recipe, *, name: str, base: str, adapter: bool) -> Iterator[str]:
    """In the team, by itself, and behind a server."""
    member = recipe.team[recipe.trainee or ""]
    words = {"name": name, "base": base, "limit": member.sampling.max_tokens}
    words |= {"rank": max_rank(member.lora.rank) if member.lora else 0}
    yield "## Use"
    yield (
        "In its team, with Pilotfish: name benchmarks under `evaluate` and run `pilotfish eval` on this recipe. "
        "Addresses and the names of keys are yours to fill in."
    )
    yield fenced(as_yaml(_seating(recipe, name)), "yaml")
    if adapter and member.model == "smollm2":
        yield (
            "It was trained on `smollm2`, which is that base out of a file of four bits a weight. For the model that "
            "was measured write `smollm2` into `adapter_config.json`, as `base_model_name_or_path`."
        )
    yield "By itself it says what it says to its team, which need not be an answer to the question:"
    yield fenced((ALONE_ADAPTER if adapter else ALONE).format(**words), "python")
    yield "Behind a server:"
    yield fenced((SERVED_ADAPTER if adapter else SERVED).format(**words), "shell")


def _seating(recipe: Recipe, name: str) -> dict[str, Any]:
    """A recipe that seats the exported model among the frozen members."""
    told = public_recipe(recipe)
    team = {
        seat: member.model_dump(mode="json", include=SEAT_FIELDS, exclude_defaults=True)
        for seat, member in told.team.items()
    }
    team[recipe.trainee or ""] |= {"model": name}
    team[recipe.trainee or ""].pop("revision", None)
    topologies = [config.model_dump(mode="json", exclude_defaults=True) for config in (told.topology, *told.mix)]
    return {"team": team, "topology": topologies[0], **({"mix": topologies[1:]} if told.mix else {})}


def training(recipe: Recipe, found: Trained, version: str) -> Iterator[str]:
    """How the weights came about."""
    tasks = recipe.tasks.model_dump(mode="json", exclude_defaults=True) if recipe.tasks else {}
    trainings = recipe.stages or {"train": recipe.train}
    settings = {
        "seed": recipe.seed,
        "tasks": tasks,
        "trained": recipe.team[recipe.trainee or ""].model_dump(mode="json", include={"train"})["train"],
        **{name: config.model_dump(mode="json", exclude={"report_to"}) for name, config in trainings.items() if config},
    }
    of = f" of stage `{found.outcome.stage}`" if found.outcome.stage else ""
    step = "" if found.outcome.step is None else f" The weights are those of step {found.outcome.step}{of}."
    yield "## Training"
    yield f"Pilotfish {version}.{step}{_holdout(found)} Settings:"
    yield fenced(as_yaml(public_value(settings)), "yaml")


def _holdout(found: Trained) -> str:
    if found.gain is None:
        return ""
    before, after = percent(found.gain.before), percent(found.gain.after)
    return f" On {found.gain.judged} tasks held out the team was right in {before} % before and {after} % with them."


def weights(proof: Proof, base: str) -> Iterator[str]:
    """What differs from the base, and how that was seen."""
    change = proof.change
    rows = {
        "tensors changed": f"{change.tensors_changed:,} of {change.tensors:,}",
        "parameters changed": f"{change.parameters_changed:,} of {change.parameters:,} ({100 * change.share:.3g} %)",
        "largest change": f"{change.largest:.3g}",
        "mean change, those that stayed included": f"{change.mean:.3g}",
        "norm of the change / norm of the base": f"{change.relative_norm:.3g}",
        "log-probability of a token, farthest from the base": f"{proof.from_base:.3g} nats",
        f"the same from the trained weights before rounding to {proof.dtype}": f"{proof.rounding:.3g} nats",
        f"the same from what was written ({TOLERANCE:g} is allowed)": f"{proof.read_back:.3g} nats",
    }
    yield "## The weights"
    yield (
        f"Counted against {base} as this folder was written, in {proof.dtype}; then the folder was loaded with "
        "transformers, and one prompt read by it, by the trained weights and by the base."
    )
    yield "\n".join(["| | |", "|:---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())])


def limits(recipe: Recipe) -> Iterator[str]:
    """What a reader should not expect."""
    base = described(recipe.team[recipe.trainee or ""].model)
    yield "## Limits"
    yield "\n".join(
        [
            f"- It was trained for one seat, `{recipe.trainee}`, in the words above; in other teams it may be worth "
            "less than the base.",
            "- The figures hold for these members and benchmarks. A member behind an API may change under its name.",
            "- Nothing was done about safety beyond what the base has.",
            f"- The license is that of {base}, which is not recorded here; see there before you pass this on.",
        ]
    )


def as_yaml(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def fenced(text: str, language: str) -> str:
    """A block that nothing in the text can end."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
