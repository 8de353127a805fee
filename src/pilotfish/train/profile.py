"""How the trainee learns: two named profiles of the GRPO loss, and what may be changed in them.

`paper` is the seed's formula: per-sequence mean, symmetric clip, KL to the reference with beta above 0. `release` is
what the released code of AgentPO runs: token mean, clip 0.2/0.28, dual clip 10, no KL, 192 rows and three updates a
step. docs/training.md gives the mapping to TRL's fields.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Number = Annotated[int, Field(ge=0)]
"""Of a decision or a round, from 0."""
WORDS = ("first", "last", "all")
"""That stand for a topology's decisions."""

PROFILES: dict[str, dict[str, Any]] = {
    "release": {
        "loss": "dapo",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "dual_clip": 10.0,
        "beta": 0.0,
        "updates_per_step": 3,
    },
    "paper": {
        "loss": "grpo",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "dual_clip": None,
        "beta": 0.04,
        "updates_per_step": 1,
    },
}


def _check_division(batch: int, micro_batch: int | None) -> None:
    if micro_batch and batch % micro_batch:
        raise ValueError(f"micro_batch = {micro_batch} does not divide batch = {batch}; change one of the two")


class RewardConfig(BaseModel):
    """Terms added to the 0/1 reward of the team's answer; off by default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    format: float = 0.0
    """Added when the trainee's words are complete: not empty, not cut off at the token limit, and, where they are to
    hold `<think>` and `<answer>`, in that form."""
    length: float = Field(default=0.0, ge=0.0)
    """Taken off a right answer's reward in proportion to the trainee's tokens: this much at its token limit."""
    leak: float = Field(default=0.0, ge=0.0)
    """Taken off when the trainee's words already hold a gold answer. For those who advise; where the trainee answers
    itself it would punish right answers."""
    counterfactual: float = Field(default=0.0, ge=0.0)
    """Taken off: so many times what the same episode was worth with the trainee silent from the decision on. With
    `credit: episode`; it is played anew for each row, but for the first decision."""


class SftConfig(BaseModel):
    """Learning from worked solutions: how the lab makes its members."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    method: Literal["sft"]
    """Imitation of the last message of each row."""
    data: str
    """`lab:MEMBER`, `lab:MEMBER/FAMILY`, or a JSONL file of `{"messages": […]}` rows."""
    steps: int = Field(default=200, ge=1)
    """Optimizer updates."""
    batch: int = Field(default=128, ge=1)
    """Rows an update."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Rows in one forward and backward pass; `batch` when not given."""
    learning_rate: float = Field(default=5e-4, gt=0)
    """The highest; warmed up over 5 % of the steps, then down to 0 along a cosine."""
    max_length: int = Field(default=4096, ge=1)
    """Most tokens of prompt and answer together; longer rows are left out, and counted."""
    gradient_checkpointing: bool = False
    """Compute activations twice to save memory."""

    @model_validator(mode="after")
    def _divides(self) -> SftConfig:
        _check_division(self.batch, self.micro_batch)
        return self


class BacktrackConfig(BaseModel):
    """Learning to notice an error and recover (MLPO's first stage): chains that start wrong and end right."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    method: Literal["backtrack"]
    """Imitation of chains that the untrained leader wrote and the verifier passed."""
    samples: int = Field(default=16, ge=2)
    """Answers of the untrained leader to a task, spread over its stored sets."""
    temperature: float = Field(default=1.0, gt=0)
    """At which it is sampled."""
    chains: Literal["asked", "spliced"] = "asked"
    """`asked`: the leader is shown a wrong and a right answer of its own and asked for the chain; `spliced`: the two
    are joined by a sentence, for leaders too weak to write one."""
    per_task: int = Field(default=1, ge=1)
    """Chains a task, each of another pair of a wrong and a right answer."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the chains."""
    batch: int = Field(default=32, ge=1)
    """Rows an update."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Rows in one forward and backward pass; `batch` when not given."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """The highest; warmed up over 5 % of the steps, then down to 0 along a cosine."""
    max_length: int = Field(default=4096, ge=1)
    """Most tokens of prompt and chain together; longer rows are left out, and counted."""
    gradient_checkpointing: bool = False
    """Compute activations twice to save memory."""

    @model_validator(mode="after")
    def _divides(self) -> BacktrackConfig:
        _check_division(self.batch, self.micro_batch)
        return self


class CollectStage(BaseModel):
    """Recording the agents' answers, so that training asks nobody."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    method: Literal["collect"]
    """Asks the agents, and with `rounds` above 0 the leader as it is at this stage."""
    rounds: tuple[Number, ...] = Field(default=(0,), min_length=1)
    """Which answers: 0 the agents' own, 1 and up those that the leader has shaped (MLPO+)."""
    temperature: float = Field(default=1.0, gt=0)
    """At which the leader is sampled in the rounds that shape them."""


class TrainConfig(BaseModel):
    """How the trainee learns with GRPO. Fields left out come from the profile."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    method: Literal["grpo"] = "grpo"
    """On the reward of the team's final answer."""
    profile: Literal["release", "paper"] = "release"
    """Where the fields of the loss come from that are left out: see [Profiles](#profiles-of-the-loss)."""
    loss: Literal["dapo", "grpo", "dr_grpo"] = "dapo"
    """`dapo`: mean over all tokens of an update; `grpo`: mean over each row's tokens, then over rows; `dr_grpo`: sum
    over tokens divided by rows x the token limit."""
    clip_low: float = Field(default=0.2, gt=0)
    """See `clip_high`."""
    clip_high: float = Field(default=0.28, gt=0)
    """The ratio of new to old probability is clipped to [1 - clip_low, 1 + clip_high]."""
    dual_clip: float | None = Field(default=10.0, gt=1)
    """Upper bound of the ratio where the advantage is negative; null for none."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL to the weights before training."""
    normalise: Literal["group", "none"] = "group"
    """Divide advantages by the group's standard deviation, or not (Dr. GRPO)."""
    group_size: int = Field(default=16, ge=2)
    """Rows of one task in a step: G."""
    tasks_per_step: int = Field(default=12, ge=1)
    """Groups in a step."""
    updates_per_step: int = Field(default=3, ge=1)
    """Optimizer updates made of one step's rows."""
    micro_batch: int = Field(default=16, ge=1)
    """Rows in one forward and backward pass on one device; fewer where one of several processes has fewer of them."""
    steps: int | None = Field(default=None, ge=1)
    """Steps to take; overrides `epochs`."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the training tasks."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """Of AdamW, once it is warmed up."""
    warmup_steps: int = Field(default=10, ge=0)
    """Optimizer updates over which the learning rate rises; constant after."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Of AdamW."""
    max_grad_norm: float = Field(default=1.0, gt=0, allow_inf_nan=True)
    """Longer gradients are cut to this length; `.inf` cuts none."""
    temperature: float = Field(default=1.0, gt=0)
    """At which the trainee is sampled while it learns."""
    decision: Literal["first", "last", "all"] | Number | tuple[Number, ...] = 0
    """Which of the trainee's turns in an episode are trained, by number from 0 or by word; of several, each makes
    groups of its own."""
    credit: Literal["decision", "episode"] = "decision"
    """What the rows of a group are: episodes that are equal up to the decision and go apart there, or `episode`, whole
    episodes, so that all decisions of one have the same advantage."""
    prefix: Literal["fresh", "stored", "shaped"] = "fresh"
    """What stands before the trained turn: `fresh`, played anew at each step; `stored`, of the frozen members once and
    used again; `shaped`, also the earlier turns of the trainee's seat, which another leader took (MLPO+)."""
    sets: int | None = Field(default=None, ge=1)
    """Stored sets of answers a task; each makes groups of its own. `collect.sets` when not given."""
    set_order: Literal["mixed", "by_set", "by_task", "easy_first", "hard_first"] = "mixed"
    """In which order an epoch goes through tasks and sets: drawn; one set of every task after the other; a task's sets
    one behind the other; by the share of right answers in a set."""
    horizon: Literal["episode", "decision"] = "episode"
    """What the reward judges: the team's answer at the end, or the trained turn itself as the answer (MLPO)."""
    answers: int = Field(default=1, ge=1)
    """The reward is the mean over so many answers of the team to the same words of the trainee."""
    reward: RewardConfig = RewardConfig()
    """Terms added to the reward."""
    evaluate_every: int = Field(default=10, ge=1)
    """Steps between evaluations on the holdout."""
    save_every: int = Field(default=10, ge=1)
    """Steps between checkpoints to resume from."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many holdout evaluations without a new best; needs `tasks.holdout` above 0."""
    outages: float = Field(default=0.5, gt=0, le=1)
    """Stop the run when more than this share of a step's rows has no verdict."""
    gradient_checkpointing: bool = False
    """Compute activations twice to save memory."""
    report_to: tuple[str, ...] = ()
    """Trackers that TRL knows: `trackio`, `wandb`, `tensorboard`."""

    @field_validator("decision", mode="before")
    @classmethod
    def _names_decisions(cls, value: Any) -> Any:
        numbers = value if isinstance(value, list | tuple) else [value]
        if value in WORDS or all(type(number) is int and number >= 0 for number in numbers):
            return value
        raise ValueError(f"{value!r} names no decision; give a number from 0, several ([0, 2]), or {', '.join(WORDS)}")

    @model_validator(mode="before")
    @classmethod
    def _from_profile(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {**PROFILES.get(data.get("profile", "release"), {}), **data}

    @model_validator(mode="after")
    def _adds_up(self) -> TrainConfig:
        rows = self.group_size * self.tasks_per_step
        if rows % (self.updates_per_step * self.micro_batch):
            raise ValueError(
                f"group_size x tasks_per_step = {rows} rows a step do not divide into updates_per_step = "
                f"{self.updates_per_step} x micro_batch = {self.micro_batch}; change one of the four"
            )
        if self.prefix == "fresh" and ((self.sets or 1) > 1 or self.set_order != "mixed"):
            raise ValueError("sets and set_order are of stored answers; add `prefix: stored`")
        numbers = self.numbers
        if self.prefix == "shaped" and min(numbers or (), default=0) < 1:
            raise ValueError(
                f"prefix shaped, and decision is {self.decision}: the first decision stands on no shaped answers; name "
                "those to train by number, from 1"
            )
        if numbers is not None and (not numbers or len(set(numbers)) < len(numbers)):
            raise ValueError(f"decision is {list(numbers)}; name at least one, each once")
        self._check_credit()
        return self

    def _check_credit(self) -> None:
        if self.reward.leak and self.horizon == "decision":
            raise ValueError("reward.leak punishes right answers where the decision is the answer (horizon: decision)")
        if self.credit == "decision" and self.reward.counterfactual:
            raise ValueError(
                "reward.counterfactual would cancel: the rows of a group share all that comes before the decision, so "
                "it is the same for each; add `credit: episode`"
            )
        if self.credit == "episode" and (self.prefix == "shaped" or self.horizon == "decision" or self.answers > 1):
            raise ValueError(
                "credit episode: whole episodes by the weights as they are, judged at their end, once; leave out "
                "`prefix: shaped`, `horizon: decision` and `answers`, or `credit`"
            )

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The trained decisions; None where it depends on the topology which they are (see `train.decisions`)."""
        if isinstance(self.decision, str):
            return (0,) if self.decision == "first" else None
        return (self.decision,) if isinstance(self.decision, int) else self.decision

    @property
    def rows_per_step(self) -> int:
        return self.group_size * self.tasks_per_step


def passes(config: TrainConfig, processes: int) -> tuple[int, int]:
    """Rows of a forward and backward pass of one process, and how many of these a step has.

    Raises:
        ValueError: the rows of a step do not divide among so many processes; names the next `tasks_per_step` that does.
    """
    if config.tasks_per_step % processes:
        raise ValueError(
            f"train.tasks_per_step is {config.tasks_per_step} and there are {processes} processes: groups of "
            f"{config.group_size} would straddle them; set tasks_per_step to {_dividing(config, processes)}"
        )
    mine = config.rows_per_step // processes
    if mine % config.updates_per_step:
        raise ValueError(
            f"{config.rows_per_step} rows a step do not divide into {config.updates_per_step} updates x {processes} "
            f"processes; set train.tasks_per_step to {_dividing(config, processes)}, change updates_per_step, or start "
            "fewer"
        )
    rows = fitting(config.micro_batch, mine // config.updates_per_step)
    return rows, mine // rows


def _dividing(config: TrainConfig, processes: int) -> int:
    """The next larger `tasks_per_step` that a recipe may have and so many processes can divide."""
    parts = (config.updates_per_step * config.micro_batch, processes * config.updates_per_step)
    step = math.lcm(processes, *(part // math.gcd(part, config.group_size) for part in parts))
    return step * (config.tasks_per_step // step + 1)


def fitting(micro_batch: int, rows: int) -> int:
    """The largest part of so many rows, at most `micro_batch`, that they are a multiple of."""
    return next(size for size in range(min(micro_batch, rows), 0, -1) if rows % size == 0)


def steps(config: TrainConfig, groups: int) -> int:
    """Steps of a training: `steps`, or as many as the epochs hold; an incomplete last one is left out.

    Args:
        config: the recipe's `train`.
        groups: in an epoch: tasks x sets x decisions.

    Raises:
        ValueError: fewer groups than one step takes.
    """
    total = config.steps or int(config.epochs * (groups // config.tasks_per_step))
    if groups < config.tasks_per_step or not total:
        raise ValueError(
            f"train: {groups} groups (tasks x sets x decisions) x {config.epochs} epochs do not fill one step of "
            f"tasks_per_step = {config.tasks_per_step}; lower it, add tasks, or raise epochs"
        )
    return total
