"""Topologies: a writer drafts, an editor (the trainee) says what to mend, the writer writes it once more; and one that
asks nobody, by which a judge is tried on answers that are written down (probes.jsonl)."""

from __future__ import annotations

from pilotfish import Prompt, Prompts, Room, Task, Turn, topology

PROMPTS = Prompts(
    draft=Prompt(user="{question}"),
    edit=Prompt(
        user="A colleague was asked:\n{question}\n\nand wrote:\n{draft}\n\nSay in one sentence what to mend: what is "
        "missing, what may go. Do not write the text yourself."
    ),
    revise=Prompt(
        user="{question}\n\nYour draft:\n{draft}\n\nYour editor says:\n{remark}\n\nWrite the final text, and only it."
    ),
)


@topology
async def edited(task: Task, room: Room, *, prompts: Prompts = PROMPTS) -> Turn:
    """Two calls of the writer, one of the editor."""
    draft = await room.ask("writer", prompts.draft(task), draw=0)
    remark = await room.ask("editor", prompts.edit(task, draft=draft.text))
    return await room.ask("writer", prompts.revise(task, draft=draft.text, remark=remark.text), final=True)


@topology
async def said(task: Task, room: Room) -> str:
    """The row's own field `said`."""
    return str(task.meta["said"])
