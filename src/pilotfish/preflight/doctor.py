"""What a recipe needs, looked at before a long run: ok, warn or fail, with the way out.

    for finding in recipe_findings(recipe): ...

Nothing is downloaded, no weights are loaded, and of a server only its list of models is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.missing import here, looked_in
from pilotfish.preflight.machine import Finding, Status
from pilotfish.preflight.servers import server

if TYPE_CHECKING:
    from pilotfish.preflight.stages import Stage
    from pilotfish.recipe import MemberConfig, Recipe
    from pilotfish.task import Task

GOLDS = 40
"""Most gold answers of each source that the verifier is tried on."""
TRIED = 2
"""Tasks on which each stage is rehearsed."""


def recipe_findings(recipe: Recipe) -> Iterator[Finding]:
    """Team, keys, servers, models, tasks, verifier, and a rehearsal of the topology."""
    yield _trainee(recipe)
    for name, member in recipe.team.items():
        if member.engine == "openai":
            yield from (server(name, member, address) for address in member.addresses)
        else:
            yield _local(name, member)
        if member.engine == "vllm":
            yield _served(name, member)
    yield from _shares(recipe)
    yield from _room(recipe)
    yield from _trackers(recipe)
    yield from _patience(recipe)
    tasks: dict[str, list[Task]] = {}
    yield from _tasks(recipe, tasks)
    form = recipe.topology.load().form
    for source, found in tasks.items():
        if ruled := [task for task in found if task.answer and task.judge is None]:
            yield _golds(source, ruled, form)
    first = next(iter(tasks.values()), [])
    if first:
        from pilotfish.preflight.tryout import tryout

        yield from tryout(recipe, first[:TRIED])
    else:
        yield Finding("warn", "topology", "not rehearsed: no tasks")


def _trainee(recipe: Recipe) -> Finding:
    if recipe.trainee is None:
        return Finding("warn", "team", f"{', '.join(recipe.team)}; nobody is trained", "give one member `train: lora`")
    return Finding("ok", "team", f"{', '.join(recipe.team)}; {recipe.trainee} is trained")


def _local(name: str, member: MemberConfig) -> Finding:
    from pilotfish.preflight.memory import local_folder

    place = local_folder(member.model, member.revision)
    if place is not None or (member.model.endswith(".gguf") and Path(member.model).expanduser().is_file()):
        return Finding("ok", name, f"{member.model} is on this machine")
    if member.model == "smollm2":
        return Finding("ok", name, "smollm2 comes with pip when it is first used (55 MB)")
    if member.model.count("/") != 1 or member.model.startswith((".", "/", "~")):
        what = f"{member.model}: no such folder{here(member.model)}"
        return Finding("fail", name, what, "name a folder, a .gguf file or OWNER/NAME")
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return Finding(
            "fail", name, f"{member.model} is not here, and HF_HUB_OFFLINE is set", "unset it, or name a folder"
        )
    return Finding("warn", name, f"{member.model} is not here yet", "it will be fetched from the hub when first used")


def _served(name: str, member: MemberConfig) -> Finding:
    """Whether its server can be started; it is not."""
    from pilotfish.engine.vllm_command import NOT_INSTALLED, WAY_OUT, find_vllm, is_free

    executable, served = find_vllm(), member.served
    if executable is None:
        return Finding("fail", name, f"engine vllm: {NOT_INSTALLED}", WAY_OUT)
    if served.port and not is_free(served.port):
        return Finding("fail", name, f"port {served.port} is taken", f"leave team.{name}.vllm.port out, or free it")
    gpus = ", ".join(map(str, served.places))
    return Finding("ok", name, f"{executable} will be started; it takes {served.memory:g} of GPU {gpus}")


def _shares(recipe: Recipe) -> Iterator[Finding]:
    """Whether the servers of a recipe ask for more of a GPU than there is."""
    from pilotfish.preflight.room import shares

    servers = {member.server: name for name, member in recipe.team.items() if member.engine == "vllm"}
    for gpu, share in shares(recipe).items():
        if share > 1:
            what = f"the servers of {', '.join(servers.values())} ask for {share:.2f} of it"
            yield Finding("fail", f"gpu {gpu}", what, "lower vllm.memory, or give them other GPUs with vllm.gpus")


def _room(recipe: Recipe) -> Iterator[Finding]:
    """Whether each GPU holds the weights that are put on it, and what trains them."""
    from pilotfish.preflight.memory import memory
    from pilotfish.preflight.room import places

    for place in places(recipe, memory(recipe)):
        lacking: Status = "warn" if place.total is None else "fail"
        yield Finding("ok" if place.fits else lacking, "memory of weights", place.what, place.way_out)


def _trackers(recipe: Recipe) -> Iterator[Finding]:
    """Whether the trackers that the training reports to are installed."""
    from pilotfish.recipe import RecipeError
    from pilotfish.train.trackers import check_trackers, trackers

    if not (named := trackers(recipe)):
        return
    try:
        check_trackers(recipe)
    except RecipeError as error:
        what, _, way_out = str(error).partition("; ")
        yield Finding("fail", "report_to", what.removeprefix("report_to: "), way_out)
        return
    yield Finding("ok", "report_to", ", ".join(named))


def _patience(recipe: Recipe) -> Iterator[Finding]:
    """Whether an early stop has a holdout to wait on."""
    from pilotfish.recipe import RecipeError
    from pilotfish.train.early_stop import check_patience

    try:
        check_patience(recipe)
    except RecipeError as error:
        what, _, way_out = str(error).partition("; ")
        yield Finding("fail", "patience", what, way_out)


def _tasks(recipe: Recipe, found: dict[str, list[Task]]) -> Iterator[Finding]:
    """Reads every source; puts what it read into `found`."""
    from pilotfish.curriculum import curriculum
    from pilotfish.preflight.stages import stages_of
    from pilotfish.recipe import RecipeError
    from pilotfish.task import TaskError, load_tasks

    for source in recipe.evaluate.benchmarks:
        try:
            found[source.title] = load_tasks(source)
            yield Finding("ok", source.title, f"{len(found[source.title]):,} tasks to evaluate on")
        except TaskError as error:
            yield Finding("fail", source.title, str(error), "see pilotfish tasks")
    stages = [stage for stage in stages_of(recipe) if stage.plays]
    if not stages or (recipe.tasks is None and not recipe.stages):
        return
    name = f"training: {', '.join(source.name for source in recipe.tasks.train)}" if recipe.tasks else "tasks"
    try:
        divided = curriculum(recipe)
    except (TaskError, RecipeError) as error:
        yield Finding("fail", name, str(error), "see pilotfish tasks")
        return
    found[name] = divided.train
    repeats = f"; {len(divided.repeats)} stand in a benchmark too" if divided.repeats else ""
    yield Finding(
        "ok",
        name,
        f"{len(divided.train):,} tasks to train on, {len(divided.holdout):,} held out{repeats}",
    )
    if sets := max((stage.sets for stage in stages if stage.reads), default=0):
        yield from _answers(recipe, sets)
    for stage in stages:
        yield from _collected(stage)
        yield from _fills(stage, len(divided.train))


def _answers(recipe: Recipe, sets: int) -> Iterator[Finding]:
    """Whether the sets of stored answers can differ, and whether the file of them is there."""
    config = recipe.collect
    for name, member in recipe.team.items():
        if sets > 1 and not member.train and name not in recipe.judges and member.sampling.temperature == 0:
            what = f"{sets} sets, and {name} is asked at temperature 0: it says the same in each"
            yield Finding("warn", "collect.sets", what, f"set team.{name}.sampling.temperature")
    if config.answers and not config.answers.expanduser().is_file():
        way_out = "export it with `pilotfish collect --export`, or leave collect.answers out"
        yield Finding("fail", "collect.answers", f"{config.answers}: no such file{looked_in(config.answers)}", way_out)


def _collected(stage: Stage) -> Iterator[Finding]:
    """Whether the answers that a stage stands on are collected before it."""
    from pilotfish.preflight.stages import lack, lack_way_out, unasked

    if stage.unasked:
        way_out = "to filter tasks by them first, " + (
            "put a stage `{method: collect}` before it" if stage.name else "run `pilotfish collect`"
        )
        yield Finding("warn", stage.title("answers"), unasked(stage), way_out)
    if stage.lacking and stage.name:
        yield Finding("fail", stage.field("prefix"), lack(stage), lack_way_out(stage))
    elif stage.lacking:
        rounds = ",".join(str(round) for round in stage.lacking)
        way_out = f"pilotfish collect RECIPE --rounds {rounds} --leader RUN, unless that is done"
        yield Finding("warn", stage.field("prefix"), f"it trains on answers of rounds {rounds} of a leader", way_out)


def _fills(stage: Stage, tasks: int) -> Iterator[Finding]:
    """Whether there are enough groups for a step."""
    from pilotfish.recipe import RecipeError
    from pilotfish.train.profile import TrainConfig

    try:
        config, groups = stage.config, stage.groups(tasks)
    except RecipeError:
        return  # the rehearsal of the topology tells why
    if isinstance(config, TrainConfig) and groups < config.tasks_per_step:
        field, unit = stage.field("tasks_per_step"), "tasks" if groups == tasks else "groups"
        yield Finding(
            "fail", field, f"{groups} {unit}, and {field} is {config.tasks_per_step}", "lower it or add tasks"
        )


def _golds(source: str, tasks: list[Task], form: str) -> Finding:
    """Whether the verifier, in its worker processes, takes each gold answer for right."""
    from pilotfish.verify import VerifierPool

    tried = tasks[:: -(-len(tasks) // GOLDS)]  # evenly: a source may hold several kinds, one behind the other
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
