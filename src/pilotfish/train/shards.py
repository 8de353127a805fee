"""Weights in training of which each process has a part: torch's FSDP2 (`fully_shard`), for trainees that one GPU
does not hold.

    accelerate launch --use_fsdp --fsdp_version 2 --num_processes 4 -m pilotfish train RECIPE

A weight is cut along its first dimension, and with it its gradient and AdamW's moments. A layer is whole while it
computes. Checkpoints are whole too, so that any number of processes goes on from them, divided or not. accelerate's own
FSDP is left aside: it needs GPUs, adds gradients up in bfloat16, and its checkpoints are of one kind of launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import Trainer

from pilotfish.engine.weights import gathered, whole


def shard(trainer: Trainer) -> None:
    """Divide a trainer's weights among the processes of this launch, before it trains; all of them call it.

    Args:
        trainer: with `WholeCheckpoints`; its module stays the same object, with other parameters.
    """
    for model in filter(None, (trainer.model, getattr(trainer, "ref_model", None))):
        _divide(model, torch.bfloat16 if trainer.args.bf16 else None)
    accelerator: Any = trainer.accelerator
    prepare = accelerator.prepare_model
    # Autocast, and no copy of all gradients, which DDP would make.
    accelerator.prepare_model = lambda model, **_: prepare(model, device_placement=False, evaluation_mode=True)


def sharded(model: Any) -> bool:
    """Whether each process has a part of a module's weights."""
    return isinstance(model, FSDPModule)


def _divide(model: nn.Module, compute: torch.dtype | None) -> None:
    """Cut the weights of a transformers model, or of a PEFT model.

    Args:
        model: whole, and the same in each process.
        compute: in which a layer is gathered, as autocast would cast it; its own type when None. Gradients are
            averaged in float32, and what stands between layers keeps its type, as in one process.
    """
    named: Any = model
    kinds = set(named._no_split_modules or ())
    layers = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in [module for module in model.modules() if type(module).__name__ in kinds]:
        fully_shard(layer, mp_policy=layers)
    fully_shard(model, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False))
    each: Any = model.modules()
    for module in each:
        module.register_load_state_dict_pre_hook(_cut)


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

    All processes take part, and the main one writes.
    """

    model: Any
    args: Any
    optimizer: Any
    lr_scheduler: Any

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not sharded(self.model):
            super().save_model(output_dir, _internal_call)  # type: ignore[misc]
            return
        state = gathered(self.model, keep=self.args.should_save)
        if self.args.should_save:
            self._save(output_dir, state_dict=state)  # type: ignore[attr-defined]

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
