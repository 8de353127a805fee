"""Both token engines on a tiny model: what is drawn, its log-probabilities, how a call ends, what is refused."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from pilotfish.engine.base import CallFailed, Refused  # noqa: E402
from pilotfish.engine.batches import _CPU_TURN, BatchTokens  # noqa: E402
from pilotfish.engine.continuous import CannotServe, ContinuousTokens  # noqa: E402
from pilotfish.engine.draw import draw, fractions  # noqa: E402
from pilotfish.engine.tokens import TokenAnswer, TokenEngine  # noqa: E402
from tiny import VOCABULARY, halted, tiny_model  # noqa: E402
from waiting import until  # noqa: E402

torch.set_num_threads(1)
MODEL = tiny_model(0)
Make = Callable[..., TokenEngine]


def batches(model: Any, **options: Any) -> TokenEngine:
    return BatchTokens(model, **options)


def continuous(model: Any, **options: Any) -> TokenEngine:
    return ContinuousTokens(model, cache_tokens=2048, page=16, nucleus=True, **options)


@pytest.fixture(params=[batches, continuous])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[TokenEngine] = []

    def build(model: Any = None, **options: Any) -> TokenEngine:
        made.append(request.param(tiny_model(0) if model is None else model, **options))
        return made[-1]

    yield build
    for engine in made:
        asyncio.run(engine.close())


def logprobs(model: Any, prompt: list[int], answer: TokenAnswer, temperature: float) -> Any:
    ids = torch.tensor([[*prompt, *answer.token_ids]])
    with torch.no_grad():
        rows = model(ids).logits[0, len(prompt) - 1 : -1].float() / (temperature or 1.0)
    return rows.log_softmax(-1)


def requests(count: int) -> list[dict[str, Any]]:
    rng = random.Random(count)
    prompts = [[rng.randrange(3, VOCABULARY) for _ in range(rng.randrange(1, 40))] for _ in range(count // 2)] * 2
    return [
        {
            "token_ids": prompt,
            "max_new_tokens": rng.randrange(1, 40),
            "temperature": (0.0, 1.0, 0.5, 1.4)[i % 4],
            "seed": rng.getrandbits(63),
            "stop_ids": (2, 7),
        }
        for i, prompt in enumerate(prompts)
    ]


async def together(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """Make calls that all stand in line before batches may take the first of them."""
    with _CPU_TURN:
        begun = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
    return await asyncio.gather(*begun)


async def play(engine: TokenEngine, calls: list[dict[str, Any]]) -> list[TokenAnswer]:
    return await asyncio.gather(*[engine.complete(**call) for call in calls])


def test_log_probabilities_are_those_of_a_forward_pass_and_greedy_is_the_arg_max(make: Make) -> None:
    calls = requests(40)
    for call, answer in zip(calls, asyncio.run(play(make(), calls)), strict=True):
        rows = logprobs(MODEL, call["token_ids"], answer, call["temperature"])
        tokens = torch.tensor(answer.token_ids)
        found = rows.gather(1, tokens[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(answer.logprobs), found, atol=1e-5, rtol=1e-5)
        if call["temperature"] == 0:
            assert rows.argmax(-1).tolist() == tokens.tolist()


def test_a_seed_gives_the_same_answer_alone_and_in_company_and_in_both_engines() -> None:
    calls = requests(30)

    async def compare() -> None:
        one, other = batches(tiny_model(0)), continuous(tiny_model(0))
        together = await play(one, calls)
        assert [a.token_ids for a in await play(other, calls)] == [a.token_ids for a in together]
        for call, answer in list(zip(calls, together, strict=True))[::6]:
            assert (await one.complete(**call)).token_ids == answer.token_ids
            assert (await other.complete(**call)).token_ids == answer.token_ids
        await one.close()
        await other.close()

    asyncio.run(compare())


def test_a_temperature_too_small_to_divide_by_is_0(make: Make) -> None:
    calls = [
        {"token_ids": [5, 6, 7], "max_new_tokens": 6, "temperature": temperature, "seed": 3}
        for temperature in (0.0, 1e-40, 1e-7)
    ]
    zero, *tiny = asyncio.run(play(make(), calls))
    for answer in tiny:
        assert answer.token_ids == zero.token_ids
        assert answer.logprobs == pytest.approx(zero.logprobs, abs=1e-5)


def test_different_seeds_draw_from_the_distribution() -> None:
    prompt, temperature, count = [5, 6, 7], 1.3, 20_000
    with torch.no_grad():
        row = MODEL(torch.tensor([prompt])).logits[0, -1].float()
    places = fractions(range(count), [len(prompt)] * count)
    tokens, _ = draw(row.repeat(count, 1), torch.full((count,), temperature), places)
    expected = (row / temperature).softmax(-1)
    top = expected.topk(15).indices
    found = torch.bincount(tokens, minlength=VOCABULARY)[top]
    chi2 = ((found - count * expected[top]) ** 2 / (count * expected[top])).sum()
    assert chi2 < 45  # 15 cells: beyond the 99.99th percentile


@pytest.mark.parametrize("vocabulary", [200, 256, 257, 1000])
def test_a_token_is_drawn_where_the_probabilities_have_added_up_to_the_fraction(vocabulary: int) -> None:
    logits = 3 * torch.randn(500, vocabulary, generator=torch.Generator().manual_seed(1))
    logits[:, -vocabulary // 3 :] = -math.inf  # nothing is drawn that has no probability
    places = fractions(range(500), range(500))
    places[0], places[1] = 0, 2**31 - 1
    tokens, _ = draw(logits.clone(), torch.ones(500), places)
    reached = logits.double().softmax(-1).cumsum(-1)
    share = (places.double() + 0.5)[:, None] / 2**31
    lower, upper = ((reached < share - slack).sum(-1) for slack in (1e-6, -1e-6))
    assert ((lower <= tokens) & (tokens <= upper)).all()
    assert (lower == upper).float().mean() > 0.9
    assert (tokens < vocabulary - vocabulary // 3).all()


def test_a_token_without_probability_is_never_drawn_and_the_last_one_may_be() -> None:
    logits = torch.full((4, 600), -math.inf)
    logits[0, 300] = logits[1, 599] = logits[2, 0] = logits[3, 256] = 0.0
    for fraction in (0, 2**30, 2**31 - 1):
        tokens, _ = draw(logits.clone(), torch.ones(4), torch.full((4,), fraction, dtype=torch.int32))
        assert tokens.tolist() == [300, 599, 0, 256]


def test_top_p_draws_only_from_the_nucleus_and_reports_the_untruncated_log_probability(make: Make) -> None:
    prompt, top_p = [9, 10, 11], 0.3
    with torch.no_grad():
        probabilities = MODEL(torch.tensor([prompt])).logits[0, -1].float().softmax(-1)
    ordered, index = probabilities.sort(descending=True)
    nucleus = set(index[: int((ordered.cumsum(0) < top_p).sum()) + 1].tolist())
    calls = [
        {"token_ids": prompt, "max_new_tokens": 1, "temperature": 1.0, "seed": seed, "top_p": top_p}
        for seed in range(200)
    ]
    answers = asyncio.run(play(make(), calls))
    found = {answer.token_ids[0] for answer in answers}
    assert found <= nucleus
    assert len(found) > len(nucleus) / 2
    for answer in answers:
        assert answer.logprobs[0] == pytest.approx(float(probabilities[answer.token_ids[0]].log()), abs=1e-4)


def test_an_answer_ends_at_its_stop_token_its_stop_function_or_its_length(make: Make) -> None:
    async def ask(**options: Any) -> TokenAnswer:
        return await engine.complete([5, 6, 7], 30, 1.0, 4, **options)

    engine = make()
    whole = asyncio.run(ask())
    assert (len(whole.token_ids), whole.finish_reason) == (30, "length")
    fifth = whole.token_ids[4]
    at = whole.token_ids.index(fifth) + 1
    stopped = asyncio.run(ask(stop_ids=[fifth]))
    assert (stopped.token_ids, stopped.finish_reason) == (whole.token_ids[:at], "stop")
    seen = asyncio.run(ask(stop=lambda tokens: len(tokens) == 9))
    assert (seen.token_ids, seen.finish_reason) == (whole.token_ids[:9], "stop")
    assert len(seen.logprobs) == 9
    again = asyncio.run(ask())
    assert again == whole


def test_the_models_own_generation_settings_change_nothing(make: Make) -> None:
    calls = requests(20)
    for call in calls:
        call["stop_ids"] = ()
    plain = asyncio.run(play(make(), calls))
    model, end = tiny_model(0), next(answer for answer in plain if len(answer.token_ids) > 5).token_ids[3]
    model.generation_config.update(
        eos_token_id=end, repetition_penalty=1.5, top_k=3, temperature=0.1, do_sample=True, min_length=60
    )
    engine = make(model)
    found = asyncio.run(play(engine, calls))
    asyncio.run(engine.close())
    for answer, expected in zip(found, plain, strict=True):
        assert answer.token_ids == expected.token_ids
        assert answer.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
    assert model.generation_config.repetition_penalty == 1.5


def test_a_short_answer_does_not_wait_for_a_long_one(make: Make) -> None:
    order: list[int] = []

    async def ask(engine: TokenEngine, length: int) -> None:
        await engine.complete([5, 6, 7], length, 1.0, length)
        order.append(length)

    async def race(engine: TokenEngine) -> None:
        await together(*[ask(engine, length) for length in (200, 3, 60)])

    asyncio.run(race(make()))
    assert order == [3, 60, 200]


def test_cancelling_a_call_drops_it_and_leaves_the_others(make: Make) -> None:
    model = tiny_model(0)

    async def scenario(engine: TokenEngine) -> TokenAnswer:
        there, let_go = halted(model)
        doomed = asyncio.create_task(engine.complete([5, 6, 7], 450, 1.0, 1))
        other = asyncio.create_task(engine.complete([8, 9], 20, 1.0, 2))
        await until(there.is_set)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        let_go.set()
        # An update waits for the calls inside: it would hang if the dropped call still counted.
        await asyncio.wait_for(engine.update(lambda: None), 120)
        return await other

    assert len(asyncio.run(scenario(make(model))).token_ids) == 20


@pytest.mark.parametrize(
    ("token_ids", "max_new_tokens", "words"),
    [
        ([], 5, "no tokens"),
        ([5, VOCABULARY], 5, f"{VOCABULARY} is outside the vocabulary of {VOCABULARY}"),
        ([-1], 5, "-1 is outside"),
        ([5] * 500, 13, "500 prompt tokens and 13 new ones do not fit the window of 512"),
        ([5], 0, "max_new_tokens is 0"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_its_numbers(
    make: Make, token_ids: list[int], max_new_tokens: int, words: str
) -> None:
    async def scenario(engine: TokenEngine) -> TokenAnswer:
        with pytest.raises(Refused, match=words):
            await engine.complete(token_ids, max_new_tokens, 1.0, 0)
        return await engine.complete([5], 2, 1.0, 0)

    assert len(asyncio.run(scenario(make())).token_ids) == 2


def test_an_update_waits_for_calls_that_began_and_later_calls_see_the_new_weights(make: Make) -> None:
    model, after = tiny_model(0), tiny_model(1)
    long_prompt, temperature = list(range(3, 103)), 1.0

    def copy() -> None:
        for weight, new in zip(model.parameters(), after.parameters(), strict=True):
            weight.copy_(new)

    async def scenario(engine: TokenEngine) -> tuple[TokenAnswer, TokenAnswer]:
        before = asyncio.create_task(engine.complete(long_prompt, 40, temperature, 1))
        await asyncio.sleep(0)
        update = asyncio.create_task(engine.update(copy))
        await asyncio.sleep(0)
        later = await engine.complete(long_prompt, 40, temperature, 1)
        await update
        return await before, later

    old, new = asyncio.run(scenario(make(model)))
    for answer, weights in ((old, MODEL), (new, after)):
        rows = logprobs(weights, long_prompt, answer, temperature)
        found = rows.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(answer.logprobs), found, atol=1e-5, rtol=1e-5)


def test_the_global_random_state_is_left_alone(make: Make) -> None:
    torch.manual_seed(11)
    state = torch.get_rng_state()
    asyncio.run(play(make(), requests(12)))
    assert torch.equal(torch.get_rng_state(), state)


def test_an_engine_serves_several_event_loops_at_once(make: Make) -> None:
    engine, calls = make(), requests(16)
    answers: dict[int, list[TokenAnswer]] = {}

    def serve(which: int) -> None:
        answers[which] = asyncio.run(play(engine, calls))

    threads = [threading.Thread(target=serve, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [a.token_ids for a in answers[0]] == [a.token_ids for a in answers[1]]


def test_a_closed_engine_fails_its_calls_and_leaves_no_thread(make: Make) -> None:
    before = set(threading.enumerate())
    model = tiny_model(0)

    async def scenario() -> None:
        engine: Any = make(model)
        there, let_go = halted(model)
        asking = asyncio.create_task(engine.complete([5, 6], 400, 1.0, 0))
        await until(there.is_set)
        closing = asyncio.create_task(engine.close())
        await until(lambda: engine._closed)
        let_go.set()
        await closing
        await engine.close()
        with pytest.raises(CallFailed):
            await asking
        with pytest.raises(CallFailed):
            await engine.complete([5, 6], 4, 1.0, 0)

    asyncio.run(asyncio.wait_for(scenario(), 120))
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert left <= {"pilotfish-watch"}  # it ends at its next look


def test_an_error_fails_only_its_batch() -> None:
    model = tiny_model(0)
    real, broken = model.generate, [True]

    def generate(*args: Any, **options: Any) -> Any:
        if broken and broken.pop():
            raise RuntimeError("out of luck")
        return real(*args, **options)

    model.generate = generate  # type: ignore[method-assign]

    async def scenario() -> None:
        engine = BatchTokens(model)
        with pytest.raises(CallFailed, match="out of luck"):
            await engine.complete([5, 6], 4, 1.0, 0)
        assert len((await engine.complete([5, 6], 4, 1.0, 0)).token_ids) == 4
        await engine.close()

    asyncio.run(scenario())


def test_a_manager_that_dies_fails_every_call_that_waits_and_every_later_one() -> None:
    model = tiny_model(0)

    async def scenario() -> None:
        engine = continuous(model)
        there, let_go = halted(model)
        asking = [asyncio.create_task(engine.complete([5, 6], 400, 1.0, i)) for i in range(3)]
        await until(there.is_set)
        model.forward = None  # type: ignore[method-assign,assignment]
        let_go.set()
        for failure in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(failure, CallFailed)
        with pytest.raises(CallFailed):
            await asyncio.wait_for(engine.complete([5, 6], 4, 1.0, 0), 120)
        await engine.close()

    asyncio.run(scenario())


def test_a_model_that_the_manager_computes_wrongly_is_not_served() -> None:
    model = tiny_model(0)
    real = model.forward

    def forward(*args: Any, **options: Any) -> Any:
        found = real(*args, **options)
        if options["input_ids"].shape[0] == 1 and "logits_indices" in options:
            found.logits = -found.logits
        return found

    model.forward = forward  # type: ignore[method-assign]
    with pytest.raises(CannotServe, match="from those of generate"):
        ContinuousTokens(model, cache_tokens=2048, page=16)
    assert model.config._attn_implementation == "sdpa"


def test_the_manager_refuses_top_p_it_was_not_started_for() -> None:
    async def scenario() -> None:
        engine = ContinuousTokens(tiny_model(0), cache_tokens=2048, page=16)
        with pytest.raises(Refused, match=r"top_p 0\.9"):
            await engine.complete([5, 6], 4, 1.0, 0, top_p=0.9)
        await engine.close()

    asyncio.run(scenario())


def test_batches_take_the_oldest_call_and_those_near_it_within_the_limits() -> None:
    widths: list[tuple[int, ...]] = []
    model = tiny_model(0)
    real = model.generate

    def generate(ids: Any, **options: Any) -> Any:
        widths.append(tuple(ids.shape))
        return real(ids, **options)

    model.generate = generate  # type: ignore[method-assign]

    async def scenario() -> None:
        engine = BatchTokens(model, rows=3, padded_tokens=200)
        lengths = [10, 90, 11, 12, 13, 95]
        await together(*[engine.complete([5] * n, 4, 0.0, 0) for n in lengths])
        await engine.close()

    asyncio.run(scenario())
    assert widths == [(3, 12), (2, 95), (1, 13)]


def test_prompts_that_rows_share_are_read_once_and_ended_rows_leave_the_batch() -> None:
    model = tiny_model(0)
    read: list[int] = []
    real = model.model.forward

    def forward(*args: Any, **options: Any) -> Any:
        read.append(int(options["input_ids"].numel()))
        return real(*args, **options)

    model.model.forward = forward  # type: ignore[method-assign]

    async def scenario() -> list[TokenAnswer]:
        engine = BatchTokens(model)
        calls = [([5 + i % 2] * 30, 4 if i < 12 else 20, 1.0, i) for i in range(16)]
        answers = await together(*[engine.complete(*call) for call in calls])
        await engine.close()
        return answers

    answers = asyncio.run(scenario())
    assert Counter(len(a.token_ids) for a in answers) == {4: 12, 20: 4}
    assert read[0] == 2 * 29
    assert read[1:5] == [16] * 4
    assert read[5:] == [4] * 16
