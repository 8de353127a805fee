"""What a batch's prompts have in common is read once: which beginnings, how many tokens, and what is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from pilotfish.engine.batches import _CPU_TURN, BatchTokens  # noqa: E402
from pilotfish.engine.beginnings import shared  # noqa: E402
from pilotfish.engine.tokens import TokenAnswer  # noqa: E402
from tiny import VOCABULARY, tiny_model  # noqa: E402

Prompt = tuple[int, ...]


def ids(count: int, seed: int) -> Prompt:
    rng = random.Random(seed)
    return tuple(rng.randrange(3, VOCABULARY) for _ in range(count))


def to_read(prompts: Sequence[Prompt], cuts: Sequence[int]) -> int:
    """Tokens that a batch reads, padding included."""
    heads = {prompt[:cut] for prompt, cut in zip(prompts, cuts, strict=True)}
    rest = max(len(prompt) - cut for prompt, cut in zip(prompts, cuts, strict=True))
    return len(heads) * max(cuts) + len(prompts) * rest


def test_rows_of_a_group_share_all_that_their_group_has_in_common() -> None:
    system = ids(10, 0)
    groups = [system + ids(20, 1 + group) for group in range(4)]
    prompts = [group + ids(6, 100 + 8 * n + row) for n, group in enumerate(groups) for row in range(8)]
    random.Random(0).shuffle(prompts)
    assert shared(prompts) == [30] * 32


def test_rows_with_nothing_but_a_system_prompt_in_common_share_that() -> None:
    prompts = [ids(40, 0) + ids(20, 1 + row) for row in range(16)]
    assert shared(prompts) == [40] * 16


def test_equal_prompts_leave_only_their_last_token() -> None:
    assert shared([ids(30, 0), ids(30, 1), ids(30, 0), ids(30, 1)]) == [29] * 4


def test_a_prompt_that_is_alone_begins_with_as_much_as_the_others_share() -> None:
    group = ids(30, 0)
    prompts = [*(group + ids(5, 1 + row) for row in range(7)), ids(33, 50), ids(12, 51)]
    assert shared(prompts) == [30] * 7 + [30, 11]


@pytest.mark.parametrize(
    "prompts",
    [
        [ids(30, 0)],
        [ids(30, 0), ids(30, 1), ids(30, 2)],
        [(5,), (5,), (5,)],
        [ids(5, 0) + ids(25, row) for row in range(1, 9)],
        [ids(31, 0), ids(30, 0) + ids(1, 50), *(ids(31, 1 + row) for row in range(8))],
    ],
    ids=["one prompt", "nothing in common", "one token each", "too little in common", "too few that share"],
)
def test_nothing_is_read_apart_where_it_saves_little(prompts: list[Prompt]) -> None:
    assert shared(prompts) == [0] * len(prompts)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), min_size=1, max_size=12))
def test_what_is_read_apart_saves_a_quarter_and_leaves_each_prompt_a_token(prompts: list[Prompt]) -> None:
    cuts = shared(prompts)
    assert all(0 <= cut < len(prompt) for prompt, cut in zip(prompts, cuts, strict=True))
    if any(cuts):
        assert to_read(prompts, cuts) <= 0.75 * len(prompts) * max(map(len, prompts))


def answered(model: Any, prompts: Sequence[Prompt], temperature: float, first: int = 0) -> list[TokenAnswer]:
    """The answers of one batch. A row's number, from `first` on, is its seed and says how long it may be."""

    async def scenario() -> list[TokenAnswer]:
        engine = BatchTokens(model)
        with _CPU_TURN:  # no batch begins before all calls stand in line
            calls = [engine.complete(row, 3 + i % 9, temperature, i) for i, row in enumerate(prompts, first)]
            begun = [asyncio.create_task(call) for call in calls]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*begun)
        await engine.close()
        return answers

    return asyncio.run(scenario())


def ragged() -> list[Prompt]:
    """Three groups whose beginnings and ends are of several lengths, and three prompts that stand alone."""
    groups = [ids(9, 0) + ids(14 + 5 * group, 1 + group) for group in range(3)]
    prompts = [group + ids(1 + (5 * row) % 7, 20 + row) for group in groups for row in range(6)]
    return [*prompts, ids(20, 60), ids(3, 61), (9,)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_answers_are_those_of_whole_prompts(temperature: float) -> None:
    model, prompts = tiny_model(0), ragged()
    assert any(shared(prompts))
    for prompt, answer in zip(prompts, answered(tiny_model(0), prompts, temperature), strict=True):
        whole = torch.tensor([[*prompt, *answer.token_ids]])
        with torch.no_grad():
            logits = model(whole).logits[0, len(prompt) - 1 : -1] / (temperature or 1.0)
        logs, said = logits.log_softmax(-1), torch.tensor(answer.token_ids)
        torch.testing.assert_close(
            torch.tensor(answer.logprobs), logs.gather(-1, said[:, None])[:, 0], rtol=0, atol=2e-4
        )
        if temperature == 0:
            assert answer.token_ids == tuple(logs.argmax(-1).tolist())


def test_a_row_says_the_same_alone_and_beside_rows_that_begin_like_it() -> None:
    prompts = ragged()
    together = answered(tiny_model(0), prompts, 1.0)
    alone = [answered(tiny_model(0), [prompt], 1.0, i)[0] for i, prompt in enumerate(prompts)]
    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]


def test_each_beginning_is_read_once() -> None:
    model = tiny_model(0)
    read: list[tuple[int, ...]] = []
    real = model.model.forward

    def forward(*args: Any, **options: Any) -> Any:
        read.append(tuple(options["input_ids"].shape))
        return real(*args, **options)

    model.model.forward = forward  # type: ignore[method-assign]
    prompts = [ids(20, group) + ids(4, 10 + row) for group in range(2) for row in range(6)]
    answered(model, prompts, 0.0)
    assert read[:3] == [(2, 20), (12, 4), (12, 1)]
