"""What a machine has, looked at before a long run: ok, warn or fail, with the way out.

for finding in machine(): ...
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

Status = Literal["ok", "warn", "fail"]

LOOKED_AT = ("torch", "transformers", "trl", "peft", "datasets", "math-verify", "reasoning-gym")


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
