"""How a run is served: the recipe's section `serve`. Every field has a limit that holds for strangers too."""

from __future__ import annotations

from ipaddress import ip_address

from pydantic import Field

from pilotfish.member import Variable
from pilotfish.model import Model


class ServeConfig(Model):
    """Where the server listens, who may ask, and how much."""

    host: str = "127.0.0.1"
    """The address that it listens at; any other than this machine's own needs `key_env`."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The port; 0 takes a free one."""
    key_env: Variable | None = None
    """Name of the environment variable with the API keys, blanks between them; a key may stand there as
    `sha256:` and its hash. Without it nobody needs a key."""
    instruction: str | None = None
    """How answers are to be written, for prompts with `{instruction}`; that of the tasks trained on when not given."""
    record: bool = False
    """Write what is asked and answered into the run's journal. Otherwise nothing outlives its request."""
    episodes: int = Field(default=64, ge=1)
    """Most episodes played at once; each of the `n` answers of a request is one."""
    waiting: int = Field(default=256, ge=0)
    """Most requests in line behind them; one more is refused with 503."""
    requests_per_minute: float = Field(default=6000.0, gt=0)
    """Of each key, or of each address where there are no keys; ten seconds' worth may come at once, more get 429."""
    body_bytes: int = Field(default=1_000_000, ge=1)
    """Most bytes in a request."""
    messages: int = Field(default=256, ge=1)
    """Most messages in a conversation."""
    max_tokens: int = Field(default=8192, ge=1)
    """Most tokens that a request may want in its answer; without a wish it is the member's own `max_tokens`."""
    choices: int = Field(default=8, ge=1)
    """Most answers in one request."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Seconds that a request may take, the wait in line included."""
    keep_alive_s: float = Field(default=10.0, gt=0)
    """Seconds of silence after which a stream says that the team is at work."""
    sessions: int = Field(default=64, ge=1)
    """Episodes of `/v1/team/episodes` that are kept for edits; the oldest is forgotten first."""

    @property
    def local(self) -> bool:
        """Whether this machine alone can reach it."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False
