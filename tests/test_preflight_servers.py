"""Commands say as they start which servers do not answer or do not take the key."""

from __future__ import annotations

import http.server
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collecting import answer
from collecting import recipe as leader_recipe
from handled import handled
from mock_server import MockServer
from pilotfish import Run
from pilotfish.cli import main
from pilotfish.engine.base import Refused
from pilotfish.preflight import servers
from pilotfish.preflight.servers import Servers
from pilotfish.recipe import parse_recipe


class _Server(http.server.BaseHTTPRequestHandler):
    """`/STATUS/v1/models` answers with that status; a 200 lists the model `other`."""

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "other"}]}).encode()
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with handled(_Server) as found:
        yield found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ACTOR_KEY", "sk-1")


def dead() -> str:
    """An address that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        return f"http://127.0.0.1:{door.getsockname()[1]}/v1"


def asked(*addresses: str, **fields: Any) -> Servers:
    actor = {"engine": "openai", "model": "toy", "base_url": addresses, "key_env": "ACTOR_KEY", **fields}
    return Servers([parse_recipe({"team": {"actor": actor}, "topology": "solo"})])


def notes(*addresses: str, begun: bool = False, **fields: Any) -> list[str]:
    found: list[str] = []
    if begun:
        Path("run/journal").mkdir(parents=True)
    asked(*addresses, **fields).tell(found.append, Path("run"))
    return found


def test_a_server_that_does_not_answer_yet_is_a_note(place: str) -> None:
    away = dead()
    refused = f"actor: toy at {away} does not answer yet ([Errno 111] Connection refused); going on, each call is tried"
    assert notes(away) == [f"{refused} 7 times"]
    assert notes(away, retries=0) == [f"{refused} once"]
    [busy] = notes(f"{place}/503/v1")
    assert "does not answer yet (it answers 503)" in busy


def test_a_key_that_is_refused_ends_a_run_that_has_not_begun(place: str) -> None:
    told = f"actor: toy at {place}/401/v1: the key in $ACTOR_KEY is refused (401); export the right key or set key_env"
    with pytest.raises(Refused) as error:
        notes(f"{place}/401/v1")
    assert str(error.value) == told
    assert notes(f"{place}/401/v1", begun=True) == [told]


def test_what_the_first_call_may_prove_wrong_is_a_note(place: str) -> None:
    assert notes(f"{place}/403/v1") == [
        f"actor: toy at {place}/403/v1: the key in $ACTOR_KEY is refused (403); export the right key or set key_env"
    ]
    assert notes(f"{place}/200/v1") == [
        f"actor: toy at {place}/200/v1: not in its list of models; correct team.actor.model; it has: other"
    ]


def test_nothing_is_said_of_servers_that_are_there(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert notes(f"{place}/200/v1", model="other") == []
    assert notes(f"{place}/404/v1") == [], "it has no list"
    monkeypatch.delenv("ACTOR_KEY")
    assert notes(f"{place}/401/v1") == [], "the engine says that there is no key"


def test_a_server_that_is_silent_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        [note] = notes(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
    assert "does not answer yet (nothing within 0.1 s)" in note


@pytest.mark.parametrize("command", ["train", "eval", "collect"])
def test_a_command_says_it_before_anything_is_written(
    command: str, place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = leader_recipe(tmp_path, f"{place}/401/v1").model_dump(mode="json")
    data["evaluate"] = {"benchmarks": [str(tmp_path / "tasks.jsonl")]}
    Path("own.yaml").write_text(json.dumps(data))
    assert main([command, "own.yaml"]) == 2
    assert "ann: model-ann at" in (told := capfd.readouterr().err)
    assert "a call without a key is refused (401); export the right key or set key_env" in told
    assert not Path("runs/own").exists()


def test_a_finished_training_asks_no_server(place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Run(tmp_path / "done", leader_recipe(tmp_path, f"{place}/401/v1")).keep("finished", {"best": None})
    assert main(["train", str(tmp_path / "done")]) == 0
    assert "401" not in (told := capfd.readouterr().err)
    assert "this run is finished" in told


def test_answers_that_are_read_from_a_file_need_no_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with MockServer(reply=answer) as server:
        data = leader_recipe(tmp_path, server.base_url).model_dump(mode="json")
        Path("own.yaml").write_text(json.dumps(data))
        assert main(["collect", "own.yaml", "--export", "answers.jsonl"]) == 0
    assert main(["collect", "own.yaml", "--run", "again", "--import", "answers.jsonl"]) == 0
    assert "does not answer" not in capfd.readouterr().err
    assert main(["collect", "own.yaml"]) == 0, "all is recorded"
    assert capfd.readouterr().err.count("does not answer yet") == 2
