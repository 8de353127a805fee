"""A source of tasks, as a recipe names it, and the rows it holds.

A plain string is shorthand for `source`: `math500`, `gym:chain_sum`, `hf:owner/name`, `mine.jsonl`. The benchmarks and
hub data sets are read from the hub unless `path`, or the folder that `PILOTFISH_DATA` names, holds a local copy.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from pilotfish.benchmarks import BENCHMARKS, Benchmark
from pilotfish.gym import read_gym
from pilotfish.model import Model
from pilotfish.rows import SUFFIXES, Row, TaskError, read_file, read_hub
from pilotfish.verifier import NAMES, MemberVerifier, read_verifier

DATA_VARIABLE = "PILOTFISH_DATA"
GYM_SIZE = 500

Kind = Literal["benchmark", "gym", "hub", "file"]

MEANT_FOR: dict[str, tuple[Kind, ...]] = {
    "path": ("benchmark", "hub"),
    "split": ("benchmark", "hub"),
    "revision": ("benchmark", "hub"),
    "config": ("hub",),
    "size": ("gym",),
    "seed": ("gym",),
    "options": ("gym",),
    "levels": ("benchmark", "hub", "file"),
    "subjects": ("benchmark", "hub", "file"),
    "id": ("hub", "file"),
    "question": ("hub", "file"),
    "answer": ("hub", "file"),
    "choices": ("hub", "file"),
}
INSTEAD = {
    "size": "; to take fewer tasks set limit",
    "seed": "; to sample from this source set shuffle_seed",
    "path": "; name the file itself as source",
}


class TaskSource(Model):
    """Where tasks come from and which of them are taken."""

    source: str = Field(min_length=1)
    """A benchmark's name, `gym:NAME`, `hf:OWNER/NAME`, or a `.jsonl`, `.jsonl.gz`, `.csv`, `.tsv` or `.parquet`
    file."""
    label: str | None = None
    """Names the tasks in results; the source's own name when not given."""
    path: Path | None = None
    """A local file or folder that stands in for the hub."""
    split: str | None = None
    """The split; a benchmark knows its own, a hub data set's is `train` when not given."""
    config: str | None = None
    """The configuration of a hub data set that has several."""
    revision: str | None = None
    """A commit or tag of the hub data set, to pin it."""
    limit: int | None = Field(None, ge=1)
    """At most so many tasks: the first ones, or a sample where `shuffle_seed` is given."""
    shuffle_seed: int | None = None
    """Shuffle by this seed before the limit is applied; the order of the release when not given."""
    levels: tuple[int, ...] = ()
    """Keep the tasks of these levels only; a task without a level is left out."""
    subjects: tuple[str, ...] = ()
    """Keep the tasks of these subjects only, as the source spells them."""
    size: int | None = Field(None, ge=1)
    """How many items reasoning-gym makes; `limit`, or 500, when not given."""
    seed: int = 0
    """reasoning-gym makes item i from seed + i: two sets whose seeds are less than `size` apart share items."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the reasoning-gym data set, such as `min_terms: 2`."""
    id: str = "id"
    """The field that holds the id; a row without it is named after the source and its position."""
    question: str = "question"
    """The field that holds the question; a dotted path reaches into a nested one."""
    answer: str = "answer"
    """The field that holds the gold answer."""
    choices: str = "choices"
    """The field that holds the list of options, where there is one."""
    verifier: str | MemberVerifier | None = None
    """What judges the answers: `maths`, `choice`, `exact`, `reasoning_gym`, `judge`, `reward_model`,
    `path/to/file.py:function` or an entry point; the benchmark's own, the gym's own scorer, or `maths` when not
    given."""
    instruction: str | None = None
    """How the answer is to be written; the benchmark's own, or one that suits the verifier, when not given."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if isinstance(value, str | Path):
            return {"source": str(value)}
        if isinstance(value, dict) and isinstance(value.get("source"), Path):
            return {**value, "source": str(value["source"])}
        return value

    @field_validator("verifier", mode="before")
    @classmethod
    def _known_verifier(cls, value: Any) -> Any:
        return read_verifier(value)

    @field_validator("source")
    @classmethod
    def _of_a_known_kind(cls, source: str) -> str:
        if source not in BENCHMARKS and not source.startswith(("gym:", "hf:")) and not source.endswith(SUFFIXES):
            near = difflib.get_close_matches(source, BENCHMARKS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(
                f"unknown source {source!r}; {hint}a source is one of {', '.join(BENCHMARKS)}, or gym:NAME, "
                f"hf:OWNER/NAME, or a file ending in {', '.join(SUFFIXES)}"
            )
        return source

    @model_validator(mode="after")
    def _only_what_applies(self) -> TaskSource:
        usual = {name: field.get_default(call_default_factory=True) for name, field in type(self).model_fields.items()}
        for name in sorted(self.model_fields_set & MEANT_FOR.keys()):
            if self.kind not in MEANT_FOR[name] and getattr(self, name) not in (None, usual[name]):
                kinds = " and ".join(MEANT_FOR[name])
                raise ValueError(f"{self.source}: {name} is for {kinds} sources only{INSTEAD.get(name, '')}")
        return self

    @property
    def kind(self) -> Kind:
        """`benchmark`, `gym`, `hub` or `file`."""
        if self.source in BENCHMARKS:
            return "benchmark"
        return "gym" if self.source.startswith("gym:") else "hub" if self.source.startswith("hf:") else "file"

    @property
    def name(self) -> str:
        """The source without its kind: `chain_sum` of `gym:chain_sum`, `mine` of `data/mine.jsonl.gz`."""
        if self.kind == "file":
            return Path(self.source).name.partition(".")[0]
        return self.source.removeprefix("gym:").removeprefix("hf:")

    @property
    def title(self) -> str:
        """Names the tasks in results."""
        return self.label or self.name

    @property
    def own_verifier(self) -> str | None:
        """The user's own verifier, by its name, where it has one."""
        return self.verifier if isinstance(self.verifier, str) and self.verifier not in NAMES else None

    @property
    def benchmark(self) -> Benchmark | None:
        """The built-in benchmark of this name, or None."""
        return BENCHMARKS.get(self.source)


def read_source(spec: TaskSource) -> Iterator[Row]:
    """All rows of a source, before any selection.

    Raises:
        TaskError: the source is not there or cannot be read.
    """
    if spec.benchmark is not None:
        return _benchmark_rows(spec, spec.benchmark)
    if spec.kind == "gym":
        return read_gym(spec.name, size=spec.size or spec.limit or GYM_SIZE, seed=spec.seed, options=spec.options)
    if spec.kind == "file":
        return read_file(Path(spec.source).expanduser())
    return _hub_rows(spec)


def _hub_rows(spec: TaskSource) -> Iterator[Row]:
    split = spec.split or "train"
    if spec.path is None:
        return read_hub(spec.name, split=split, config=spec.config, revision=spec.revision)
    path = spec.path.expanduser()
    return read_hub(str(path), split=split, config=spec.config, label=str(path)) if path.is_dir() else read_file(path)


def _benchmark_rows(spec: TaskSource, benchmark: Benchmark) -> Iterator[Row]:
    split = spec.split or benchmark.split
    if split not in benchmark.sizes:
        raise TaskError(f"{benchmark.name}: no split {split!r}; it has {', '.join(benchmark.sizes)}")
    path = _stand_in(spec, benchmark, split)
    rows = read_file(path) if path else _released_rows(spec, benchmark, split)
    without_answer = 0
    for row in rows:
        data = benchmark.read(row)
        if data.get("answer") in (None, "") and without_answer < benchmark.without_answer:
            without_answer += 1
            continue
        yield Row(row.where, row.index, {**data, "id": benchmark.row_id(data, row.index, split)})


def _stand_in(spec: TaskSource, benchmark: Benchmark, split: str) -> Path | None:
    """The local file that stands in for the hub: `path` must have it, the data folder may."""
    if spec.path is not None:
        path = spec.path.expanduser()
        if not path.is_dir():
            return path
        if (found := benchmark.local_file(path, split)) is None:
            names = ", ".join(benchmark.local_names(split))
            raise TaskError(f"{benchmark.name}: {path} holds none of {names}; name the file itself as path")
        return found
    folder = os.environ.get(DATA_VARIABLE)
    if folder and not Path(folder).expanduser().is_dir():
        raise TaskError(f"${DATA_VARIABLE}: {folder} is not a folder; correct it or unset it")
    return benchmark.local_file(Path(folder).expanduser(), split) if folder else None


def _released_rows(spec: TaskSource, benchmark: Benchmark, split: str) -> Iterator[Row]:
    if benchmark.configs:
        check_subjects(spec, benchmark.configs)
    try:
        if benchmark.configs:
            return _by_subject(spec, benchmark, benchmark.hub_split or split)
        return read_hub(
            benchmark.hub,
            split=benchmark.hub_split or split,
            config=benchmark.config,
            revision=spec.revision,
            data_files=benchmark.data_files,
        )
    except TaskError as error:
        way_out = f"give path, or put {benchmark.name}_{split}.jsonl into the folder that ${DATA_VARIABLE} names"
        raise TaskError(f"{benchmark.name}: {error}; to do without the hub, {way_out}") from error


def _by_subject(spec: TaskSource, benchmark: Benchmark, split: str) -> Iterator[Row]:
    """The rows of the wanted subjects, from a configuration each; the position in it makes the id."""
    place, name = benchmark.hub, benchmark.name
    parts = [
        (subject, read_hub(place, split=split, config=subject, revision=spec.revision, label=f"hf:{place}/{subject}"))
        for subject in benchmark.configs
        if not spec.subjects or subject in spec.subjects
    ]
    return (
        Row(row.where, index, {"id": f"{name}-{subject}-{row.index}", **row.data, "subject": subject})
        for index, (subject, row) in enumerate((subject, row) for subject, rows in parts for row in rows)
    )


def check_subjects(spec: TaskSource, known: Collection[str]) -> None:
    """Refuse a wanted subject that is not among those of the source.

    Raises:
        TaskError: it names the first such subject and near ones.
    """
    for subject in spec.subjects:
        if subject not in known:
            near = difflib.get_close_matches(subject, known, n=3, cutoff=0.4) or sorted(known)[:3]
            there_are = f"near ones: {', '.join(near)}" if near else "its tasks name none"
            raise TaskError(f"{spec.source}: no subject {subject!r}; {there_are}")
