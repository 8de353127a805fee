"""GRPO learns several decisions of an episode, and several topologies: a debate seat, a router, a leader, a mix.

.venv/bin/python -m pytest tests/test_train_learns_several.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pilotfish import ScriptedEngine, Task, Verdict
from pilotfish.topology import debate, leader, roles
from pilotfish.train.row import RowId
from tiny import save_tiny
from training import LETTERS, PROMPTS, TASKS, Learned, exact, learn, recipe


def persuaded(messages: Any, sampling: Any, seed: int) -> str:
    """An agent, and a judge of a debate, who says y for each answer it reads that begins with a vowel, or with a y."""
    heard = re.findall(r"Answer of agent \d:\n(.?)", messages[-1]["content"])
    return "".join("y" if letter in LETTERS or letter == "y" else "n" for letter in heard) or "n"


async def share(task: Task, answer: str, form: str) -> Verdict:
    """Half the reward for each of the trainee's turns: what the agent said of its first, and the judge of its last."""
    return Verdict(answer.count("y") / 2, answer)


BRIEF = {"debate": {"user": "{answers}"}, "decide": {"user": "{answers}"}}
PLAYED = {
    "debate": debate.bind(agents=["actor", "collaborator"], judge="actor", prompts=BRIEF),
    "roles": roles.bind(experts=None, prompts={"write": {"system": ""}, "solve": {"user": "SAID:{role}"}}),
    "leader": leader.bind(leader="collaborator", rounds=2, prompts={"lead": {"user": "{question} {answers}"}}),
}


def risen(rewards: Sequence[float]) -> bool:
    """Whether three steps in a row were nearly all right; what stops a training sees its last step too late."""
    return any(sum(rewards[at : at + 3]) / 3 > 0.9 for at in range(1, len(rewards) - 2))


def enough(step: int, learned: Learned) -> bool:
    return risen(learned.rewards)


@pytest.mark.parametrize(
    ("name", "decisions", "credit"),
    [("debate", 2, "decision"), ("debate", 2, "episode"), ("roles", 1, "decision"), ("leader", 2, "decision")],
)
def test_a_debate_seat_a_router_and_a_leader_over_two_rounds_learn(
    name: str, decisions: int, credit: str, tmp_path: Path
) -> None:
    made = recipe(save_tiny(tmp_path / "model"), "hint", credit=credit, steps=40)
    team = {"actor": ScriptedEngine(persuaded), "judge": share} if name == "debate" else {"judge": exact}
    rows = [RowId(task, decision=decision) for task in TASKS for decision in range(decisions)]
    learned = learn(made, PLAYED[name], tmp_path, rows=rows, at_step=enough, **team)
    assert learned.rewards[0] < 0.3
    assert risen(learned.rewards), learned.rewards


def test_one_trainee_learns_two_topologies_at_once(tmp_path: Path) -> None:
    def seen(topology: str, learned: Learned) -> list[float]:
        name = f"team/accuracy/{topology}"
        return [figures[name] for figures in learned.logged if name in figures]

    def both(step: int, learned: Learned) -> bool:
        return all(risen(seen(name, learned)) for name in ("hint", "critic"))

    made = recipe(save_tiny(tmp_path / "model"), "hint", steps=40)
    rows = [RowId(task, topology=number) for task in TASKS for number in (0, 1)]
    learned = learn(made, PROMPTS["hint"], tmp_path, mix=[PROMPTS["critic"]], rows=rows, at_step=both)
    assert {row.episodes[0].topology for rows in learned.rows for row in rows} == {"hint", "critic"}
    assert max(seen("hint", learned)[0], seen("critic", learned)[0]) < 0.3
    assert both(0, learned), [seen("hint", learned), seen("critic", learned)]
