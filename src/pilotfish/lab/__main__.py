"""Print rows of the lab as JSON lines, for a look or for a trainer of your own.

python -m pilotfish.lab actor --size 5 --seed 1
python -m pilotfish.lab collaborator --size 40000 --seed 1 > collaborator.jsonl
"""

from __future__ import annotations

import argparse
import json

from pilotfish.lab.members import FAMILIES, MEMBERS, rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pilotfish.lab", description="Print rows of the lab as JSON lines.")
    parser.add_argument("member", choices=MEMBERS)
    parser.add_argument("--size", type=int, default=5, help="number of rows")
    parser.add_argument("--seed", type=int, default=1, help="seed of the data")
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), help="which families")
    args = parser.parse_args()
    for drawn in rows(args.member, args.size, args.seed, tuple(args.families)):
        print(json.dumps(drawn))


if __name__ == "__main__":
    main()
