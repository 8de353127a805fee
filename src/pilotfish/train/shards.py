"""Weights in training of which each process has a part: torch's FSDP2 (`fully_shard`), for trainees that one GPU
does not hold.

    accelerate launch --use_fsdp --fsdp_version 2 --num_processes 4 -m pilotfish train RECIPE

A weight is cut along its first dimension, and with it its gradient and AdamW's moments. A layer is whole while it
computes. Checkpoints are whole too, so that any number of processes goes on from them, divided or not. accelerate's own
FSDP is left aside: it needs GPUs, adds gradients up in bfloat16, and its checkpoints are of one kind of launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import Trainer

from pilotfish.engine.weights import gathered, whole
from pilotfish.processes import Processes
from pilotfish.recipe import RecipeError

INSTEAD = "launch it with `--multi_gpu`, where each process has all weights, and with `train: lora` if they do not fit"


def shard(trainer: Trainer) -> None:
    """Divide a trainer's weights among the processes of this launch, before it trains; all of them call it.

    Args:
        trainer: with `WholeCheckpoints`; its module stays the same object, with other parameters.
    """
    compute = torch.bfloat16 if trainer.args.bf16 else None
    _divide(trainer.model, compute)
    if (reference := getattr(trainer, "ref_model", None)) is not None:
        _divide(reference, compute, backward=False)
    accelerator: Any = trainer.accelerator
    prepare = accelerator.prepare_model
    # Autocast, and no copy of all gradients, which DDP would make.
    accelerator.prepare_model = lambda model, **_: prepare(model, device_placement=False, evaluation_mode=True)


def sharded(model: Any) -> bool:
    """Whether each process has a part of a module's weights."""
    return isinstance(model, FSDPModule)


def _divide(model: Any, compute: torch.dtype | None, *, backward: bool = True) -> None:
    """Cut the weights of a transformers model, or of a PEFT model.

    Args:
        model: whole, and the same in each process.
        compute: in which a layer is gathered, as autocast would cast it; its own type when None. Gradients are
            averaged in float32, and what stands between layers keeps its type, as in one process.
        backward: whether one follows a forward pass, for which what lies outside the layers stays whole.

    Raises:
        RecipeError: the model's layers are not known, or share weights with what is no layer.
    """
    kinds = set(model._no_split_modules or ())
    layers = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False)
    found = [module for module in model.modules() if type(module).__name__ in kinds]
    if not found:
        raise RecipeError(f"{_kind(model)} does not say what its layers are, and is not divided; {INSTEAD}")
    if name := _shared(model, found):
        raise RecipeError(f"{_kind(model)} has {name} in several layers, and is not divided; {INSTEAD}")
    for layer in reversed(found):  # one may lie within another
        fully_shard(layer, mp_policy=layers)
    outside = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    fully_shard(model, mp_policy=outside, reshard_after_forward=not backward)
    for module in model.modules():
        module.register_load_state_dict_pre_hook(_cut)


def _shared(model: nn.Module, layers: Sequence[nn.Module]) -> str:
    """The name of a weight that stands in two layers, or in one and outside of all: it would become two."""
    lies_in = {module: number for number, layer in enumerate(layers) for module in layer.modules()}
    first: dict[nn.Parameter, int | None] = {}
    for place, module in model.named_modules():
        for name, weight in module.named_parameters(recurse=False):
            if first.setdefault(weight, lies_in.get(module)) != lies_in.get(module):
                return f"{place}.{name}"
    return ""


def _kind(model: Any) -> str:
    return type(model.get_base_model() if hasattr(model, "get_base_model") else model).__name__


def _cut(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Before a module loads whole weights: leave this process's part of them."""
    for name, weight in module.named_parameters(recurse=False):
        if isinstance(weight, DTensor) and prefix + name in state:
            state[prefix + name] = _part(state[prefix + name], weight)


def _part(value: Tensor, like: DTensor) -> Tensor:
    """This process's part of a whole tensor, divided as another one is. Each process has the whole one."""
    if isinstance(value, DTensor):
        return value
    placed = value.to(like.device, like.dtype)
    return distribute_tensor(placed, like.device_mesh, like.placements, src_data_rank=None)


class WholeCheckpoints:
    """What a trainer writes is whole, also where its weights are divided; mixed into TRL's.

    All processes take part, and the main one writes. The others wait for it as long as it takes: torch's own patience
    is half an hour.
    """

    processes = Processes()
    """That train together; given before training."""
    model: Any
    args: Any
    optimizer: Any
    lr_scheduler: Any

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not sharded(self.model):
            super().save_model(output_dir, _internal_call)  # type: ignore[misc]
        else:
            state = gathered(self.model, keep=self.args.should_save)
            if self.args.should_save:
                self._save(output_dir, state_dict=state)  # type: ignore[attr-defined]
        self.processes.gathered(None)

    def _save_checkpoint(self, *args: Any, **more: Any) -> None:
        super()._save_checkpoint(*args, **more)  # type: ignore[misc]
        self.processes.gathered(None)

    def create_optimizer(self, *args: Any, **more: Any) -> Any:
        made = super().create_optimizer(*args, **more)  # type: ignore[misc]
        if sharded(self.model):
            made.register_state_dict_post_hook(partial(_gather_moments, keep=self.args.should_save))
            made.register_load_state_dict_pre_hook(_cut_moments)
        return made

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Only the main process asks its optimizer for what it has, and the others have parts of that."""
        if sharded(self.model) and not self.args.should_save:
            self.optimizer.state_dict()
        super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """transformers would load the moments of all weights onto each GPU."""
        if checkpoint is None or not sharded(self.model):
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
            return
        for name, part in (("optimizer.pt", self.optimizer), ("scheduler.pt", self.lr_scheduler)):
            part.load_state_dict(torch.load(Path(checkpoint) / name, map_location="cpu", mmap=True, weights_only=True))


def _gather_moments(optimizer: torch.optim.Optimizer, state: dict[str, Any], *, keep: bool) -> dict[str, Any]:
    """What an optimizer says that it has, whole and on the CPU; nothing of it where it is not to be kept."""
    moments: dict[int, dict[str, Any]] = {}
    for number, of in state["state"].items():
        gathered = ((name, whole(value)) for name, value in of.items())
        moments[number] = {name: value.cpu() for name, value in gathered if keep}
    return {**state, "state": moments}


def _cut_moments(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    of = dict(zip(numbers, weights, strict=True))
    moments = {
        number: {name: _part(value, of[number]) if _cuts(value, of[number]) else value for name, value in kept.items()}
        for number, kept in state["state"].items()
    }
    return {**state, "state": moments}


def _cuts(value: Any, weight: Tensor) -> bool:
    """Whether part of an optimizer's state is of the shape of its weight, as its moments are and its count is not."""
    return isinstance(value, Tensor) and isinstance(weight, DTensor) and value.shape == weight.shape
