"""What a benchmark is: where its release is, how a row of it reads, and which verifier judges it.

Each benchmark is one small file beside this one, with a `BENCHMARK` and, where the release needs it, a function that
brings a row into shape. A local file stands in for the hub: `{source: math500, path: math500.jsonl.gz}`, a folder as
`path`, or a folder named by the environment variable `PILOTFISH_DATA`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilotfish.rows import SUFFIXES, Row, field_of


def boxed(what: str) -> str:
    """The instruction to put `what` into a box, such as `yes or no`."""
    return f"Work through it step by step and put {what}, and nothing else, inside \\boxed{{}}."


BOXED = boxed("the final answer")
LETTER = boxed("the letter of the right option")

SHORT_SPLITS = {"validation": "val"}
"""Other names of splits in the names of local files."""


def _as_it_is(row: dict[str, Any]) -> dict[str, Any]:
    return row


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How an answer is asked for, and what judges it."""

    verifier: str
    instruction: str


@dataclass(frozen=True)
class Benchmark:
    """A public set of tasks that is known by name."""

    name: str
    about: str
    """One line."""
    hub: str
    """`owner/name` on the Hugging Face hub."""
    split: str
    """The split that is read unless another is asked for."""
    sizes: Mapping[str, int]
    """Rows of each split."""
    licence: str
    """What is known of the licence of the data."""
    hub_split: str | None = None
    """The hub's name for `split`, where it differs."""
    config: str | None = None
    """The hub's configuration, where it has several."""
    configs: tuple[str, ...] = ()
    """The hub's configurations, where each holds the tasks of one subject and is named after it."""
    data_files: str | None = None
    """One file inside the hub's repository, where it has no configuration for it."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Our name of a field to the release's; a dotted path reaches into a nested one."""
    shape: Callable[[dict[str, Any]], dict[str, Any]] = _as_it_is
    """Brings a renamed row into shape; leaves a row that is in shape as it is."""
    verifier: str = "maths"
    instruction: str = BOXED
    form_of: Callable[[Row], AnswerForm] | None = None
    """The verifier and instruction of a row in shape, where not all rows have those above."""
    files: tuple[str, ...] = ()
    """Further names, without suffix, of a local file that holds the split read by default."""
    without_answer: int = 0
    """Rows that the release is known to hold without an answer; they are left out, one more is an error."""

    @property
    def size(self) -> int:
        """Rows of the default split."""
        return self.sizes[self.split]

    def read(self, row: Row) -> dict[str, Any]:
        """A row of the release, or of a local file, with our names: id, question, answer and what else there is."""
        data = dict(row.data)
        for ours, theirs in self.fields.items():
            if data.get(ours) is None and (value := field_of(data, theirs)) is not None:
                data[ours] = value
        return self.shape(data)

    def answer_form(self, row: Row) -> AnswerForm:
        """The verifier and instruction of a row in shape."""
        return self.form_of(row) if self.form_of else AnswerForm(self.verifier, self.instruction)

    def row_id(self, data: dict[str, Any], index: int, split: str) -> str:
        """The row's own id (a bare number gets the benchmark's name before it), or one made from its position."""
        own = data.get("id")
        if isinstance(own, str) and not own.isdigit():
            return own
        prefix = self.name if len(self.sizes) == 1 else f"{self.name}-{split}"
        return f"{prefix}-{index if own is None else own}"

    def local_file(self, folder: Path, split: str) -> Path | None:
        """The file in `folder` that holds `split`, or None."""
        return next((path for name in self.local_names(split) if (path := folder / name).is_file()), None)

    def local_names(self, split: str) -> Iterator[str]:
        """File names under which a local copy of `split` is looked for, in this order."""
        stems = [f"{self.name}_{spelling}" for spelling in (split, SHORT_SPLITS.get(split)) if spelling]
        stems += [self.name, *self.files] if split == self.split else []
        return (stem + suffix for stem in stems for suffix in SUFFIXES)


def answer_from_solution(row: dict[str, Any]) -> dict[str, Any]:
    """A `shape` for releases without a field for the answer: it is the last box of the worked solution."""
    if row.get("answer") is None and row.get("solution"):
        return {**row, "answer": last_boxed(str(row["solution"]))}
    return row


def last_boxed(text: str) -> str | None:
    """The content of the last `\\boxed{…}`, `\\fbox{…}` or `\\boxed x` of a worked solution, or None."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    rest = text[start:].partition("box")[2].removeprefix("ed").lstrip()
    if not rest.startswith("{"):
        words = rest.partition("$")[0].split()
        return words[0].rstrip(".,") if words else None
    depth = 0
    for position, character in enumerate(rest):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return rest[1:position].strip()
    return None
