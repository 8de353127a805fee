"""One training with one process, with several, with other settings: seconds a step, and how far reward and loss differ.

    python bench/processes.py RECIPE runs/scaling --counts 1 2            # a GPU each, where there are GPUs
    python bench/processes.py RECIPE runs/scaling --counts 1 2 --set train.steps=10
    python bench/processes.py RECIPE runs/scaling --counts 1 --or team.actor.engine=vllm "team.actor.vllm={gpus: [1]}"

Each is a run of its own in FOLDER/COUNT, or FOLDER/or-NUMBER, which is made; one that fails is named, and the others go
on. The first steps warm up and are left out of the seconds, which come with their ratio to the first one's; differences
are between the same steps of it and each other one.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from subprocess import CalledProcessError

from _launch import launch, parser
from pilotfish.run import Run

WARM_UP = 2


def trained(recipe: str, folder: Path, count: int, settings: list[str]) -> list[dict[str, float]]:
    """What each step of a training in so many processes logged."""
    launch(count, "train", recipe, folder, settings)
    return [row for row in Run(folder).logged() if row["kind"] == "step"]


def apart(steps: list[dict[str, float]], others: list[dict[str, float]], name: str) -> float:
    """The largest difference between two trainings in a figure of a step."""
    return max(abs(one[name] - other[name]) for one, other in zip(steps, others, strict=True))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--or", action="append", nargs="+", default=[], dest="others", help="one more, in one process")
    args = options.parse_args()
    arms = [(str(count), count, []) for count in args.counts]
    arms += [(f"or-{number}", 1, other) for number, other in enumerate(args.others, 1)]
    first: list[dict[str, float]] = []
    for name, count, more in arms:
        try:
            steps = trained(args.recipe, args.folder / name, count, [*args.set, *more])
        except CalledProcessError as error:  # the figures of the others are worth having
            print(f"failed: processes {count}", *more, f" exit code {error.returncode}", flush=True)
            continue
        first = first or steps
        base, taken = (median(row["seconds/step"] for row in rows[WARM_UP:]) for rows in (first, steps))
        print(f"processes {count}", *more, f" seconds a step {taken:.2f}  ratio {base / taken:.2f}", end="  ")
        print(f"apart: reward {apart(first, steps, 'reward'):.2g}, loss {apart(first, steps, 'loss'):.2g}", flush=True)


if __name__ == "__main__":
    main()
