"""The members of a draft: the actor that the user has, the collaborator that learns, a judge where one is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pilotfish.engine.embedded import NAME as EMBEDDED
from pilotfish.member import key_in, names_variable
from pilotfish.missing import here
from pilotfish.recipe import RecipeError

WITH_GPU = "Qwen/Qwen2.5-1.5B-Instruct"
"""Who learns where there is a GPU and nobody is named."""
TOPOLOGIES = ("hint", "critic")
HINT_TOKENS = 128
"""A collaborator's limit."""
JUDGE_TOKENS = 512
"""A judge's: two or three sentences and a score."""
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
MODEL_FILES = ("config.json", "adapter_config.json")


def actor(
    model: str,
    *,
    base_url: str | None = None,
    key_env: str | None = None,
    price: tuple[float, float] = (0.0, 0.0),
    max_tokens: int,
) -> dict[str, Any]:
    """The actor's seat.

    Args:
        model: a folder, a hub name, or with an address the name that the server knows.
        base_url: the address that ends in `/v1`.
        key_env: the environment variable that holds the key.
        price: per million tokens of prompts and of answers.
        max_tokens: of an answer.

    Raises:
        RecipeError: a model in process that is none, or a key where the name of a variable belongs.
    """
    sampling = {"temperature": 0.0, "max_tokens": max_tokens}
    paid = {"price": {"input": price[0], "output": price[1]}} if any(price) else {}
    if base_url is None:
        _check_local(model)
        return {"model": model, **paid, "sampling": sampling}
    _check_address(base_url)
    _check_variable(key_env)
    key = {"key_env": key_env} if key_env else {}
    return {"engine": "openai", "model": model, "base_url": base_url, **key, **paid, "sampling": sampling}


def trainee(model: str | None, train: str) -> tuple[dict[str, Any], str]:
    """The collaborator's seat, and why it is this one.

    Args:
        model: a folder or hub name; None for one that suits this machine.
        train: `lora` or `full`.
    """
    chosen, why = (model, "--trainee") if model else _suited()
    _check_local(chosen)
    return {"model": chosen, "train": train, "sampling": {"temperature": 0.0, "max_tokens": HINT_TOKENS}}, why


def judge(model: str | None, actor: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The judge's seat, and why it is this one.

    Args:
        model: of the actor's address, or in process as the actor is; None for the actor's own model.
        actor: the actor's seat.
    """
    if model and "base_url" not in actor:
        _check_local(model)
    why = "--judge" if model else "the actor's own model, lenient with its own words; name another with --judge"
    return {
        **actor,
        "model": model or actor["model"],
        "sampling": {"temperature": 0.0, "max_tokens": JUDGE_TOKENS},
    }, why


def check_key(seat: Mapping[str, Any]) -> None:
    """Make sure that the key is there before anything else is done.

    Raises:
        RecipeError: the variable is not set.
    """
    name = seat.get("key_env")
    if name and not os.environ.get(name):
        raise RecipeError(f"actor: no key in ${name}; export it, or ask nobody with --samples 0")


def known_topology(name: str) -> str:
    """A topology in which a collaborator helps an actor.

    Raises:
        RecipeError: another one.
    """
    if name not in TOPOLOGIES:
        raise RecipeError(
            f"--topology {name}: not one of {', '.join(TOPOLOGIES)}; for another team change the recipe "
            "(docs/topologies.md)"
        )
    return name


def _suited() -> tuple[str, str]:
    try:
        import torch
    except ImportError:
        return EMBEDDED, "no torch here to look for a GPU with; name another with --trainee"
    if torch.cuda.is_available():
        return WITH_GPU, "there is a GPU; name another with --trainee"
    return EMBEDDED, "135M weights, which a processor can train; name a larger one with --trainee"


def _check_local(model: str) -> None:
    place = Path(model).expanduser()
    if place.is_dir() and not any((place / file).is_file() for file in MODEL_FILES):
        raise RecipeError(
            f"{model}: no model, it holds no {MODEL_FILES[0]}; name the folder that does, of a run RUN/best"
        )
    if model != EMBEDDED and not place.exists() and not HUB_NAME.fullmatch(model):
        raise RecipeError(
            f"{model}: no such folder{here(model)} and no OWNER/NAME of a hub; for a model behind an API add --base-url"
        )


def _check_address(base_url: str) -> None:
    if found := key_in(base_url):
        raise RecipeError(f"--base-url: the address carries {found}; export the key, and give --key-env its variable")
    if not base_url.startswith(("http://", "https://")):
        raise RecipeError(f"--base-url {base_url}: no address; it begins with http:// or https://")


def _check_variable(name: str | None) -> None:
    """The name is written into the recipe, so it must be no key; what was given is therefore not repeated either."""
    if name and not names_variable(name):
        raise RecipeError("--key-env: names no environment variable; export the key, and give the variable's name")
