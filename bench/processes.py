"""One training with one process and with several: seconds a step as a ratio, and how far rewards and losses are apart.

    python bench/processes.py RECIPE runs/scaling --counts 1 2            # a GPU each, where there are GPUs
    python bench/processes.py RECIPE runs/scaling --counts 1 2 --set train.steps=10

Each is a run of its own in FOLDER/COUNT, which is made. The first steps warm up and are left out of the seconds; the
differences are between the same steps of the first count and of each other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median

from pilotfish.run import Run

WARM_UP = 2


def trained(recipe: str, folder: Path, count: int, settings: list[str]) -> list[dict[str, float]]:
    """What each step of a training in so many processes logged."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count), "-m", "--"]
    command = ["pilotfish", "train", recipe, "--run", str(folder), *settings]
    subprocess.run([sys.executable, *(launcher if count > 1 else ["-m"]), *command], check=True)
    return [row for row in Run(folder).logged() if row["kind"] == "step"]


def apart(steps: list[dict[str, float]], others: list[dict[str, float]], name: str) -> float:
    """The largest difference between two trainings in a figure of a step."""
    return max(abs(one[name] - other[name]) for one, other in zip(steps, others, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--set", action="append", default=[], help="see `pilotfish train`")
    args = parser.parse_args()
    settings = [word for setting in args.set for word in ("--set", setting)]
    first: list[dict[str, float]] = []
    for count in args.counts:
        steps = trained(args.recipe, args.folder / str(count), count, settings)
        first = first or steps
        base, taken = (median(row["seconds/step"] for row in rows[WARM_UP:]) for rows in (first, steps))
        print(f"processes {count}  seconds a step {taken:.2f}  ratio {base / taken:.2f}", end="  ")
        print(f"apart: reward {apart(first, steps, 'reward'):.2g}, loss {apart(first, steps, 'loss'):.2g}")


if __name__ == "__main__":
    main()
