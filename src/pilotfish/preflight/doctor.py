"""What a machine and a recipe need, looked at before a long run: ok, warn or fail, with the way out.

    for finding in [*machine(), *recipe_findings(recipe)]: ...

Nothing is downloaded, no weights are loaded, and of a server only its list of models is asked.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pilotfish.recipe import MemberConfig, Recipe
    from pilotfish.task import Task

Status = Literal["ok", "warn", "fail"]

LOOKED_AT = ("torch", "transformers", "trl", "peft", "datasets", "math-verify", "reasoning-gym")
GOLDS = 40
"""Gold answers of each source that the verifier is tried on."""
REHEARSED = 2
"""Tasks on which a group is rehearsed."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    status: Status
    name: str
    what: str
    way_out: str = ""
    """What to do about it; empty when all is well."""


def machine() -> Iterator[Finding]:
    """Interpreter, processor, memory, packages, GPU, compiler."""
    yield Finding("ok", "python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("ok", "platform", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores")
    yield _memory()
    pins = _pins()
    for package in LOOKED_AT:
        yield _package(package, pins.get(package, ""))
    yield from _accelerator()
    yield _compiler()


def _memory() -> Finding:
    try:
        fields = dict(re.findall(r"(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text()))
    except OSError:
        return Finding("ok", "memory", "unknown on this system")
    total, free = (int(fields[name]) / 1024**2 for name in ("MemTotal", "MemAvailable"))
    what = f"{free:.1f} GiB free of {total:.1f}"
    return (
        Finding("warn", "memory", what, "small models only; close what else runs")
        if free < 4
        else Finding("ok", "memory", what)
    )


def _pins() -> dict[str, str]:
    """The versions that this Pilotfish asks for, by package."""
    try:
        asked = requires("pilotfish") or []
    except PackageNotFoundError:
        return {}
    pairs = (re.match(r"([\w.-]+)\s*(?:\[[^]]*\])?\s*([^;]*)", line) for line in asked)
    return {pair[1].lower(): pair[2].strip() for pair in pairs if pair and pair[1].lower() != "pilotfish"}


def _package(name: str, pin: str) -> Finding:
    try:
        found = version(name)
    except PackageNotFoundError:
        needed = name == "math-verify"
        way_out = "pip install " + ("math-verify" if needed else "'pilotfish[all]' to train and to read hub data")
        return Finding("fail" if needed else "warn", name, "not installed", way_out)
    if pin and not satisfies(found, pin):
        return Finding("warn", name, f"{found}, not tried: {pin} is", f"pip install '{name}{pin}'")
    return Finding("ok", name, found + (f" ({pin})" if pin else ""))


def satisfies(found: str, pin: str) -> bool:
    """Whether a version is within a pin such as `>=5.17,<5.25` or `==1.16.*`; only numbers count."""
    return all(_meets(_numbers(found), *match) for match in re.findall(r"(>=|<=|==|<|>)\s*([\w.*]+)", pin))


def _meets(found: tuple[int, ...], sign: str, bound: str) -> bool:
    wanted = _numbers(bound)
    if bound.endswith("*"):
        return found[: len(wanted)] == wanted
    width = max(len(found), len(wanted))
    left, right = (part + (0,) * (width - len(part)) for part in (found, wanted))
    return {">=": left >= right, "<=": left <= right, "==": left == right, "<": left < right, ">": left > right}[sign]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0]))


def _accelerator() -> Iterator[Finding]:
    try:
        import torch
    except ImportError:
        return
    from pilotfish.engine.loading import fast_dtype

    if not torch.cuda.is_available():
        kind = "bfloat16 in hardware" if fast_dtype("cpu") is torch.bfloat16 else "no bfloat16: float32, half the speed"
        yield Finding("warn", "gpu", f"none; processor with {kind}", "models of up to 0.5B weights can be trained")
        return
    for number in range(torch.cuda.device_count()):
        free, total = (size / 1024**3 for size in torch.cuda.mem_get_info(number))
        name = f"{torch.cuda.get_device_name(number)}, {free:.0f} GiB free of {total:.0f}"
        if fast_dtype(f"cuda:{number}") is torch.bfloat16:
            yield Finding("ok", f"gpu {number}", f"{name}, bfloat16")
        else:
            yield Finding("warn", f"gpu {number}", f"{name}, no bfloat16", "float32 is used: twice the memory")


def _compiler() -> Finding:
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found:
        return Finding("ok", "compiler", found)
    return Finding("warn", "compiler", "none", "reasoning-gym is built with one when it is installed: install gcc")


def recipe_findings(recipe: Recipe) -> Iterator[Finding]:
    """Team, keys, servers, models, tasks, verifier, and a rehearsal of the topology."""
    yield _trainee(recipe)
    for name, member in recipe.team.items():
        yield _server(name, member) if member.engine == "openai" else _local(name, member)
    tasks: dict[str, list[Task]] = {}
    yield from _tasks(recipe, tasks)
    form = recipe.topology.load().form
    for source, found in tasks.items():
        yield _golds(source, found, form)
    first = next(iter(tasks.values()), [])
    yield _rehearsal(recipe, first[:REHEARSED]) if first else Finding("warn", "topology", "not rehearsed: no tasks")


def _trainee(recipe: Recipe) -> Finding:
    if recipe.trainee is None:
        return Finding("warn", "team", f"{', '.join(recipe.team)}; nobody is trained", "give one member `train: lora`")
    return Finding("ok", "team", f"{', '.join(recipe.team)}; {recipe.trainee} is trained")


def _server(name: str, member: MemberConfig) -> Finding:
    from pilotfish.preflight.endpoint import list_models, shown

    if member.key_env and not os.environ.get(member.key_env, "").strip():
        return Finding("fail", name, f"no key in ${member.key_env}", "export it or set key_env")
    address = member.base_url or ""
    if "@" in address:
        return Finding(
            "fail", name, f"{shown(address)}: the address carries a user or a password", "put the key in key_env"
        )
    reached = list_models(address, member.key_env, member.model)
    who = f"{member.model} at {shown(address)}"
    key = f"the key in ${member.key_env}" if member.key_env else "a call without a key"
    if reached.state == "reached":
        return Finding("ok", name, who)
    if reached.state == "without a list":
        return Finding(
            "warn", name, f"{who}: reached, it has no list of models ({reached.why})", "the first call will tell"
        )
    if reached.state == "without the model":
        known = ", ".join(reached.models[:5]) or "none"
        return Finding("warn", name, f"{who}: not in its list of models", f"correct team.{name}.model; it has: {known}")
    if reached.state == "key refused":
        return Finding("fail", name, f"{who}: {key} is refused ({reached.why})", "export the right key or set key_env")
    return Finding("fail", name, f"{who}: {reached.why}", f"start the server or correct team.{name}.base_url")


def _local(name: str, member: MemberConfig) -> Finding:
    from pilotfish.preflight.memory import local_folder

    place = local_folder(member.model, member.revision)
    if place is not None or (member.model.endswith(".gguf") and Path(member.model).expanduser().is_file()):
        return Finding("ok", name, f"{member.model} is on this machine")
    if member.model == "smollm2":
        return Finding("ok", name, "smollm2 comes with pip when it is first used (55 MB)")
    if member.model.count("/") != 1 or member.model.startswith((".", "/", "~")):
        return Finding("fail", name, f"{member.model}: no such folder", "name a folder, a .gguf file or OWNER/NAME")
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return Finding(
            "fail", name, f"{member.model} is not here, and HF_HUB_OFFLINE is set", "unset it, or name a folder"
        )
    return Finding("warn", name, f"{member.model} is not here yet", "it will be fetched from the hub when first used")


def _tasks(recipe: Recipe, found: dict[str, list[Task]]) -> Iterator[Finding]:
    """Reads every source; puts what it read into `found`."""
    from pilotfish.curriculum import curriculum
    from pilotfish.recipe import RecipeError
    from pilotfish.task import TaskError, load_tasks
    from pilotfish.train.profile import TrainConfig

    for source in recipe.evaluate.benchmarks:
        try:
            found[source.title] = load_tasks(source)
            yield Finding("ok", source.title, f"{len(found[source.title]):,} tasks to evaluate on")
        except TaskError as error:
            yield Finding("fail", source.title, str(error), "see pilotfish tasks")
    config = recipe.train
    if recipe.tasks is None or not isinstance(config, TrainConfig):
        return
    name = recipe.tasks.train.name
    try:
        divided = curriculum(recipe)
    except (TaskError, RecipeError) as error:
        yield Finding("fail", f"training: {name}", str(error), "see pilotfish tasks")
        return
    found[f"training: {name}"] = divided.train
    repeats = f"; {len(divided.repeats)} stand in a benchmark too" if divided.repeats else ""
    yield Finding(
        "ok",
        f"training: {name}",
        f"{len(divided.train):,} tasks to train on, {len(divided.holdout):,} held out{repeats}",
    )
    if len(divided.train) < config.tasks_per_step:
        why = f"{len(divided.train)} tasks, and train.tasks_per_step is {config.tasks_per_step}"
        yield Finding("fail", "train.tasks_per_step", why, "lower it or add tasks")


def _golds(source: str, tasks: list[Task], form: str) -> Finding:
    """Whether the verifier, in its worker processes, takes each gold answer for right."""
    from pilotfish.verify import VerifierPool

    tried = tasks[:GOLDS]
    with VerifierPool(workers=1) as pool:
        verdicts = list(pool.judge_all(((task, gold_reply(task, form)) for task in tried), form))
    missed = [task.id for task, verdict in zip(tried, verdicts, strict=True) if not verdict.correct]
    what = f"{len(tried) - len(missed)} of {len(tried)} gold answers are judged right"
    if not missed:
        return Finding("ok", f"{source}, golds", what)
    way_out = f"look at {', '.join(missed[:3])}: no answer to them can score"
    return Finding("fail" if len(missed) > len(tried) / 2 else "warn", f"{source}, golds", what, way_out)


def gold_reply(task: Task, form: str) -> str:
    """A reply that says the gold answer in the form that is asked for."""
    if form == "answer_tag":
        return f"<answer>{task.answer}</answer>"
    return f"\\boxed{{{task.answer}}}" if task.verifier == "maths" else task.answer


def _rehearsal(recipe: Recipe, tasks: list[Task]) -> Finding:
    """Play the topology on engines that say filler: it runs, comes to the decision, and asks the same for every row."""
    from pilotfish.episode import ReplayMismatch, TopologyError
    from pilotfish.train.profile import TrainConfig

    try:
        calls = _rehearsed(recipe, tasks)
    except (TopologyError, ReplayMismatch, ValueError) as error:
        return Finding("fail", "topology", f"{recipe.topology.name}: {error}", "mend the topology or the team")
    asked = ", ".join(f"{count / len(tasks):g} of {name}" for name, count in calls.items())
    unit = (
        f"a group of {recipe.train.group_size}"
        if recipe.trainee and isinstance(recipe.train, TrainConfig)
        else "an episode"
    )
    return Finding("ok", "topology", f"{recipe.topology.name}: the calls of {unit} are {asked}")


def _rehearsed(recipe: Recipe, tasks: list[Task]) -> dict[str, float]:
    """Calls by member."""
    from pilotfish.episode import Journal, check_group
    from pilotfish.evaluate.arms import Arm, Field
    from pilotfish.preflight.rehearsal import Ledger, RehearsedSeats, no_verdict, quarter_of_characters, rehearse_groups
    from pilotfish.train.profile import TrainConfig

    ledger = Ledger()
    counts = dict.fromkeys(recipe.team, quarter_of_characters)
    seats = RehearsedSeats(recipe, ledger, counts, dict.fromkeys(recipe.team, 16))
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        journal = Journal(Path(folder))
        try:
            if recipe.trainee and isinstance(recipe.train, TrainConfig):
                for rows in asyncio.run(rehearse_groups(seats, journal, tasks)):
                    check_group([row.episodes[0] for row in rows], recipe.train.decision)
            else:
                arm = Arm("", recipe.topology.load(), seats.team(training=False))
                asyncio.run(Field("", tasks, journal, no_verdict).play(arm))
        finally:
            journal.close()
    return {member: tally.calls for member, tally in ledger.read().items()}
