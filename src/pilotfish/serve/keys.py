"""API keys: kept as hashes, compared in constant time.

keys = keys_in("SERVE_KEYS")               # export SERVE_KEYS="$(openssl rand -hex 24)"
keys.caller("Bearer …")                    # who asks, or None
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re

from pilotfish.engine.base import Refused

SHORTEST = 16
"""Characters of a key that cannot be guessed, if they are drawn at random."""
HASHED = re.compile(r"sha256:([0-9a-fA-F]{64})")


class Keys:
    """Those that may ask.

    Args:
        hashes: SHA-256 of each key. A key is drawn at random, so a fast hash does.
    """

    def __init__(self, hashes: tuple[bytes, ...] = ()) -> None:
        self._hashes = hashes

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def caller(self, authorization: str) -> str | None:
        """The name of whoever sends this header, which is the beginning of its key's hash; None where none fits."""
        kind, _, key = authorization.partition(" ")
        given = hashlib.sha256(key.strip().encode()).digest()
        same = [hmac.compare_digest(given, known) for known in self._hashes]
        return given.hex()[:12] if any(same) and kind.lower() == "bearer" else None


def keys_in(variable: str | None) -> Keys:
    """The keys of an environment variable.

    Raises:
        Refused: it is empty, or holds a key that can be guessed.
    """
    if variable is None:
        return Keys()
    given = os.environ.get(variable, "").split()
    if not given:
        raise Refused(
            f"serve: no key in ${variable}; export it, or leave serve.key_env out to serve this machine alone"
        )
    return Keys(tuple(_hash(key, variable) for key in given))


def _hash(key: str, variable: str) -> bytes:
    if hashed := HASHED.fullmatch(key):
        return bytes.fromhex(hashed[1])
    if len(key) < SHORTEST:
        raise Refused(
            f"serve: a key in ${variable} has {len(key)} characters and can be guessed; draw {SHORTEST} or more"
        )
    return hashlib.sha256(key.encode()).digest()
