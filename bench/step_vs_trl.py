"""A GRPO step: ours against stock TRL, where its time goes, and how far it is from what engine and memory allow.

    python bench/step_vs_trl.py                                                            # on a GPU: everything
    python bench/step_vs_trl.py --tasks 2 --group 4 --tokens 8 --steps 3 --arms ours generate    # anywhere

Settings: `hint` is the hint topology, 12 tasks x 16 hints of up to 48 tokens, a frozen greedy actor that answers in up
to 96; `solo` is 64 tasks x 8 answers of up to 128 tokens without an actor, 128 rows a pass. Both have the same policy,
prompts, sampling, optimizer, loss and verifier on all sides. Arms: `ours`; stock TRL with an async reward function that
calls the same actor, generating with `generate()`, with its own continuous batching (`batching`), or with vLLM in its
process (`vllm`, where it is installed; with CUDA graphs and nothing compiled, which starts sooner and draws faster with
a model of this size).

Lines `value SETTING_ARM_FIGURE NUMBER`: medians over the steps that count; `steps` lists these steps, as one arm runs
after the other, and `flushes` how often in each torch gave back all GPU memory that it held in order to get some, which
costs a second. For ours, tokens a second of the rollouts, of the engines alone that are given a step's calls all at
once (`offline`), and of a decoder that does nothing but read weights and cache at the memory's bandwidth (`least`).
Each arm comes to a line `ratio SETTING_ARM_over_ours`; one that fails is named, and the others go on. vLLM is best the
first arm of a process: behind others it has ended it.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import importlib.util
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl.extras.profiling import ProfilingContext
from trl.generation import vllm_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from _offline import calls_of, least_seconds, offline
from _ours import Ours
from _steps import Flown, Steps, union, where
from pilotfish import Task, load_tasks
from pilotfish.engine.loading import load
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.topology import hint, solo
from pilotfish.train.grpo import arguments
from pilotfish.train.profile import TrainConfig
from pilotfish.train.row import Row
from pilotfish.verify import VerifierPool

ADVISE, SOLVE_WITH_HINT = hint.defaults()["prompts"].advise, hint.defaults()["prompts"].solve
SOLVE = solo.defaults()["prompts"].solve
SIZES: dict[str, dict[str, Any]] = {
    "hint": {"tasks": 12, "group": 16, "tokens": 48, "micro": None},
    "solo": {"tasks": 64, "group": 8, "tokens": 128, "micro": 128},
}
ARMS: dict[str, dict[str, Any]] = {
    "generate": {},
    "batching": {
        "use_transformers_continuous_batching": True,
        "transformers_continuous_batching_config": {"max_memory_percent": 0.3},
    },
    "vllm": {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3},
}
"""What stock TRL is told beside all that is the same."""
GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 8, 32, 64, 128, 256, 512]}
"""How vLLM runs a model, which TRL has no option for."""
SPENT = {
    "transformers.generate": "generate_s",
    "transformers.generate_batch": "generate_s",
    "vLLM.generate": "generate_s",
    "sync_weights": "sync_s",
    "_calculate_rewards": "reward_s",
}
"""Parts of stock TRL's step, by what it calls them."""


@dataclass(frozen=True)
class Setting:
    """What is trained, the same for every arm."""

    name: str
    recipe: Recipe
    tasks: list[Task]
    actor: Flown | None
    pool: VerifierPool
    options: argparse.Namespace

    def steps(self) -> Steps:
        return Steps(self.options.steps, self.options.limit)

    def ours(self) -> Steps:
        """Steps of this project."""
        steps = self.steps()
        frozen = {"actor": self.actor} if self.actor else {}
        ours = Ours(self.recipe, self.tasks, frozen, self.pool.judge, steps)
        with steps.told(f"{self.name}_ours"):
            ours.train(last=lambda policy, rows: self.alone(steps, policy, rows))
        return steps

    async def alone(self, steps: Steps, policy: Any, rows: Sequence[Row]) -> None:
        """Tokens a second of the rollouts, of the engines alone with the calls of a step, and of the memory alone."""
        seconds = least = drawn = 0.0
        for member, calls in calls_of(rows).items():
            engine: Any = self.actor.engine if self.actor and member == "actor" else policy
            seconds += await offline(engine._tokens, calls)
            least += least_seconds(engine._model, calls, self.options.bandwidth)
            drawn += sum(count for _, count in calls)
        in_rollouts = statistics.median(map(float.__truediv__, steps.of("tokens"), steps.of("rollout_s")))
        rates = {"rollout": in_rollouts, "offline": drawn / seconds, "least": drawn / least}
        for name, rate in rates.items():
            print(f"value {self.name}_{name}_tokens_per_second {rate:.0f}")
        print(f"ratio {self.name}_rollout_over_offline {in_rollouts * seconds / drawn:.2f}")
        print(f"ratio {self.name}_offline_over_least {least / seconds:.4f}", flush=True)

    def stock(self, arm: str) -> Steps:
        """Steps of stock TRL."""
        steps = self.steps()
        member = self.recipe.team["collaborator"]
        model, tokenizer = load(member.model, dtype="float32", device=member.device)

        def spent(context: ProfilingContext, seconds: float) -> None:
            if part := SPENT.get(context.name.rpartition("Trainer.")[2]):
                steps.add(part, seconds)

        with tempfile.TemporaryDirectory() as folder, patch.object(ProfilingContext, "_log_metrics", spent):
            assert isinstance(self.recipe.train, TrainConfig)
            if arm == "vllm":
                os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # else it is no engine in this process
                vllm_generation.LLM = functools.partial(vllm_generation.LLM, compilation_config=GRAPHS)
            args = arguments(self.recipe.train, steps.needed, Path(folder), seed=0, limit=member.sampling.max_tokens)
            for name, value in ARMS[arm].items():
                setattr(args, name, value)
            trainer = GRPOTrainer(
                model=model,
                reward_funcs=self.reward(steps),
                args=args,
                train_dataset=Dataset.from_dict({"prompt": [self.asked(task) for task in self.tasks]}),
                processing_class=tokenizer,
            )
            trainer.remove_callback(PrinterCallback)
            steps.watch(trainer)
            with steps.told(f"{self.name}_{arm}"):
                trainer.train()
        return steps

    def asked(self, task: Task) -> Any:
        return ADVISE(task) if self.actor else SOLVE(task)

    def reward(self, steps: Steps) -> Any:
        """The reward function of stock TRL: the verdict on the actor's answer, or on the policy's own."""
        by_question = {self.asked(task)[-1]["content"]: task for task in self.tasks}
        actor, pool = self.actor, self.pool
        sampling = self.recipe.members()["actor"].sampling if actor else None

        async def one(prompt: Any, said: str) -> float | None:
            task = by_question[prompt[-1]["content"]]
            if actor and sampling:
                said = (await actor.complete(SOLVE_WITH_HINT(task, hint=said), sampling, 0)).text
            return (await pool.judge(task, said, "free")).reward

        async def reward(
            prompts: list[Any], completions: list[Any], completion_ids: list[list[int]], **columns: Any
        ) -> list[float | None]:
            said = [completion[0]["content"] for completion in completions]
            rewards = await asyncio.gather(*(one(*pair) for pair in zip(prompts, said, strict=True)))
            spans, answered = actor.taken() if actor else ([], 0)
            steps.add("frozen_s", union(spans))
            steps.add("tokens", sum(map(len, completion_ids)) + answered)
            return list(rewards)

        return reward


def recipe_of(setting: str, options: argparse.Namespace, size: Mapping[str, Any], steps: int) -> Recipe:
    team: dict[str, Any] = {
        "collaborator": {"model": options.model, "train": "full", "sampling": {"max_tokens": size["tokens"]}}
    }
    rows = size["tasks"] * size["group"]
    if setting == "hint":
        sampling = {"temperature": 0, "max_tokens": 2 * size["tokens"]}
        team["actor"] = {"model": options.actor or options.model, "sampling": sampling}
    return parse_recipe(
        {
            "team": team,
            "topology": "hint" if setting == "hint" else {"name": "solo", "options": {"member": "collaborator"}},
            "train": {
                "group_size": size["group"],
                "tasks_per_step": size["tasks"],
                "updates_per_step": 1,
                "micro_batch": min(size["micro"] or rows, rows),
                "steps": steps,
                "save_every": 1_000_000,
            },
        }
    )


def measure(name: str, options: argparse.Namespace, pool: VerifierPool) -> None:
    """All arms in one setting."""
    given = {key: value for key in SIZES[name] if (value := getattr(options, key)) is not None}
    size = {**SIZES[name], **given}
    needed = Steps(options.steps).needed
    recipe = recipe_of(name, options, size, needed)
    tasks = load_tasks({"source": "gym:chain_sum", "size": size["tasks"] * needed, "seed": 7, "verifier": "maths"})
    actor = Flown(TransformersEngine.load(options.actor or options.model)) if name == "hint" else None
    setting = Setting(name, recipe, tasks, actor, pool, options)
    print(name, where(size["tasks"] * size["group"]), flush=True)
    medians: dict[str, float] = {}
    for arm in options.arms:
        try:
            medians[arm] = statistics.median((setting.ours() if arm == "ours" else setting.stock(arm)).seconds)
        except (Exception, SystemExit) as error:  # the figures of the others are worth having
            print(f"failed {name}_{arm} {error!r}", flush=True)
        if "ours" in medians:
            for other in [arm for arm in medians if arm != "ours"]:
                print(f"ratio {name}_{other}_over_ours {medians.pop(other) / medians['ours']:.2f}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    if actor:
        asyncio.run(actor.close())


def main() -> None:
    here = [*(["vllm"] if importlib.util.find_spec("vllm") else []), "ours", "generate", "batching"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--arms", nargs="+", default=here, choices=["ours", *ARMS])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--actor", default=None, help="the model itself when not given")
    parser.add_argument("--steps", type=int, default=8, help="that count, after two of warm-up")
    parser.add_argument(
        "--limit", type=float, default=75.0, help="seconds of an arm after which no further step begins"
    )
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="of the GPU's memory, bytes a second")
    parser.add_argument("--tasks", type=int, help="a step; in place of the setting's own, as are:")
    parser.add_argument("--group", type=int)
    parser.add_argument("--tokens", type=int, help="of the policy's words; an actor gets twice as many")
    parser.add_argument("--micro", type=int, help="rows in one forward and backward pass")
    options = parser.parse_args()
    with VerifierPool() as pool:
        for name in options.settings:
            measure(name, options, pool)


if __name__ == "__main__":
    main()
