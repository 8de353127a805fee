"""Safe by default: who may ask, from where, and how much."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pilotfish.engine.base import Refused
from pilotfish.episode import Journal
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.run import Run
from pilotfish.serve import guard
from pilotfish.serve.config import ServeConfig
from pilotfish.serve.keys import Keys, keys_in
from pilotfish.serve.main import open_app
from pilotfish.topology import hint
from seated import seats
from serving import LIMIT_S, Served, served, until, user

KEY = "a-key-that-nobody-guesses"


def team() -> Any:
    return seats(collaborator=lambda m, s, seed: "Add.", actor=lambda m, s, seed: "4")


def hashes(*keys: str) -> Keys:
    return Keys(tuple(hashlib.sha256(key.encode()).digest() for key in keys))


def test_where_there_are_keys_nothing_of_the_team_is_told_without_one() -> None:
    with served(hint, team(), keys=hashes("another-key-than-mine", KEY)) as server:
        for path in ("/v1/models", "/v1/models/team", "/metrics"):
            assert server.get(path).status == 401
            assert server.get(path, Authorization=f"Bearer {KEY}").status == 200
        for wrong in ("", "Bearer", f"Bearer {KEY}x", f"Basic {KEY}", f"Bearer {KEY[:-1]}"):
            refused = server.post("/v1/chat/completions", {"messages": [user("?")]}, Authorization=wrong)
            assert (refused.status, refused.error) == (401, "invalid_api_key")
        asked = {"messages": [user("?")]}
        assert server.post("/v1/chat/completions", asked, Authorization=f"bearer {KEY}").status == 200
        assert server.get("/health").json == {"status": "ok"}


def test_keys_come_from_the_environment_and_stay_as_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = hashlib.sha256(b"only its hash is known").hexdigest()
    monkeypatch.setenv("SERVE_KEYS", f"{KEY}  sha256:{hashed}")
    keys = keys_in("SERVE_KEYS")
    assert KEY.encode() not in repr(vars(keys)).encode()
    assert keys.caller(f"Bearer {KEY}") != keys.caller("Bearer only its hash is known") != None  # noqa: E711
    assert keys.caller(f"Bearer sha256:{hashed}") is None
    assert not keys_in(None)


@pytest.mark.parametrize(("value", "words"), [("", "export it"), ("short", "5 characters and can be guessed")])
def test_a_key_that_is_missing_or_can_be_guessed_is_refused(
    value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVE_KEYS", value)
    with pytest.raises(Refused, match=words) as error:
        keys_in("SERVE_KEYS")
    assert not value or value not in str(error.value)


def test_a_key_in_place_of_the_variable_is_refused_and_not_repeated() -> None:
    with pytest.raises(RecipeError, match=r"serve\.key_env: names no environment variable; export the key") as refused:
        parse_recipe({"team": {"actor": {"model": "m"}}, "topology": "solo", "serve": {"key_env": "sk-hidden-1"}})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.5", "example.com"])
def test_others_are_not_let_in_without_keys(host: str, tmp_path: Path) -> None:
    data = {"team": {"actor": {"engine": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}}}
    recipe = parse_recipe({**data, "topology": "solo", "serve": {"host": host}})
    with pytest.raises(RecipeError, match=r"serve\.key_env"):
        open_app(recipe, Run(tmp_path, recipe), print)


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_this_machine_alone_is_told_from_all_others(host: str, local: bool) -> None:
    assert ServeConfig(host=host).local is local


def test_pages_of_other_sites_get_nothing() -> None:
    asked = {"messages": [user("?")]}
    with served(hint, team()) as server:
        here = f"127.0.0.1:{server.port}"
        assert server.post("/v1/chat/completions", asked, Origin=f"http://{here}").status == 200
        assert server.post("/v1/chat/completions", asked, Origin="https://evil.example").error == "wrong_origin"
        assert server.post("/v1/chat/completions", asked, Origin="null").error == "wrong_origin"
        longer = server.post("/v1/chat/completions", asked, Origin=f"http://{here}.evil.example")
        assert (longer.status, longer.error) == (403, "wrong_origin")
        assert server.post("/v1/chat/completions", asked, Host="evil.example").error == "wrong_host"
        assert server.post("/v1/chat/completions", asked, Host="[").error == "wrong_host"
        assert server.post("/v1/chat/completions", asked, Host=f"localhost:{server.port}").status == 200
        plain = server.post("/v1/chat/completions", asked, Content_Type="text/plain")
        assert (plain.status, plain.error) == (415, "wrong_content_type")
        preflight = server.request("OPTIONS", "/v1/chat/completions", None, {"Origin": f"http://{here}"})
        assert preflight.status == 405
        assert not any(name.startswith("access-control") for name in preflight.headers)


def test_every_answer_forbids_to_run_or_keep_what_is_in_it() -> None:
    with served(hint, team()) as server:
        for answer in (server.chat("?"), server.chat("?", stream=True), server.chat(""), server.get("/nowhere")):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert "server" not in answer.headers


def test_a_body_that_is_too_large_is_refused_whether_it_tells_its_size_or_not() -> None:
    with served(hint, team(), body_bytes=1000) as server:
        told = server.chat("x" * 2000)
        assert (told.status, told.error) == (413, "body_too_large")
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        untold = _sent(server, f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", 2000)
    assert untold.startswith(b"HTTP/1.1 413")


def test_a_client_that_leaves_within_its_own_request_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    with served(hint, team()) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as line:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert until(lambda: b'chat/completions",status="499"} 1.0' in server.get("/metrics").raw)
    assert not caplog.records


def _sent(server: Served, head: str, size: int) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as line:
        line.sendall(head.encode() + f"{size:x}\r\n".encode() + b"x" * size + b"\r\n")
        return line.recv(65536)


def test_who_asks_too_often_is_told_when_to_come_back_and_others_are_not_kept_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic=lambda: 100.0))
    with served(hint, team(), keys=hashes(KEY, "another-key-than-mine"), requests_per_minute=6) as server:
        mine, other = {"Authorization": f"Bearer {KEY}"}, {"Authorization": "Bearer another-key-than-mine"}
        assert server.get("/v1/models", **mine).status == 200
        refused = server.get("/v1/models", **mine)
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (429, "rate_limit_exceeded", "10")
        assert refused.json["error"]["retry_after"] == 10
        assert server.get("/v1/models", **other).status == 200
        assert [server.get("/v1/models").status for _ in range(2)] == [401, 429]  # nobody guesses keys fast


def test_the_rates_of_so_many_callers_are_remembered_and_the_one_that_was_away_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(guard, "CALLERS", 2)
    names = [f"the-key-of-caller-{number}" for number in range(3)]
    with served(hint, team(), keys=hashes(*names), requests_per_minute=6) as server:

        def status(caller: int) -> int:
            return server.get("/v1/models", Authorization=f"Bearer {names[caller]}").status

        assert [status(caller) for caller in (0, 1, 0)] == [200, 200, 429]
        assert [status(caller) for caller in (2, 0, 1)] == [200, 429, 200]


def test_nothing_is_written_down_unless_it_is_asked_for(tmp_path: Path) -> None:
    with served(hint, team()) as server:
        server.chat("my secret question")
    record = Journal(tmp_path / "journal")
    with served(hint, team(), trainee="collaborator", record=record) as server:
        server.chat("keep this question", seed=3)
        server.chat("keep this question", seed=3)
        counted = server.get("/metrics").raw.decode()
    assert 'tokens_total{kind="completion",member="actor"} 1.0' in counted, "from the record: nobody was asked again"
    [episode] = record.episodes()
    assert episode.scope.startswith("serve/")
    assert episode.scope.endswith("/3")
    assert episode.answer == "4"
    assert "keep this question" in episode.turns[0].turn.messages[-1]["content"]
    record.close()


def test_counters_hold_no_word_of_a_client() -> None:
    with served(hint, team()) as server:
        server.chat("my secret question", model="a-made-up-model")
        server.get("/a/made/up/path")
        server.chat("my secret question")
        page = server.get("/metrics").raw.decode()
    assert 'pilotfish_requests_total{path="/v1/chat/completions",status="200"} 1.0' in page
    assert 'pilotfish_requests_total{path="/v1/chat/completions",status="404"} 1.0' in page
    assert 'pilotfish_requests_total{path="other",status="404"} 1.0' in page
    assert 'pilotfish_tokens_total{kind="completion",member="actor"} 1.0' in page
    assert "pilotfish_episodes_playing 0.0" in page
    assert "secret" not in page
    assert "made" not in page
