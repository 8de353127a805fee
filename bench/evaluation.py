"""One evaluation by one process and by several: seconds, and how many answers differ.

    python bench/evaluation.py RECIPE runs/evaluation --counts 1 2 4      # dealt out over the GPUs, where there are any

Each is a run of its own in FOLDER/COUNT, which is made. `whole` is the command: loading, playing, measuring; `played`
is from the first call to the last answer. Where the batch that a call is in can change a token (bfloat16), answers
differ.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

from _launch import launch, parser
from pilotfish import Journal


def played(folder: Path) -> tuple[float, int]:
    """Seconds from the first call of a run to its last answer, and how many calls were made."""
    with closing(Journal(folder / "journal", writable=False)) as journal:
        turns = list(journal.turns())
    ended = max(turn.started + (turn.completion.seconds if turn.completion else 0.0) for turn in turns)
    return ended - min(turn.started for turn in turns), len(turns)


def answers(folder: Path) -> dict[str, str | None]:
    """Each episode's answer."""
    scores = map(json.loads, (folder / "scores.jsonl").read_text(encoding="utf-8").splitlines())
    return {score["episode"]: score["answer"] for score in scores}


def main() -> None:
    args = parser(__doc__).parse_args()
    base, first = 0.0, dict[str, str | None]()
    for count in args.counts:
        folder, began = args.folder / str(count), time.monotonic()
        launch(count, "eval", args.recipe, folder, args.set)
        whole = time.monotonic() - began
        seconds, calls = played(folder)
        said = answers(folder)
        base, first = base or seconds, first or said
        differ = sum(said[episode] != answer for episode, answer in first.items())
        print(
            f"processes {count}  whole {whole:.1f} s  played {seconds:.1f} s  calls/s {calls / seconds:.0f}", end="  "
        )
        print(f"ratio {base / seconds:.2f}  answers that differ {differ} of {len(first)}", flush=True)


if __name__ == "__main__":
    main()
