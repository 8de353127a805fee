"""Making an `openai` engine: what is refused before anything is asked, and what names the deployment."""

from __future__ import annotations

import subprocess
import sys
import traceback
from typing import Any

import pytest

from pilotfish.engine.base import Refused
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.seats import Seats


def test_a_missing_key_is_refused_by_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOCK_KEY", raising=False)
    with pytest.raises(Refused, match=r"no key in \$MOCK_KEY; export it or set key_env"):
        OpenAIEngine(model="mock", base_url="http://localhost/v1", key_env="MOCK_KEY")


def test_a_recipe_without_a_key_names_the_member_that_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTOR_KEY", raising=False)
    actor = {"engine": "openai", "model": "toy", "base_url": "http://localhost/v1", "key_env": "ACTOR_KEY"}
    with pytest.raises(Refused) as error:
        Seats(parse_recipe({"team": {"actor": actor}, "topology": "solo"})).engine("actor")
    assert str(error.value) == "actor: no key in $ACTOR_KEY; export it or set key_env"


def test_a_key_that_no_header_carries_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_KEY", "sk-two\nlines")
    with pytest.raises(Refused, match=r"\$MOCK_KEY holds characters") as refused:
        OpenAIEngine(model="mock", base_url="http://localhost/v1", key_env="MOCK_KEY")
    assert "lines" not in str(refused.value)


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://me:hunter2@host/v1"])
def test_a_base_url_that_cannot_be_used_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="base_url") as error:
        OpenAIEngine(model="mock", base_url=url)
    assert "hunter2" not in str(error.value)


def test_identity_is_the_declared_deployment_whatever_the_endpoint() -> None:
    def identity(**options: Any) -> str:
        return OpenAIEngine(**{"model": "qwen", "base_url": "http://a/v1", **options}).identity

    assert identity() == "qwen"
    assert identity(revision="r1") == identity(revision="r1", base_url="https://b/v1") == "qwen@r1"
    assert identity(base_url=["http://a/v1", "http://b/v1"]) == "qwen"
    thinking, not_thinking = (identity(revision="r1", extra={"enable_thinking": on}) for on in (True, False))
    assert thinking != not_thinking
    assert thinking.startswith("qwen@r1#")


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"retries": -1},
        {"timeout_s": 0.0},
        {"requests_per_minute": 0},
        {"tokens_per_minute": -5},
        {"hedge_after_s": 0.0},
    ],
)
def test_limits_that_make_no_sense_are_named(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        OpenAIEngine(model="mock", base_url="http://localhost/v1", **options)


def test_no_address_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="base_url is an empty list"):
        OpenAIEngine(model="mock", base_url=[])


def test_a_recipe_seats_a_member_on_several_servers_with_its_limits() -> None:
    options = {
        "base_url": ["http://a/v1", "http://b/v1"],
        "form": "completions",
        "requests_per_minute": 60,
        "tokens_per_minute": 9000,
        "hedge_after_s": 2.5,
        "timeout_s": 7.5,
    }
    engine = seats(options).engine("actor")
    assert isinstance(engine, OpenAIEngine)
    assert "http://a/v1/completions, http://b/v1/completions" in repr(engine)
    assert (engine.requests_per_minute, engine.tokens_per_minute) == (60, 9000)
    assert (engine.hedge_after_s, engine.timeout_s) == (2.5, 7.5)


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": ["http://b/v1"]},
        {"form": "completions"},
        {"requests_per_minute": 5},
        {"tokens_per_minute": 5},
        {"hedge_after_s": 5},
        {"timeout_s": 5},
    ],
)
def test_members_share_an_engine_only_if_they_are_asked_alike(change: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"base_url": "http://a/v1"}
    one = seats(plain, other={**plain, **change})
    assert one.engine("actor") is not one.engine("other")
    same = seats(plain, other={"base_url": ["http://a/v1"]})
    assert same.engine("actor") is same.engine("other")


def test_each_address_of_a_member_is_checked() -> None:
    with pytest.raises(RecipeError, match="base_url 'b/v1' is no address"):
        seats({"base_url": ["http://a/v1", "b/v1"]})
    with pytest.raises(RecipeError, match="base_url 'http://a:99999/v1' is no address: Port out of range"):
        seats({"base_url": "http://a:99999/v1"})


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/chat/completions", "ends in /chat/completions, which each call adds itself; let it end in /v1"),
        ("/api/v4/chat/completions/?api-version=2", "ends in /chat/completions, .* let it end in /api/v4"),
        ("/v1/completions", "ends in /completions, .* let it end in /v1"),
        ("/chat/completions", "ends in /chat/completions, .* let it end in /v1"),
    ],
)
def test_the_address_of_a_call_is_no_base_url(path: str, told: str) -> None:
    with pytest.raises(RecipeError, match=rf"base_url for a:8000 {told}"):
        seats({"base_url": f"http://a:8000{path}"})


@pytest.mark.parametrize(
    ("actor", "why"),
    [
        ({"key_env": "sk-hidden-1"}, "key_env: names no environment variable; export the key"),
        ({"key_env": "gsk_hidden1"}, "key_env: names no environment variable; export the key"),
        ({"key_env": 1234}, "key_env: names no environment variable; export the key"),
        ({"base_url": "http://me:hidden@a:99999/v1"}, "base_url carries a user or a password; put the key"),
        ({"base_url": "me:hidden@a/v1"}, "base_url carries a user or a password; put the key"),
        ({"base_url": ["http://a/v1", "http://b/v1?api-key=hidden"]}, r"carries a key in its query \(api-key=…\); put"),
        ({"base_url": "http://a/v1?v=1&accessToken=hidden"}, r"carries a key in its query \(accessToken=…\); put"),
    ],
)
def test_a_key_in_a_recipe_is_refused_and_not_repeated(actor: dict[str, Any], why: str) -> None:
    with pytest.raises(RecipeError, match=why) as refused:
        seats({"base_url": "http://a/v1", **actor})
    shown = "".join(traceback.format_exception(refused.value))
    assert "hidden" not in shown
    assert "1234" not in shown


def test_what_only_looks_like_a_key_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("my_key_2", "sk-1")
    for name in ("ACTOR_KEY", "K2", "actor_key", "my_key_2"):
        seats({"base_url": "http://a/v1/@cf?api-version=2024-06-01", "key_env": name})


def seats(actor: dict[str, Any], **others: dict[str, Any]) -> Seats:
    team = {
        name: {"engine": "openai", "model": "mock", **options} for name, options in {"actor": actor, **others}.items()
    }
    return Seats(parse_recipe({"team": team, "topology": "solo"}))


def test_the_engine_does_not_import_torch() -> None:
    code = "import sys, pilotfish.engine.openai; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
