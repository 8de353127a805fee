"""Whether weights fit: what a recipe puts on each GPU, against the one that is there, or those that are common.

    for place in places(recipe, memory(recipe)): print(place.sentence)

Activations and the caches of engines come on top, so what does not fit here fits in no case.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.preflight.memory import Held, in_each
from pilotfish.recipe import Recipe

COMMON = {24: 23, 48: 44, 80: 79, 141: 139}
"""GPUs by the GB that they are sold with, and the GiB of each that can be used."""
GIB = 2**30
PROCESSES = (2, 4, 8)
"""Among which a trainee's weights are commonly divided."""
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""One of these is there where a GPU is; without any torch is not imported, which takes seconds."""


@dataclass(frozen=True)
class Place:
    """A GPU, and what a recipe puts on it."""

    gpu: int
    held: float
    """Bytes of weights and of what trains them."""
    at_least: bool
    """Whether a model is known by its name alone, or not at all."""
    served: float
    """The share of it that servers of the run's own take."""
    total: float | None
    """Its bytes; None where it is not there."""
    full: str
    """The member of which all weights are trained on it; empty where there is none."""

    @property
    def fits(self) -> bool:
        """Whether it holds that, or one of the common GPUs does where it is not there."""
        return self.held <= self.room if self.total is not None else self.smallest is not None

    @property
    def room(self) -> float:
        """Bytes of it that servers leave."""
        return (self.total or 0.0) * (1 - self.served)

    @property
    def smallest(self) -> int | None:
        """GB of the smallest common GPU that holds it."""
        return next((sold for sold, gib in COMMON.items() if self.held <= gib * GIB * (1 - self.served)), None)

    @property
    def what(self) -> str:
        """What it takes, beside what there is."""
        gib = self.held / GIB
        size = f"{gib:,.0f}" if gib >= 100 else f"{gib:.3g}"
        takes = f"weights take {'at least ' * self.at_least}{size} GiB of GPU {self.gpu}"
        if self.total is not None:
            servers = f", {self.served:g} of which is its servers'" if self.served else ""
            return f"{takes}, which has {self.total / GIB:,.0f}{servers}"
        if self.smallest is None:
            return f"{takes}; no common one holds them ({max(COMMON)} GB is the largest)"
        return f"{takes}; one of {self.smallest} GB holds them"

    @property
    def way_out(self) -> str:
        """How it takes less; empty where it fits."""
        if self.fits:
            return ""
        first = f"`train: lora` at {self.full}" if self.full else "smaller models"
        return f"{first}, or put frozen members elsewhere (`device`, `engine: vllm`, a server)"

    @property
    def sentence(self) -> str:
        """Both, as one line."""
        said = self.what[0].upper() + self.what[1:]
        return f"{said}." if self.fits else f"{said}. They do not fit; use {self.way_out}."


def places(recipe: Recipe, held: Sequence[Held]) -> list[Place]:
    """The GPUs that weights in process are put on, in order."""
    sizes, unsure, full = Counter[int](), set[int](), dict[int, str]()
    for entry in held:
        if (gpu := _gpu(entry.device)) is None:
            continue
        sizes[gpu] += int(entry.bytes or 0)
        if entry.model.known_from in ("name", "nothing"):
            unsure.add(gpu)
        if (trainee := recipe.trainee) in entry.members and trainee and recipe.team[trainee].train == "full":
            full[gpu] = trainee
    served = shares(recipe)
    return [
        Place(gpu, size, gpu in unsure, min(1.0, served.get(gpu, 0.0)), _total(gpu), full.get(gpu, ""))
        for gpu, size in sorted(sizes.items())
        if size
    ]


def divided(recipe: Recipe, held: Sequence[Held]) -> str:
    """What a trainee takes that is trained in full and that a small GPU does not hold, where processes divide it; a
    sentence, empty where there is none."""
    for entry in held:
        full = recipe.trainee in entry.members and recipe.team[recipe.trainee or ""].train == "full"
        if full and _gpu(entry.device) is not None and (entry.bytes or 0) > min(COMMON.values()) * GIB:
            sizes = [f"{(in_each(entry, count) or 0) / GIB:,.0f}" for count in PROCESSES]
            among = f"{', '.join(map(str, PROCESSES[:-1]))} or {PROCESSES[-1]} processes"
            return (
                f"Divided among {among} (`accelerate launch --use_fsdp --fsdp_version 2`) {recipe.trainee} takes "
                f"{', '.join(sizes[:-1])} or {sizes[-1]} GiB of each GPU."
            )
    return ""


def shares(recipe: Recipe) -> dict[int, float]:
    """By GPU, the share of it that servers of the run's own ask for."""
    found: dict[int, float] = {}
    for served in {member.server: member.served for member in recipe.team.values() if member.engine == "vllm"}.values():
        for gpu in served.places:
            found[gpu] = found.get(gpu, 0.0) + served.memory
    return found


def _gpu(device: str) -> int | None:
    """The number of the GPU that a device is; None for another device."""
    if device in ("auto", "cuda"):
        return 0
    kind, _, number = device.partition(":")
    return int(number) if kind == "cuda" and number.isdigit() else None


def _total(gpu: int) -> float | None:
    if not any(map(os.path.exists, DRIVERS)):
        return None
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available() or gpu >= torch.cuda.device_count():
        return None
    return float(torch.cuda.mem_get_info(gpu)[1])
