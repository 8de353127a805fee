"""The processes of a launch, which torchrun and accelerate start; the first, the main one, leads.

    with joined() as processes:
        if not processes.main:
            processes.follow()                     # until the main one has no more to do
        ...
        processes.call(work)                       # the others do it too
        rows = processes.gathered(mine)            # of each process, in their order
        items = processes.whole(items[processes.part])      # of a list that was divided, all

A run that is started plainly is one process. Whoever fails first says why; the others, who hear only that it is gone,
end without a word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pilotfish.engine.base import SaidElsewhere
from pilotfish.recipe import RecipeError
from pilotfish.run import RunError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")

LONGEST_WAIT = timedelta(days=14)
"""For a process that plays episodes, while others wait for it. One that has ended is noticed at once."""
FSDP, DEEPSPEED = "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"
"""How `accelerate launch` says that weights or optimizer states are divided."""
NOT_BUILT = {
    "FSDP_OFFLOAD_PARAMS": ("true", "start more processes, each with a smaller part"),
    "FSDP_RESHARD_AFTER_FORWARD": ("false", "leave it at true"),
    "FSDP_ACTIVATION_CHECKPOINTING": ("true", "set train.gradient_checkpointing in the recipe"),
}
"""Settings of accelerate's FSDP that ask for what is not done here, and the way out. Others say how, and change nothing
of what is learned."""
YES = ("1", "y", "yes", "t", "on")
"""What accelerate takes for true, beside `true`."""
LAUNCHED = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What a launcher of several processes tells each of them, beside how many there are."""


class Processes:
    """The processes of this launch, as one of them sees them.

    Args:
        rank: of this process.
        count: of all.
        group: over which they speak; None where there is one.
        on_gpu: how many are on this one's GPU, itself included; 1 where there is none.
        gpus: of the launch, as CUDA_VISIBLE_DEVICES names them; none where each process sees them all.
        sharded: whether they divide the weights in training among them (FSDP), where else each has all.
    """

    def __init__(
        self,
        rank: int = 0,
        count: int = 1,
        group: ProcessGroup | None = None,
        on_gpu: int = 1,
        gpus: Sequence[str] = (),
        sharded: bool = False,
    ) -> None:
        self.rank = rank
        self.count = count
        self.group = group
        self.on_gpu = on_gpu
        self.gpus = gpus
        self.sharded = sharded

    @property
    def main(self) -> bool:
        """Whether this one leads: it writes the run's files and speaks to the user."""
        return self.rank == 0

    def call(self, work: Callable[[Processes], object]) -> None:
        """Let the other processes do something, which this one does too. In the main process only.

        Args:
            work: can be pickled.
        """
        self.of_main(work)

    def follow(self) -> None:
        """Do what the main process calls this one to, until it has no more."""
        work: Callable[[Processes], object] | None
        while (work := self.of_main(None)) is not None:
            work(self)

    def dismiss(self) -> None:
        """Let the others go: there is no more to do. In the main process only."""
        self.of_main(None)

    def of_main(self, value: T) -> T:
        """The main process's value, in every process; waits for it."""
        if self.group is None:
            return value
        from torch import distributed

        values = [value]
        distributed.broadcast_object_list(values, group_src=0, group=self.group)
        return values[0]

    def gathered(self, mine: T) -> list[T]:
        """The value of each process, in every process; waits for all."""
        if self.group is None:
            return [mine]
        from torch import distributed

        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, mine, group=self.group)
        return values

    @property
    def part(self) -> slice:
        """Which items of a list fall to this process."""
        return slice(self.rank, None, self.count)

    def whole(self, mine: Sequence[T]) -> list[T]:
        """What each process has for its `part` of a list, put together in the list's order; waits for all."""
        shares = self.gathered(mine)
        found: list[Any] = [None] * sum(map(len, shares))
        for rank, share in enumerate(shares):
            found[rank :: len(shares)] = share
        return found


def launched() -> int:
    """How many processes this one was started with."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def follows() -> bool:
    """Whether another process leads."""
    return launched() > 1 and os.environ.get("RANK", "0") != "0"


@contextmanager
def joined(*, sharing: bool = False) -> Iterator[Processes]:
    """Join the processes of this launch, and leave them again; at an error the others are let know.

    Args:
        sharing: whether several may be on one GPU, since they divide no weights and exchange no gradients: an
            evaluation. In a training each has its own.

    Raises:
        RecipeError: a launch of a kind that runs are not made for.
        RunError: another process was lost.
        SystemExit: another process has failed, and says why.
    """
    try:
        _check_launch()
        sharded = not sharing and _sharded()
        if launched() > 1:
            processes, store, nccl = _join(sharing, sharded)
    except (RecipeError, KeyboardInterrupt) as error:
        if follows():  # it is the same for all, and the main process says it, unless torchrun hears of an error before
            raise SystemExit(0 if isinstance(error, RecipeError) else 1) from None
        raise
    if launched() == 1:
        yield Processes()
        return
    from torch import distributed

    left = None
    try:
        with _undivided():
            yield processes
        if processes.main:
            processes.dismiss()
    except BaseException as error:
        # In trouble NCCL would wait for the others; the end of this process lets them know.
        left = processes.group if nccl else None
        if (code := _quiet_code(error, store, processes)) is not None:
            raise SystemExit(code) from error
        if lost(error):
            raise RunError(
                "a process of this launch has ended without a word (killed, or out of memory); give the same command "
                "again: the run goes on where its record ends"
            ) from error
        raise
    finally:
        distributed.destroy_process_group(left)


@contextmanager
def _undivided() -> Iterator[None]:
    """Hide from transformers and accelerate that weights are divided: each would do it in a way of its own, also those
    of frozen members."""
    said = os.environ.pop(FSDP, None)
    try:
        yield
    finally:
        if said is not None:
            os.environ[FSDP] = said


def _join(sharing: bool, sharded: bool) -> tuple[Processes, Any, bool]:
    """This process among the others, the store that all can write to, and whether NCCL is between them."""
    gpus = _gpus()
    on_gpu = _take_gpu(gpus, sharing)
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    nccl = on_gpu > 0 and not sharing
    store, rank, count = next(rendezvous("env://"))
    distributed.init_process_group("cpu:gloo,cuda:nccl" if nccl else "gloo", store=store, rank=rank, world_size=count)
    # Episodes take as long as they take; NCCL's patience, and accelerate's, is some minutes.
    group = distributed.new_group(timeout=LONGEST_WAIT, backend="gloo")
    return Processes(rank, count, group, max(1, on_gpu), gpus, sharded), store, nccl


def _gpus() -> list[str]:
    """The GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()  # leaves CUDA as it is: once it has begun, what it sees is settled
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",")[:count] if seen else [str(number) for number in range(count)]  # a wrong one ends the list


def _take_gpu(gpus: Sequence[str], sharing: bool) -> int:
    """Let this process see its own GPU alone, as the first: engines work in threads, and one that does not say which it
    means is on the first. Says how many processes are on it, 0 where there is none.

    Raises:
        RecipeError: there are fewer than processes, and no two may share one.
    """
    count = len(gpus)
    if not count:
        return 0
    if launched() > count and not sharing:
        raise RecipeError(f"train: {launched()} processes, and {count} of them have a GPU; start {count}")
    own = int(os.environ["LOCAL_RANK"]) % count
    os.environ |= {"CUDA_VISIBLE_DEVICES": gpus[own], "LOCAL_RANK": "0"}
    return len(range(own, launched(), count))


def _sharded() -> bool:
    """Whether this launch is to divide the weights in training.

    Raises:
        RecipeError: in a way that is not built; with the way out.
    """
    said = {name: os.environ.get(name, "").lower() for name in (FSDP, DEEPSPEED, "FSDP_VERSION", *NOT_BUILT)}
    said |= {name: "true" for name, value in said.items() if value in YES and name != "FSDP_VERSION"}
    if said[DEEPSPEED] == "true":
        raise RecipeError(
            f"train: ${DEEPSPEED} is set, and weights are divided by FSDP only; launch with `accelerate launch "
            "--use_fsdp --fsdp_version 2`, or with `--multi_gpu`, where each process has all weights"
        )
    if said[FSDP] != "true":
        return False
    if said["FSDP_VERSION"] != "2":
        raise RecipeError(
            f"train: FSDP of version {said['FSDP_VERSION'] or 1}; only 2 is built: add `--fsdp_version 2`, or set "
            "FSDP_VERSION=2 where torchrun launches"
        )
    if launched() == 1:
        raise RecipeError(f"train: ${FSDP} is set, and one process has nobody to divide weights with; start several")
    for name, (asked, instead) in NOT_BUILT.items():
        if said[name] == asked:
            raise RecipeError(f"train: ${name} is {asked}, which is not built; {instead}")
    return True


def _check_launch() -> None:
    if launched() > 1 and (lacking := [f"${name}" for name in LAUNCHED if name not in os.environ]):
        raise RecipeError(
            f"$WORLD_SIZE is {launched()} without {', '.join(lacking)}; start with torchrun, or unset WORLD_SIZE"
        )
    if (here := int(os.environ.get("LOCAL_WORLD_SIZE", launched()))) != launched():
        raise RecipeError(
            f"{launched()} processes, {here} of them on this machine; the journal of a run is read by all while "
            "it is written, which SQLite does on one machine only. Launch on one, and put frozen members on others, "
            "behind an API"
        )


def _quiet_code(error: BaseException, store: Any, processes: Processes) -> int | None:
    """With which code this process ends where the user hears of it from another one; None where it says why itself."""
    if _left_to_main(error, store):
        # An error would make torchrun end the main process before it has spoken.
        return None if processes.main else 0
    return 1 if _said_by_another(error, store, processes) else None


def _left_to_main(error: BaseException, store: Any) -> bool:
    """Whether what went wrong is for the main process to say, in any of the processes."""
    try:
        return int(store.add("pilotfish/left to main", int(isinstance(error, SaidElsewhere)))) > 0
    except RuntimeError:  # then it is gone
        return False


def _said_by_another(error: BaseException, store: Any, processes: Processes) -> bool:
    """Whether the user hears of it from another process. An interrupt reaches all, and the main one speaks."""
    interrupted = isinstance(error, KeyboardInterrupt)
    if interrupted and not processes.main:
        return True
    try:
        before = int(store.add("pilotfish/failed", 1)) > 1
    except RuntimeError:  # whoever held the store is gone: torchrun, which says nothing any more, or the main process
        return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and not processes.main
    return before and not interrupted


def lost(error: BaseException) -> bool:
    """Whether an error says that another process has gone."""
    from torch.distributed import DistError

    gone = any(words in str(error) for words in ("closed by peer", "reset by peer", "Broken pipe"))
    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and gone)
