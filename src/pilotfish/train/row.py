"""A row: one sample of a decision, as it is trained on, and the id of the group that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotfish.episode import Episode


@dataclass(frozen=True, slots=True)
class RowId:
    """What a group of rows trains: a decision of the trainee on a task, over one stored set of answers, in one of the
    topologies that are mixed."""

    task: str
    set: int = 0
    decision: int = 0
    topology: int = 0
    """Its place in the recipe: 0 is `topology`, 1 and up those of `mix`."""

    def __str__(self) -> str:
        return f"{self.task}|{self.set}|{self.decision}|{self.topology}"

    @classmethod
    def parse(cls, text: str) -> RowId:
        task, *numbers = text.rsplit("|", 3)
        return cls(task, *map(int, numbers))

    @property
    def stand(self) -> tuple[str, int, int]:
        """What the decisions of one episode have in common."""
        return self.task, self.set, self.topology


@dataclass(frozen=True, slots=True)
class Row:
    """One sample of a decision: what the engine saw and said, and what it was worth."""

    id: RowId
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    reward: float | None
    trained: bool = True
    """False for a row whose decision was never reached: nobody said anything."""
    text: str = ""
    form: str = "free"
    """In which the trainee is to answer."""
    episodes: tuple[Episode, ...] = field(default=())
    silent: Episode | None = None
    """The same episode with the trainee silent from this decision on, where the reward is compared with it."""

    @property
    def played(self) -> tuple[Episode, ...]:
        """All that was played for it."""
        return (*self.episodes, self.silent) if self.silent else self.episodes

    @property
    def ended_early(self) -> bool:
        """Whether the topology came to its end without this decision; no outage."""
        return not self.trained and bool(self.episodes) and self.episodes[0].answer is not None

    @property
    def lost(self) -> bool:
        """Whether nobody can say what it was worth: an outage, an answer that could not be judged."""
        return self.reward is None and not (self.ended_early and self.episodes[0].verdict.reward is not None)

    @property
    def learnable(self) -> bool:
        """Whether anything can be learned from it: it was said, and it was judged."""
        return self.trained and self.reward is not None
