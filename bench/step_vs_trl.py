"""A GRPO step of the hint topology: ours against stock TRL with an async reward function that calls the actor.

    python bench/step_vs_trl.py --model smollm2 --steps 4 --tasks 12 --group 16          # on a GPU
    python bench/step_vs_trl.py --model smollm2 --steps 1 --tasks 2 --group 4 --tokens 8   # anywhere

Same policy, same frozen actor on the same engine, same prompts, lengths, optimizer and loss; what differs is who
generates the hints and how the calls are played: stock TRL generates with `generate()` and then awaits its reward
function. The first step of each side is warm-up and not counted. Ends with `ratio step_stock_over_ours VALUE`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.grpo_trainer import GRPOTrainer

from pilotfish import Journal, Task, Team, load_tasks
from pilotfish.background import Background
from pilotfish.engine.loading import load
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.topology import hint
from pilotfish.train.grpo import arguments, train
from pilotfish.train.rollout import Rollout, RowId
from pilotfish.verify import VerifierPool

PROMPTS = hint.defaults()["prompts"]


class Times(TrainerCallback):
    """Seconds between the ends of steps."""

    def __init__(self) -> None:
        self.ends = [time.monotonic()]

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.monotonic())

    def steps(self) -> list[float]:
        return [after - before for before, after in zip(self.ends, self.ends[1:], strict=False)]


def stock(recipe: Recipe, tasks: list[Task], actor: TransformersEngine, pool: VerifierPool) -> list[float]:
    """Steps of stock TRL."""
    sampling = recipe.members()["actor"].sampling
    by_question = {task.question: task for task in tasks}

    async def reward(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        async def one(prompt: Any, said: Any) -> float | None:
            task = by_question[prompt[-1]["content"]]
            answer = await actor.complete(PROMPTS.solve(task, hint=said[0]["content"]), sampling, 0)
            return (await pool.judge(task, answer.text, "free")).reward

        return list(await asyncio.gather(*(one(*pair) for pair in zip(prompts, completions, strict=True))))

    member = recipe.team["collaborator"]
    model, tokenizer = load(member.model, dtype="float32", device=member.device)
    times = Times()
    with tempfile.TemporaryDirectory() as folder:
        args = arguments(recipe.train, recipe.train.steps, Path(folder), seed=0, limit=member.sampling.max_tokens)
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": [PROMPTS.advise(task) for task in tasks]}),
            processing_class=tokenizer,
            callbacks=[times],
        )
        trainer.remove_callback(PrinterCallback)
        times.ends = [time.monotonic()]
        trainer.train()
    return times.steps()


def ours(recipe: Recipe, tasks: list[Task], actor: TransformersEngine, pool: VerifierPool) -> list[float]:
    """Steps of this project, with the parts they spend their time in."""
    member = recipe.team["collaborator"]
    model, tokenizer = load(member.model, dtype="float32", device=member.device)
    laps: list[dict[str, float]] = []
    background = Background()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal")

        def rollout(policy: Any) -> Rollout:
            team = Team(recipe.members(training=True), {"collaborator": policy, "actor": actor})
            return Rollout(hint, team, {task.id: task for task in tasks}, journal, pool.judge, recipe.train)

        train(
            recipe,
            [RowId(task.id) for task in tasks],
            model,
            tokenizer,
            rollout,
            background=background,
            output=Path(folder) / "checkpoints",
            on_step=lambda step, trainer, policy: False,
            on_log=lambda step, figures: laps.append({k: v for k, v in figures.items() if k.startswith("seconds/")}),
        )
        journal.close()
    for lap in laps:
        print("ours", {name.removeprefix("seconds/"): round(value, 2) for name, value in lap.items()})
    return [lap["seconds/step"] for lap in laps]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--actor", default=None, help="the model itself when not given")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48, help="of a hint; the actor gets twice as many")
    options = parser.parse_args()
    rows = options.tasks * options.group
    recipe = parse_recipe(
        {
            "team": {
                "collaborator": {"model": options.model, "train": "full", "sampling": {"max_tokens": options.tokens}},
                "actor": {
                    "model": options.actor or options.model,
                    "sampling": {"temperature": 0, "max_tokens": 2 * options.tokens},
                },
            },
            "topology": "hint",
            "train": {
                "group_size": options.group,
                "tasks_per_step": options.tasks,
                "updates_per_step": 1,
                "micro_batch": rows,
                "steps": options.steps + 1,
                "save_every": 1_000_000,
            },
        }
    )
    source = {"source": "gym:chain_sum", "size": options.tasks * (options.steps + 1), "seed": 7, "verifier": "maths"}
    tasks = load_tasks(source)
    actor = TransformersEngine.load(options.actor or options.model)
    with VerifierPool() as pool:
        mine = ours(recipe, tasks, actor, pool)[1:]
        theirs = stock(recipe, tasks, actor, pool)[1:]
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(
        f"{card}, torch {torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}, "
        f"{rows} rows"
    )
    print("ours  seconds a step", [round(value, 2) for value in mine])
    print("stock seconds a step", [round(value, 2) for value in theirs])
    print("ratio step_stock_over_ours", round(statistics.median(theirs) / statistics.median(mine), 2))


if __name__ == "__main__":
    main()
