"""A rehearsal: a recipe's team played by engines that say filler and count, so that calls are known before one is paid.

The topology, the forks, the journal and the rollout are the real ones; what is shared in training is therefore shared
here, and what a stage has collected costs the next one nothing. `estimate` and `doctor` rehearse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pilotfish.collect.manifest import Leader
from pilotfish.collect.sets import Prefix
from pilotfish.episode import Episode, Horizon, Journal, Scopes, play
from pilotfish.evaluate.arms import baselines
from pilotfish.preflight.filler import RehearsedSeats, no_verdict
from pilotfish.preflight.stages import Stage
from pilotfish.task import Task
from pilotfish.train.chains import Sample, mend, pairs
from pilotfish.train.profile import BacktrackConfig, TrainConfig
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row, RowId

Part = tuple[int, tuple[int, ...]]
"""A topology, by its number, and the decisions of one of its episodes that a step trains."""


def rehearsed_rollout(seats: RehearsedSeats, journal: Journal, tasks: Sequence[Task], stage: Stage) -> Rollout:
    """The rollout of a stage, as in training.

    Args:
        seats: moved to the stage's recipe.
        journal: of the rehearsal; groups share with what is in it what they would share in training.
        tasks: that groups are played on.
        stage: trains by playing groups.
    """
    config, recipe = stage.config, stage.recipe
    assert isinstance(config, TrainConfig)
    topology, *mix = recipe.topologies()
    return Rollout(
        topology,
        seats.team(training=True),
        {task.id: task for task in tasks},
        journal,
        no_verdict,
        config,
        mix=mix,
        alone=next((other for other in baselines(recipe) if other.name == "solo"), None),
        seed=recipe.seed,
        place=stage.place,
        shaped=leader_of(stage.shaped_by).scope,
    )


async def rehearse_groups(
    rollout: Rollout, tasks: Sequence[Task], parts: Sequence[Part], set: int, step: int
) -> list[Row]:
    """Rehearse a step.

    Args:
        rollout: see `rehearsed_rollout`.
        tasks: that groups are played on.
        parts: what is trained on each of them.
        set: of stored answers.
        step: number of the step.

    Raises:
        ValueError: the trainee is asked for one of the decisions on concurrent branches.
        ReplayMismatch: the topology asks the rows of a group for it in different words.
    """
    trained = [(decision, at) for at, decisions in parts for decision in decisions]
    groups = [RowId(task.id, set, *one) for task in tasks for one in trained]
    return await rollout.step([str(group) for group in groups for _ in range(rollout.config.group_size)], step)


def leader_of(stage: str) -> Leader:
    """The leader that a stage's training made, as the scope of what it shapes knows it."""
    return Leader(model="", identity=f"rehearsal of {stage}")


async def rehearse_earlier(seats: RehearsedSeats, journal: Journal, tasks: Sequence[Task], stage: Stage) -> None:
    """Rehearse the answers that a stage finds and no stage has collected: a file's, and those that another command
    has asked for."""
    rounds: list[tuple[int, ...]] = [(0,)] if stage.reads and stage.recipe.collect.answers else []
    rounds += [stage.lacking] if stage.lacking else []
    for wanted in rounds:
        for set in range(stage.recipe.collect.sets):
            await rehearse_collect(seats, journal, tasks, stage, wanted, set)


async def rehearse_collect(
    seats: RehearsedSeats, journal: Journal, tasks: Sequence[Task], stage: Stage, rounds: Sequence[int], set: int = 0
) -> None:
    """Rehearse the recording of one set of answers to each task.

    Args:
        seats: moved to the stage's recipe.
        journal: of the rehearsal.
        tasks: that are asked.
        stage: its weights lead in rounds above 0.
        rounds: up to the highest of which the team is played.
        set: its number.

    Raises:
        ValueError: there is no such round of answers.
    """
    if not rounds:
        raise ValueError("collect: rounds is []; name 0 for the agents' own answers, 1 and up for more")
    led = leader_of(stage.weights) if any(rounds) else None
    prefix = Prefix(stage.recipe.topology.load(), tuple(rounds), led, stage.recipe.seed)
    team = seats.team(training=True)
    team = replace(team, earlier=team.engines[stage.recipe.trainee or ""])
    until = Horizon(prefix.decision, asked=False)
    for task in tasks:
        scopes = prefix.scopes(task.id, set)
        episode = await play(task, prefix.played, team, journal, scopes, judge=no_verdict, until=until)
        _check_collected(episode, prefix.decision)


def _check_collected(episode: Episode, round: int) -> None:
    asked = {placed.turn.member for placed in episode.turns}
    if episode.answer:
        raise ValueError(f"topology {episode.topology} ends before round {round}, which is to be collected")
    if not asked - {episode.trainee}:
        raise ValueError(
            f"topology {episode.topology} asks {episode.trainee} before anybody else, so there is nothing to collect; "
            "train it with `prefix: fresh`"
        )


async def rehearse_samples(
    seats: RehearsedSeats, journal: Journal, tasks: Sequence[Task], stage: Stage
) -> list[list[Sample]]:
    """Rehearse the trainee's answers that backtracking is learned from, over the stored sets in turn.

    Returns:
        Of each task; every other one is right, so that as many chains can be made of them as there can be.
    """
    config, topology = stage.config, stage.recipe.topology.load()
    assert isinstance(config, BacktrackConfig)
    team = seats.team(training=True)

    async def sampled(task: Task, number: int) -> Sample:
        stored = f"{task.id}/{number % stage.sets}"
        scopes = Scopes(f"{stage.place}samples/{stored}#{number}", f"stored/{stored}", stage.recipe.seed)
        episode = await play(task, topology, team, journal, scopes, judge=no_verdict, until=Horizon(0))
        decided = episode.decisions(0)
        if not decided:
            raise ValueError(f"topology {topology.name} does not ask {stage.recipe.trainee}; train a member it asks")
        turn = decided[0].turn
        return Sample(number % stage.sets, turn.messages, turn.text, number % 2 == 0, turn.text)

    return [[await sampled(task, number) for number in range(config.samples)] for task in tasks]


async def rehearse_chains(
    seats: RehearsedSeats, journal: Journal, tasks: Sequence[Task], stage: Stage, samples: Sequence[Sequence[Sample]]
) -> None:
    """Rehearse the chains of backtracking that the trainee is asked for, from the samples of each task."""
    config, trainee = stage.config, stage.recipe.trainee or ""
    assert isinstance(config, BacktrackConfig)
    if config.chains == "spliced":
        return
    team = seats.team(training=True)
    for task, told in zip(tasks, samples, strict=True):
        found = pairs(told, config, task.id)
        for number, pair in enumerate(found if not isinstance(found, str) else ()):
            scopes = Scopes(f"{stage.place}chains/{task.id}/{number}", seed=stage.recipe.seed)
            await play(task, mend(trainee, pair), team, journal, scopes, judge=no_verdict)
