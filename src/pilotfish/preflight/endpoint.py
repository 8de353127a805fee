"""Whether the server behind a member can be reached with its key: one GET of its list of models, nothing else.

The standard library asks, so that a check of a recipe needs no event loop; redirects are not followed, because the key
would go along.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

TIMEOUT_S = 5.0
"""Seconds that a server has for its list of models."""

State = Literal["reached", "without the model", "without a list", "key refused", "unreachable"]


@dataclass(frozen=True)
class Reached:
    """What became of the question."""

    state: State
    why: str = ""
    models: tuple[str, ...] = ()
    """What the server says it has."""


def list_models(base_url: str, key_env: str | None, model: str, timeout_s: float = TIMEOUT_S) -> Reached:
    """Ask a server for its models.

    Args:
        base_url: ends in `/v1`.
        key_env: name of the variable that holds the key; it is sent and never shown.
        model: the name to look for.
        timeout_s: seconds to wait.
    """
    key = os.environ.get(key_env, "").strip() if key_env else ""
    headers = {"User-Agent": "pilotfish", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        request = urllib.request.Request(_models_url(base_url), headers=headers)
        with _opener(request.host).open(request, timeout=timeout_s) as response:
            return _read(response.read(1_000_000), model)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return Reached("key refused", f"{error.code}")
        if error.code in (404, 405, 501):
            return Reached("without a list", f"{error.code}")
        return Reached("unreachable", f"it answers {error.code}")
    except (OSError, http.client.HTTPException, ValueError, LookupError) as error:  # the last: no codec for a name
        reason = getattr(error, "reason", None) or error
        return Reached("unreachable", type(reason).__name__ if key and key in str(reason) else str(reason))


def _read(body: bytes, model: str) -> Reached:
    try:
        entries: Any = json.loads(body)["data"]
        models = tuple(str(entry["id"]) for entry in entries)
    except (ValueError, KeyError, TypeError):
        return Reached("without a list", "it is no list of models")
    return Reached("reached" if model in models else "without the model", models=models)


def _models_url(base_url: str) -> str:
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/models"))


def shown(base_url: str) -> str:
    """An address as it may be printed: without user, password or query."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _opener(host: str) -> urllib.request.OpenerDirector:
    """No redirects, and no proxy on the way to this machine itself."""
    local = host.startswith(("localhost", "127.", "[::1]"))
    return urllib.request.build_opener(_NoRedirect, *([urllib.request.ProxyHandler({})] if local else []))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *request: Any) -> None:
        """None: the answer stands as it is, an HTTP error."""
