"""A member as a recipe seats it: which model, behind which engine, how it is sampled, what it costs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pilotfish.model import Model
from pilotfish.team import Price, Sampling

USER = re.compile(r"(\w+://)?[^/?#]*@")
KEY = re.compile(r"(key|token|secret|password|signature|sig)$|^code$", re.IGNORECASE)
"""Names of a query's fields that hold a key."""
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*|[A-Za-z_]+")
"""Names of environment variables; a key has small letters and digits."""


def key_in(base_url: str) -> str:
    """What of an address opens the server, without its value; empty where nothing does."""
    if USER.match(base_url):
        return "a user or a password"
    fields = (name for name, _ in parse_qsl(base_url.partition("?")[2], keep_blank_values=True))
    return next((f"a key in its query ({name}=…)" for name in fields if KEY.search(name)), "")


def names_variable(name: Any) -> bool:
    """Whether a text may name an environment variable; else it is taken for a key, and must not be repeated."""
    return isinstance(name, str) and (VARIABLE.fullmatch(name) is not None or name in os.environ)


def _variable(name: Any) -> Any:
    if not names_variable(name):
        raise ValueError("names no environment variable; export the key, and give the variable's name")
    return name


Variable = Annotated[str, BeforeValidator(_variable)]
"""The name of an environment variable with a key. A recipe is written into its run's folder, so it holds no key."""


class LoraConfig(Model):
    """A low-rank adapter in place of full weights."""

    rank: int = Field(default=16, ge=1)
    """Columns of each of the two factors."""
    alpha: int = Field(default=32, ge=1)
    """The product of the factors is scaled by alpha / rank."""
    layers: int | None = Field(default=None, ge=1)
    """Adapt only the last so many layers: the backward pass then ends there. All layers by default."""
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the modules that get an adapter."""


class VllmConfig(Model):
    """How `engine: vllm` serves a member: what the run gives to `vllm serve`."""

    port: int | None = Field(default=None, ge=1, le=65535)
    """Where it listens, on this machine alone; a free port by default."""
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Its GPUs, counted as in `device: cuda:1`; by default the first ones."""
    memory: float = Field(default=0.3, gt=0, lt=1)
    """The share of each of these GPUs that it takes, weights included; 0.9 where it has them to itself."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that one copy of the weights is spread over."""
    data_parallel: int = Field(default=1, ge=1)
    """Copies of the weights, each on GPUs of its own."""
    args: tuple[str, ...] = ()
    """Further arguments, such as `[--max-model-len, 4096]`."""
    startup_s: float = Field(default=600.0, gt=0)
    """Seconds until it must be ready; a first start also fetches the model."""

    @field_validator("args", mode="before")
    @classmethod
    def _numbers_too(cls, value: Any) -> Any:
        return [str(part) for part in value] if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _fits(self) -> VllmConfig:
        needed = self.tensor_parallel * self.data_parallel
        if len(set(self.gpus)) != len(self.gpus):
            raise ValueError(f"gpus {list(self.gpus)} names one twice")
        if self.gpus and len(self.gpus) != needed:
            raise ValueError(
                f"gpus {list(self.gpus)} are {len(self.gpus)}, and tensor_parallel x data_parallel is {needed}; make "
                "them agree"
            )
        for arg in self.args:
            if field := _OWN_ARGUMENTS.get(arg.partition("=")[0].replace("_", "-")):
                raise ValueError(f"args: {arg} is set by {field}")
        return self

    @property
    def places(self) -> tuple[int, ...]:
        """The GPUs that it takes a share of."""
        return self.gpus or tuple(range(self.tensor_parallel * self.data_parallel))


_OWN_ARGUMENTS = {
    "--host": "the run: it serves this machine alone",
    "--port": "vllm.port",
    "-p": "vllm.port",
    "--gpu-memory-utilization": "vllm.memory",
    "--tensor-parallel-size": "vllm.tensor_parallel",
    "-tp": "vllm.tensor_parallel",
    "--data-parallel-size": "vllm.data_parallel",
    "-dp": "vllm.data_parallel",
    "--revision": "the member's revision",
    "--dtype": "the member's dtype",
    "--model": "the member's model",
    "--served-model-name": "the member's model",
    "--trust-remote-code": "the member's trust_remote_code",
    "--api-key": "nobody: a server of this run needs no key",
}
"""Arguments of `vllm serve` that fields stand for, and which."""


HANDLING = frozenset(
    (
        "base_url",
        "key_env",
        "timeout_s",
        "retries",
        "concurrency",
        "requests_per_minute",
        "tokens_per_minute",
        "hedge_after_s",
        "price",
    )
)
"""Fields that say how a member is reached and what it is paid: no answer depends on them."""


class MemberConfig(Model):
    """A seat: which model, behind which engine."""

    model: str = Field(min_length=1)
    """A Hugging Face name or folder, a `.gguf` file, `smollm2` (the embedded one), or the name an API knows."""
    engine: Literal["transformers", "openai", "vllm", "reward"] = "transformers"
    """`transformers` runs in process; `openai` is any OpenAI-compatible server; `vllm` is one started for the run, and
    of a trainee it speaks for the weights that are trained in process; `reward` is a sequence classifier in process,
    for the verifier `reward_model`."""
    train: Literal["full", "lora"] | LoraConfig | None = None
    """Makes this member the trainee: `full`, `lora`, or a LoRA's settings. Exactly one member has it."""
    revision: str | None = None
    """The model's revision, on the hub or as declared for an API; part of the name under which answers are kept."""
    sampling: Sampling = Sampling(temperature=0.0)
    """How it is asked; greedy unless `temperature` is given. A trainee is sampled at `train.temperature` to learn."""
    price: Price = Price()
    """Money per million tokens."""
    base_url: str | tuple[str, ...] | None = None
    """Of an `openai` engine: the address that ends in `/v1`, or several; the least loaded is asked."""
    key_env: Variable | None = None
    """Name of the environment variable that holds the API key."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Seconds one call may take, without the wait for its turn."""
    retries: int = Field(default=6, ge=0)
    """How often a call that did not answer is made again."""
    concurrency: int = Field(default=64, ge=1)
    """Most calls in flight at each address of a server; fewer while it says that it is overloaded."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """Most calls a minute at an `openai` engine, retries included."""
    tokens_per_minute: float | None = Field(default=None, gt=0)
    """Most tokens a minute, of prompts and answers; a call counts with all its `max_tokens` until it is answered."""
    hedge_after_s: float | None = Field(default=None, gt=0)
    """After so many seconds a call is made a second time, at another address if there is one; the first answer wins."""
    form: Literal["chat", "completions"] = "chat"
    """What an `openai` engine is sent: messages, or one prompt of their texts for a model without a chat template."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields for the body of each request."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """In process: bfloat16 where the processor has it. With `vllm`: `auto` is as the weights are stored."""
    device: str = "auto"
    """In process: `cuda`, `cuda:1`, `cpu`. Of a trainee with `engine: vllm`: where its weights are trained."""
    memory: float = Field(default=0.3, gt=0, lt=1)
    """In process on a GPU: the share of what is free that its cache takes when it starts; less for teams of many."""
    trust_remote_code: bool = False
    """Run code that the model's repository ships. Only for repositories you have read."""
    vllm: VllmConfig | None = None
    """Of a `vllm` engine: how it is served."""

    @field_validator("sampling", mode="before")
    @classmethod
    def _greedy(cls, value: Any) -> Any:
        return {"temperature": 0.0, **value} if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _engine_fits(self) -> MemberConfig:
        if self.engine == "openai" and not self.addresses:
            raise ValueError("engine openai: base_url is missing; give the address that ends in /v1")
        for url in self.addresses:
            if found := key_in(url):
                raise ValueError(f"base_url carries {found}; put the key into a variable and name that in key_env")
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"base_url {url!r} is no address; it begins with http:// or https://")
            try:
                _ = urlsplit(url).port
            except ValueError as error:
                raise ValueError(f"base_url {url!r} is no address: {error}; a port is a number up to 65535") from None
            _check_end(url)
        if self.engine == "openai" and self.train:
            raise ValueError("engine openai: a model behind an API cannot be trained; use engine transformers")
        if self.engine == "reward" and self.train:
            raise ValueError("engine reward: a reward model scores and is not trained; leave `train` out")
        self._vllm_fits()
        return self

    def _vllm_fits(self) -> None:
        if self.engine != "vllm":
            if self.vllm is not None:
                raise ValueError(f"engine {self.engine}: vllm is given; add `engine: vllm` or leave it out")
            return
        if self.base_url or self.key_env:
            name = "base_url" if self.base_url else "key_env"
            raise ValueError(f"engine vllm: it starts a server of its own; leave {name} out, or use engine openai")
        if self.model.endswith(".gguf"):
            raise ValueError(f"engine vllm: {self.model} is for engine transformers; name a hub model or a folder")
        in_process = {"memory": "vllm.memory"} if self.train else {"memory": "vllm.memory", "device": "vllm.gpus"}
        for name, other in in_process.items():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"engine vllm: {name} is for a member in process; set {other}")

    @property
    def in_process(self) -> bool:
        """Whether its weights are loaded here."""
        return self.engine in ("transformers", "reward")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where its servers are, one or several."""
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url or ()

    @property
    def served(self) -> VllmConfig:
        """How a `vllm` engine serves it."""
        return self.vllm or VllmConfig()

    @property
    def server(self) -> tuple[Hashable, ...]:
        """Tells servers of a `vllm` engine apart; members with the same one share it."""
        return (self.model, self.revision, self.dtype, self.trust_remote_code, self.served)

    def changed(self, changes: Mapping[str, Any]) -> MemberConfig:
        """The member with some fields changed; of `sampling`, `price` and `extra` only what is named.

        Raises:
            ValidationError: a field that is wrong.
        """
        fields = self.model_dump(exclude_unset=True)
        for name, value in changes.items():
            whole = not (isinstance(value, Mapping) and isinstance(fields.get(name), Mapping))
            fields[name] = value if whole else {**fields[name], **value}
        return MemberConfig.model_validate(fields)

    def handled_as(self, other: MemberConfig) -> MemberConfig:
        """The member, reached and paid as another one is."""
        return self.model_copy(update={name: getattr(other, name) for name in HANDLING})

    @property
    def deployment(self) -> str:
        """What answers: the model's declared name and revision, and how requests to it differ from the usual."""
        name = f"{self.model}@{self.revision}" if self.revision else self.model
        extra = json.dumps(self.extra, sort_keys=True) if self.extra else ""
        return " ".join(part for part in (name, self.form if self.form != "chat" else "", extra) if part)

    @property
    def lora(self) -> LoraConfig | None:
        return LoraConfig() if self.train == "lora" else self.train if isinstance(self.train, LoraConfig) else None


def _check_end(url: str) -> None:
    """The address of a call is easily copied for that of the server.

    Raises:
        ValueError: it is one.
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for end in ("/chat/completions", "/completions"):
        if path.endswith(end):
            base = path.removesuffix(end) or "/v1"
            raise ValueError(
                f"base_url for {parts.netloc} ends in {end}, which each call adds itself; let it end in {base}"
            )
