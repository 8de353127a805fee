"""Print rows of the lab as JSON lines, for a look or for a trainer of your own; or tasks of several families, mixed.

python -m pilotfish.lab actor --size 5 --seed 1
python -m pilotfish.lab collaborator --size 40000 --seed 1 > collaborator.jsonl
python -m pilotfish.lab tasks --families legs sums --split train --size 600 > mixed.jsonl
"""

from __future__ import annotations

import argparse
import json

from pilotfish.lab.members import FAMILIES, MEMBERS, SPLIT_SEEDS, learned_by, rows, tasks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pilotfish.lab", description="Print rows of the lab as JSON lines.")
    parser.add_argument("what", choices=(*MEMBERS, "tasks"), help="whose rows, or tasks")
    parser.add_argument("--size", type=int, default=5, help="number of rows")
    parser.add_argument("--seed", type=int, default=1, help="seed of a member's rows")
    parser.add_argument("--split", choices=list(SPLIT_SEEDS), default="train", help="of the tasks")
    parser.add_argument(
        "--families", nargs="+", choices=list(FAMILIES), help="which; what the member learns by default"
    )
    args = parser.parse_args()
    try:
        if args.what == "tasks":
            drawn = [json.dumps(line) for line in tasks(args.families or learned_by("leader"), args.split, args.size)]
        else:
            drawn = [json.dumps(line) for line in rows(args.what, args.size, args.seed, args.families)]
    except ValueError as error:
        parser.error(str(error))
    print("\n".join(drawn))


if __name__ == "__main__":
    main()
