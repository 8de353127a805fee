"""Chains that backtrack: one train of thought out of a wrong and a right answer to a task, and what is wrong with it.

    pairs(samples, config, "0/t1")     # [Pair(wrong, right)], or why there is none
    mend("leader", pair)               # the topology that asks the leader for a chain
    spliced(pair)                      # the same without asking: both thoughts, joined by a sentence
    judged(task, chain, verdict, wrong)     # "kept", or why it is not learned

Source: MLPO, section "SFT", which shows the leader one right and one wrong answer and asks for reasoning that starts
wrong and mends itself; the words of the prompt and the last of the conditions are this project's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.team import Messages
from pilotfish.topology import Topology
from pilotfish.topology.prompts import Prompt
from pilotfish.train.profile import BacktrackConfig
from pilotfish.verify import Verdict, contains_answer, extract_answer
from pilotfish.verify.form import form_fault
from pilotfish.verify.verdict import RIGHT

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

FORM = "answer_tag"
"""Of a chain: `<think>…</think><answer>…</answer>`."""
OUTCOMES = ("kept", "no verdict", "no right", "no wrong", "broken form", "chain wrong", "not wrong first")
"""What becomes of a task that no chain is made of, and of a chain."""
TURN = "Wait, that does not seem right."
"""Joins the two halves of a spliced chain."""
BACKTRACK = Prompt(
    user="Problem: {question}\n\nOne solution, which ends in a wrong result:\n{wrong}\n\nAnother, which ends in the "
    "right result:\n{right}\n\nWrite down how somebody thinks who meets this problem for the first time and has "
    "nothing but the problem. The thoughts follow the first solution and come to its result. Then something does not "
    f'fit: they stop ("{TURN}", or in other words), find the error, and go on to the right result. It is one train of '
    "thought inside <think> and </think>; solutions that were given are never mentioned in it. Then give the result, "
    "and nothing else, inside <answer> and </answer>, and stop.",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer of the untrained leader that was judged."""

    set: int
    prompt: Messages
    text: str
    right: bool
    result: str | None
    """What the verifier read from it; None where its form is of no use."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What a chain is made of."""

    wrong: Sample
    right: Sample


def pairs(samples: Sequence[Sample], config: BacktrackConfig, seed: str) -> list[Pair] | str:
    """Wrong and right answers to make chains of, `per_task` pairs at most; or which of `OUTCOMES` the task came to.

    An answer that was given twice counts once. To be spliced, both have to be in the form.
    """
    if not samples:
        return "no verdict"
    distinct = list({sample.text: sample for sample in samples}.values())
    wrong = [sample for sample in distinct if not sample.right and sample.result]
    right = [sample for sample in distinct if sample.right]
    if not wrong or not right:
        return "no wrong" if right else "no right"
    usable = [
        Pair(*pair)
        for pair in product(wrong, right)
        if config.chains == "asked" or not any(form_fault(sample.text, FORM) for sample in pair)
    ]
    return Random(seed).sample(usable, min(config.per_task, len(usable))) or "broken form"


def mend(trainee: str, pair: Pair) -> Topology:
    """The topology that asks for a chain: the trainee alone, shown a wrong and a right answer of its own."""

    async def mend(task: Task, room: Room) -> Turn:
        prompt = BACKTRACK(task, wrong=pair.wrong.text, right=pair.right.text)
        return await room.ask(trainee, prompt, final=True)

    return Topology("mend", mend, FORM)


def begun(text: str) -> str:
    """A chain from where it begins to think: what a model says before that is said to the one who asked."""
    return text[max(0, text.rfind("<think>")) :].strip()


def spliced(pair: Pair) -> str:
    """A chain out of the thoughts of both answers, and the right one's result."""
    thoughts = f"{thought(pair.wrong.text)} {TURN} {thought(pair.right.text)}"
    return f"<think>{thoughts}</think>\n<answer>{extract_answer(pair.right.text, FORM).region}</answer>"


def judged(task: Task, chain: str, verdict: Verdict, wrong: Sample) -> str:
    """Which of `OUTCOMES` a chain came to: it is kept where its form is whole, its result is right, and the result of
    the wrong answer was thought first (a chain that never was wrong is no backtracking)."""
    if verdict.reward is None:
        return "no verdict"
    if form_fault(chain, FORM) is not None:
        return "broken form"
    if verdict.reward < RIGHT:
        return "chain wrong"
    return "kept" if contains_answer(wrong.result or "", thought(chain), task.verifier) else "not wrong first"


def thought(text: str) -> str:
    """What stands inside `<think>` of a text in the form."""
    return text[text.rfind("<think>") + len("<think>") : text.rfind("</think>")].strip()
