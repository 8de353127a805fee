"""A topology of your own: two members solve alone, the trainee reads both answers and decides.

    python examples/own_topology.py

A topology is one async function that asks members through `room`. This one runs with a scripted team, so it needs no
model, no key and no network. In a recipe it is named `topology: examples/own_topology.py:referee`.
"""

from __future__ import annotations

import asyncio
import tempfile

from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.episode import Journal, Room, Scopes, Team, Turn, play
from pilotfish.task import Task
from pilotfish.team import Member
from pilotfish.topology import Prompt, Prompts, topology
from pilotfish.verify.verdict import Verdict

PROMPTS = Prompts(
    solve=Prompt(user="{question}"),
    decide=Prompt(user="{question}\n\nOne answer: {one}\n\nAnother answer: {other}\n\nWhich is right, and why?"),
)


@topology
async def referee(task: Task, room: Room, *, prompts: Prompts = PROMPTS) -> Turn:
    """What runs at the same time goes through `room.gather`."""
    one, other = await room.gather(
        room.ask("optimist", prompts.solve(task)),
        room.ask("pedant", prompts.solve(task)),
    )
    return await room.ask("referee", prompts.decide(task, one=one.text, other=other.text), final=True)


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(float(task.answer in answer), extracted=answer)


async def main() -> None:
    seats = {name: Member(name, "scripted", trainee=name == "referee") for name in ("optimist", "pedant", "referee")}
    engines = {
        "optimist": ScriptedEngine(["Surely 5."]),
        "pedant": ScriptedEngine(["2 + 2 = 4, by counting."]),
        "referee": ScriptedEngine({"counting": "The one that counted: 4."}),
    }
    task = Task("sum", "What is 2 + 2?", "4")
    with tempfile.TemporaryDirectory() as folder:
        episode = await play(task, referee, Team(seats, engines), Journal(folder), Scopes("example"), judge=judge)
    for placed in episode.turns:
        print(f"{placed.turn.member}: {placed.turn.text}")
    print(f"answer: {episode.answer}   reward: {episode.verdict.reward}")


if __name__ == "__main__":
    asyncio.run(main())
