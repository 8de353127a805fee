"""What `train.data` of a recipe names: rows of the lab, or a JSONL file of chats.

lab:actor            all families that the actor learns
lab:actor/legs       one family
my_rows.jsonl        one `{"messages": [...]}` a line
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pilotfish.lab.members import rows
from pilotfish.lab.row import Row
from pilotfish.missing import looked_in

LAB = "lab:"


def read_rows(data: str, size: int, seed: int) -> list[Row]:
    """The rows that `data` names.

    Args:
        data: `lab:MEMBER`, `lab:MEMBER/FAMILY`, or a JSONL file.
        size: rows that the lab makes; a file is read whole.
        seed: of the lab's rows.

    Raises:
        ValueError: an unknown member or family, no such file, or a line that holds no chat.
        OSError: the file cannot be read.
    """
    if data.startswith(LAB):
        member, _, family = data.removeprefix(LAB).partition("/")
        return rows(member, size, seed, (family,) if family else None)
    if not Path(data).exists():
        raise ValueError(f"{data}: no such file{looked_in(data)}")
    lines = Path(data).read_text(encoding="utf-8").split("\n")
    return [_read(f"{data}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]


def _read(where: str, line: str) -> Row:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON ({error.msg})") from error
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        raise ValueError(f'{where}: no chat; a line is {{"messages": [{{"role": …, "content": …}}, …]}}')
    return Row(messages=messages, family=str(value.get("family", "")), kind=str(value.get("kind", "")))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(field), str) for field in ("role", "content"))
