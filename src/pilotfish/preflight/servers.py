"""The servers behind a recipe's API members: whether each is there, takes the key, and knows the model.

    finding = server("actor", member, "http://localhost:8000/v1")     # `doctor` looks at one after the other

    servers = Servers([recipe])                                        # others ask all at once, while they load
    servers.tell(print, Path("runs/hint"))

Of a server only its list of models is asked.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pilotfish.engine.base import Refused
from pilotfish.preflight.endpoint import TIMEOUT_S, Reached, list_models, shown
from pilotfish.preflight.machine import Finding
from pilotfish.recipe import MemberConfig, Recipe

_VERSION = re.compile(r"/v\d")
"""Stands in nearly every address of an API."""


def server(name: str, member: MemberConfig, address: str) -> Finding:
    """What is found of a member at one of its addresses."""
    if member.key_env and not os.environ.get(member.key_env, "").strip():
        return Finding("fail", name, f"no key in ${member.key_env}", "export it or set key_env")
    return _finding(name, member, address, list_models(address, member.key_env, member.model))


def _finding(name: str, member: MemberConfig, address: str, reached: Reached) -> Finding:
    who = _who(member, address)
    key = f"the key in ${member.key_env}" if member.key_env else "a call without a key"
    if reached.state == "reached":
        return Finding("ok", name, who)
    if reached.state == "without a list":
        what = f"{who}: reached, it has no list of models ({reached.why})"
        usual = "" if _VERSION.search(shown(address)) else "a base_url usually ends in /v1; if this one is right, "
        return Finding("warn", name, what, f"{usual}the first call will tell")
    if reached.state == "without the model":
        known = ", ".join(reached.models[:5]) or "none"
        return Finding("warn", name, f"{who}: not in its list of models", f"correct team.{name}.model; it has: {known}")
    if reached.state == "key refused":
        return Finding("fail", name, f"{who}: {key} is refused ({reached.why})", "export the right key or set key_env")
    return Finding("fail", name, f"{who}: {reached.why}", f"start the server or correct team.{name}.base_url")


def _who(member: MemberConfig, address: str) -> str:
    return f"{member.model} at {shown(address)}"


class Servers:
    """Asks the servers of some teams, all at once; a host whose name nobody answers for holds up no other.

    Args:
        teams: recipes with a team each.
    """

    def __init__(self, teams: Iterable[Recipe]) -> None:
        self._ends = time.monotonic() + TIMEOUT_S
        seats = [(name, member) for team in teams for name, member in team.team.items() if _askable(member)]
        places = {
            (address, member.key_env, member.model): _Asked(name, member, address)
            for name, member in seats
            for address in member.addresses
        }
        self._asked = list(places.values())
        for one in self._asked:
            one.start()

    def tell(self, told: Callable[[str], None], run: Path) -> None:
        """Say what is to mind, once each has answered or had its seconds.

        Args:
            told: called with a note.
            run: the run's folder. One that has a record may need no further call: a wrong key does not stop it here.

        Raises:
            Refused: a server that does not take the key.
        """
        for note in self._notes(begun=(run / "journal").exists()):
            told(note)

    def _notes(self, *, begun: bool) -> Iterator[str]:
        """See `tell`."""
        for one in self._asked:
            one.join(max(0.0, self._ends - time.monotonic()))
            found = _finding(one.seat, one.member, one.address, one.reached)
            told = f"{found.name}: {found.what}; {found.way_out}"
            # A key that may not list models (403) may well be one to ask them.
            if one.reached.state == "key refused" and one.reached.why == "401" and not begun:
                raise Refused(told)
            if one.reached.state == "unreachable":
                who, retries = f"{one.seat}: {_who(one.member, one.address)}", one.member.retries
                tries = f"{retries + 1} times" if retries else "once"
                yield f"{who} does not answer yet ({one.reached.why}); going on, each call is tried {tries}"
            elif one.reached.state in ("key refused", "without the model"):
                yield told


def _askable(member: MemberConfig) -> bool:
    """Whether it sits behind an API with what the recipe says; what lacks is told by whoever makes its engine."""
    keyed = not member.key_env or bool(os.environ.get(member.key_env, "").strip())
    return member.engine == "openai" and keyed


class _Asked(threading.Thread):
    """One server."""

    def __init__(self, seat: str, member: MemberConfig, address: str) -> None:
        super().__init__(daemon=True)
        self.seat, self.member, self.address = seat, member, address
        self.reached = Reached("unreachable", f"nothing within {TIMEOUT_S:g} s")

    def run(self) -> None:
        self.reached = list_models(self.address, self.member.key_env, self.member.model)
