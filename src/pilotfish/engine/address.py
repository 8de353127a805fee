"""Where a server is and what opens it: its address, the way there, and the key.

The key is read from the environment when an engine is made and sent as a bearer token. It is kept where neither `repr`
nor an error shows it, and taken out of what a server says back.
"""

from __future__ import annotations

import os
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from pilotfish.engine.base import Refused


class Key:
    """A key by the name of its environment variable; None for a server without keys.

    Raises:
        Refused: the variable is empty or holds what no header can carry.
    """

    def __init__(self, env: str | None) -> None:
        self._env = env
        self._value = os.environ.get(env, "").strip() if env else ""
        if env and not self._value:
            raise Refused(f"no key in ${env}; export it or set key_env")
        if not (self._value.isascii() and self._value.isprintable()):
            raise Refused(f"${env} holds characters that no HTTP header can carry; export the key again")

    def __repr__(self) -> str:
        return f"${self._env}" if self._env else "no key"

    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    @property
    def mended(self) -> str:
        """What to do where a server does not take it."""
        if self._env:
            return f"the key is that in ${self._env}; export the right one"
        return "key_env names no variable that holds a key; set it"

    def removed_from(self, text: str) -> str:
        if not self._value:
            return text
        return text.replace(self._value, "[key]").replace(quote(self._value, safe=""), "[key]")


def address(base_url: str, path: str) -> URL:
    """The address that requests are posted to; a query, as some gateways want, is kept.

    Args:
        base_url: for example `http://localhost:8000/v1`.
        path: what comes after it, for example `/chat/completions`.

    Raises:
        ValueError: no http(s) address, or one that carries a key.
    """
    url = URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"base_url {base_url!r} is no http(s) address; write it as http://localhost:8000/v1")
    if url.user or url.password:
        raise ValueError(f"base_url for {url.host} carries a user or a password; put the key in key_env")
    return url.with_path(url.path.rstrip("/") + path, keep_query=True)


def proxy(url: URL) -> str | None:
    """The environment's proxy for an address; never one for this machine itself."""
    host = url.host or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    found = getproxies().get(url.scheme, "")
    return found if found.startswith(("http://", "https://")) else None
