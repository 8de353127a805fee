"""One training with one process, with several, with other settings: seconds a step, how far what is learned differs.

    python bench/processes.py RECIPE runs/scaling --counts 1 2            # a GPU each, where there are GPUs
    python bench/processes.py RECIPE runs/scaling --counts 1 2 --set train.steps=10
    python bench/processes.py RECIPE runs/scaling --counts 1 --or team.actor.engine=vllm "team.actor.vllm={gpus: [1]}"

Each is a run of its own in FOLDER/COUNT, or FOLDER/or-NUMBER, which is made; one that fails is named, and the others go
on. The first steps warm up and are left out of the seconds, which come with their ratio to the first one's; differences
are between the same steps of it and each other one.

In bfloat16 the batch that a call is in can change a token, and the rows with it. So each other number of processes
also learns from the first one's answers, in FOLDER/COUNT-again: from its journal, without asking anything. What
differs then is the learning itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import median
from subprocess import CalledProcessError

from _launch import launch, parser
from pilotfish.run import Run

WARM_UP = 2
LEARNED = {"reward": "reward", "loss": "loss", "gradient": "grad_norm"}
Steps = list[dict[str, float]]


def trained(recipe: str, folder: Path, count: int, settings: list[str], answers: Path | None = None) -> Steps:
    """What each step of a training in so many processes logged; one that finds the answers of another run."""
    if answers:
        folder.mkdir()
        shutil.copy(answers / "recipe.yaml", folder)
        shutil.copytree(answers / "journal", folder / "journal")
    launch(count, "train", recipe, folder, settings, begun=answers is not None)
    return [row for row in Run(folder).logged() if row["kind"] == "step"]


def apart(steps: Steps, others: Steps) -> str:
    """The largest difference between two trainings in each figure of a step."""
    pairs = list(zip(steps, others, strict=False))
    found = {name: max(abs(one[of] - other[of]) for one, other in pairs) for name, of in LEARNED.items()}
    return "apart: " + ", ".join(f"{name} {most:.2g}" for name, most in found.items())


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--or", action="append", nargs="+", default=[], dest="others", help="one more, in one process")
    args = options.parse_args()
    arms = [(str(count), count, []) for count in args.counts]
    arms += [(f"or-{number}", 1, other) for number, other in enumerate(args.others, 1)]
    first, learned = list[dict[str, float]](), args.folder
    for name, count, more in arms:
        try:
            steps = trained(args.recipe, args.folder / name, count, [*args.set, *more])
            first, learned = (first, learned) if first else (steps, args.folder / name)
            base, taken = (median(row["seconds/step"] for row in rows[WARM_UP:] or rows) for rows in (first, steps))
            print(f"processes {count}", *more, f" seconds a step {taken:.2f}  ratio {base / taken:.2f} ", end=" ")
            print(apart(first, steps), flush=True)
            if not more and steps is not first:
                steps = trained(args.recipe, args.folder / f"{name}-again", count, args.set, learned)
                print(f"processes {count} on the same answers ", apart(first, steps), flush=True)
        except CalledProcessError as error:  # the figures of the others are worth having
            print(f"failed: processes {count}", *more, f" exit code {error.returncode}", flush=True)


if __name__ == "__main__":
    main()
