"""Errors that a user can mend become a line on standard error and exit code 2; faults of Pilotfish stay tracebacks."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from pilotfish.cli.console import say_error

EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "trl": "train",
    "peft": "train",
    "accelerate": "train",
    "gguf": "train",
    "datasets": "tasks",
    "reasoning_gym": "tasks",
    "matplotlib": "report",
}
"""Which extra brings a package that is missing."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What an error says, of whatever type, where a disk is full; it seldom says which file was written."""


@contextmanager
def one_line(show_traceback: bool, *, interrupted: Callable[[], str] = lambda: "interrupted") -> Iterator[None]:
    """Report what a command may meet.

    Args:
        show_traceback: let every error through as it is.
        interrupted: what to say after Ctrl-C: how to go on.
    """
    try:
        yield
    except KeyboardInterrupt:
        say_error(interrupted())
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Whoever read the output has gone; the interpreter must not fail once more as it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (Exception, CancelledError) as error:  # a topology may raise that one, and nobody has cancelled it
        message = None if show_traceback else expected(error)
        if message is None:
            raise
        say_error(message)
        raise typer.Exit(2) from None


def expected(error: Exception | CancelledError) -> str | None:
    """The message for an error that a user can mend; None for a fault of the program."""
    if isinstance(error, ModuleNotFoundError) and (top := (error.name or "").partition(".")[0]) in EXTRAS:
        return f"the package {top} is missing; pip install 'pilotfish[{EXTRAS[top]}]'"
    if isinstance(error, _known()) or (isinstance(error, ValueError | ModuleNotFoundError) and _on_purpose(error)):
        return str(error)
    if any(os.strerror(number) in str(error) for number in FULL):
        return f"{error}: free space and give the same command again; what was recorded before is safe"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; name another place or mend its permissions"
    return _in_own_file(error)


def _in_own_file(error: BaseException) -> str | None:
    """Where in a file of the user's (a topology) an error arose; None when it arose in installed code alone."""
    installed = [Path(__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix)]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename).absolute()
        if file.suffix == ".py" and not any(file.is_relative_to(place) for place in installed):
            what = ": ".join(filter(None, (type(error).__name__, str(error))))
            return f"{file}:{frame.lineno}: {what}; --traceback shows more"
    return None


def _known() -> tuple[type[Exception], ...]:
    from pilotfish.engine.base import Refused
    from pilotfish.episode import JournalError, ReplayMismatch, TopologyError
    from pilotfish.recipe import RecipeError
    from pilotfish.run import RunError
    from pilotfish.task import TaskError
    from pilotfish.train.rollout import TooManyOutages

    return Refused, JournalError, ReplayMismatch, TopologyError, RecipeError, RunError, TaskError, TooManyOutages


def _on_purpose(error: Exception) -> bool:
    """Whether Pilotfish itself raised it: the innermost frame is one of its `raise` statements."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "pilotfish" in frames[-1].filename and (frames[-1].line or "").startswith("raise ")
