"""Continuous batching: which calls begin together, in which steps prompts are read, what a step gets from the host."""

from __future__ import annotations

import asyncio
import copy
import random
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.generation.continuous_batching.input_outputs import (  # noqa: E402
    ContinuousBatchingAsyncIOs,
    ContinuousBatchingIOs,
)
from transformers.generation.continuous_batching.requests import RequestState  # noqa: E402

from pilotfish.engine import admission  # noqa: E402
from pilotfish.engine.continuous import ContinuousTokens  # noqa: E402
from pilotfish.engine.inputs import in_less_python, pad_less  # noqa: E402
from tiny import VOCABULARY, halted, tiny_model  # noqa: E402
from waiting import until  # noqa: E402

torch.set_num_threads(1)
Call = tuple[list[int], int]
"""A prompt, and how many tokens its answer has."""


class Step(NamedTuple):
    """A step of an engine."""

    lengths: list[int]
    """Of what is read of each call in it: 1 where it decodes."""
    active: int
    """Calls that have begun, in this step or not."""


def steps_beside(first: Call, others: Sequence[Call], *, cache_tokens: int, margin: float | None = None) -> list[Step]:
    """The steps of an engine from the one on that finds a call being answered and others waiting."""
    model = tiny_model(0)

    async def scenario() -> list[Step]:
        engine = ContinuousTokens(model, cache_tokens=cache_tokens, page=16)
        scheduler, steps = engine._manager.batch_processor.scheduler, list[Step]()
        scheduler.safety_margin = scheduler.safety_margin if margin is None else margin
        schedule = scheduler.schedule_batch

        def noted(*budgets: int) -> Any:
            found = schedule(*budgets)
            steps.append(Step([request.query_length for request in found[0]], len(scheduler.active_requests)))
            return found

        there, let_go = halted(model)
        calls = [asyncio.create_task(engine.complete(*first, 1.0, 0))]
        await until(there.is_set)
        calls += [asyncio.create_task(engine.complete(*other, 1.0, seed)) for seed, other in enumerate(others, 1)]
        await asyncio.sleep(0)
        scheduler.schedule_batch = noted
        let_go.set()
        await asyncio.wait_for(asyncio.gather(*calls), 120)
        await engine.close()
        return steps

    return asyncio.run(asyncio.wait_for(scenario(), 120))


@pytest.mark.parametrize(("seconds", "begun_together"), [(60.0, [1, 3]), (0.0, [1, 1, 1, 1])])
def test_calls_that_come_while_another_is_answered_begin_together(
    seconds: float, begun_together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "TOGETHER_S", seconds)
    model, ended = tiny_model(0), threading.Event()
    forward = model.forward

    def slow(*args: Any, **options: Any) -> Any:
        time.sleep(0.005)
        return forward(*args, **options)

    def stop(tokens: list[int]) -> bool:
        return ended.is_set()

    async def scenario() -> list[int]:
        model.forward = slow  # type: ignore[method-assign]
        engine = ContinuousTokens(model, cache_tokens=2048, page=16)
        scheduler, begun = engine._manager.batch_processor.scheduler, list[int]()
        schedule = scheduler.schedule_batch

        def counted(*budgets: int) -> Any:
            before = set(scheduler.active_requests)
            found = schedule(*budgets)
            if new := set(scheduler.active_requests) - before:
                begun.append(len(new))
            return found

        scheduler.schedule_batch = counted
        calls = [asyncio.create_task(engine.complete([5, 6], 400, 1.0, 0, stop=stop))]
        await until(lambda: len(scheduler.active_requests) == 1)
        for others in range(1, 4):
            calls.append(asyncio.create_task(engine.complete([7, 8], 400, 1.0, others, stop=stop)))
            held = scheduler.waiting_requests if seconds else scheduler.active_requests
            await until(lambda held=held, count=others if seconds else others + 1: len(held) == count)  # type: ignore[misc]
        ended.set()
        await asyncio.wait_for(asyncio.gather(*calls), 120)
        await engine.close()
        return begun

    assert asyncio.run(asyncio.wait_for(scenario(), 120)) == begun_together


def test_calls_for_whose_prompts_a_step_has_no_room_begin_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "TOGETHER_S", 60.0)
    steps = steps_beside(([5, 6], 3), [([7] * 300, 40)] * 5, cache_tokens=2048)  # a step reads 1,024 tokens
    active = [step.active for step in steps]
    begins = active.index(4)  # the last of them in part
    assert active[begins + 1] == 5


def test_prompts_are_read_in_steps_of_their_own_while_others_are_answered() -> None:
    steps = steps_beside(([5, 6, 7], 60), [([8] * 400, 5)] * 3, cache_tokens=4096)
    reading = [step.lengths for step in steps if max(step.lengths) > 1]
    assert reading == [[400, 400, 224], [176]]  # the third prompt in two parts, and nobody's next token beside them
    assert [1, 1, 1, 1] in [step.lengths for step in steps]


def test_where_the_cache_is_short_prompts_wait_for_those_that_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "TOGETHER_S", 0.0)
    takes_more_than_half = ([5] * 300, 20)
    steps = steps_beside(takes_more_than_half, [([6] * 50, 20)] * 3, cache_tokens=512, margin=0.5)
    assert [step.active for step in steps[:19]] == [1] * 19
    assert max(step.active for step in steps) == 3


def test_where_the_cache_was_short_calls_come_in_again_however_the_others_ended() -> None:
    async def scenario() -> list[int]:
        engine = ContinuousTokens(tiny_model(0), cache_tokens=96, page=16)  # too small for both
        calls = [engine.complete([5] * 20, 60, 1.0, seed, stop=lambda tokens: len(tokens) >= 50) for seed in range(2)]
        answers = await asyncio.wait_for(asyncio.gather(*calls), 120)
        await engine.close()
        return [len(answer.token_ids) for answer in answers]

    assert asyncio.run(scenario()) == [50, 50]


def test_after_some_steps_of_prompts_those_that_are_answered_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "IN_A_ROW", 2)
    monkeypatch.setattr(admission, "TOGETHER_S", 0.0)
    steps = [step.lengths for step in steps_beside(([5, 6, 7], 60), [([8] * 500, 5)] * 12, cache_tokens=8192)]
    kinds = ["prompts" if min(step) > 1 else "both" if max(step) > 1 else "decode" for step in steps]
    assert kinds[:6] == ["prompts", "prompts", "both"] * 2


def test_calls_that_stopped_leave_nothing_behind() -> None:
    async def scenario() -> Any:
        engine = ContinuousTokens(tiny_model(0), cache_tokens=2048, page=16)
        calls = [engine.complete([5, 6], 40, 1.0, seed, stop=lambda tokens: len(tokens) >= 3) for seed in range(40)]
        await asyncio.gather(*calls)
        doomed = asyncio.create_task(engine.complete([5, 6], 400, 1.0, 0))
        await until(lambda: len(engine._manager.batch_processor.scheduler.active_requests) == 1)
        doomed.cancel()
        await asyncio.gather(doomed, return_exceptions=True)
        await engine.complete([5], 20, 1.0, 0)
        await engine.close()
        return engine

    engine = asyncio.run(scenario())
    router = engine._manager.output_router
    assert (len(engine._calls), router.output_queue.qsize(), len(router.result_handlers)) == (0, 0, 0)


def test_a_call_waits_for_no_other_event_loop_and_outlives_it() -> None:
    model = tiny_model(0)
    engine = ContinuousTokens(model, cache_tokens=2048, page=16)
    there, let_go = halted(model)
    over = threading.Event()

    def goes_on(tokens: list[int]) -> bool:
        return False  # so each step has something to tell of either call

    async def deaf() -> None:
        left = asyncio.create_task(engine.complete([5, 6], 300, 1.0, 1, stop=goes_on))
        await until(lambda: len(engine._calls) == 2)
        let_go.set()
        over.wait(120)  # this loop hears of nothing meanwhile
        left.cancel()

    async def mine() -> int:
        first = asyncio.create_task(engine.complete([7, 8], 100, 1.0, 2, stop=goes_on))
        await until(there.is_set)
        other.start()
        answer = await asyncio.wait_for(first, 60)
        over.set()
        again = await asyncio.wait_for(engine.complete([7, 8], 20, 1.0, 2), 60)
        return len(answer.token_ids) + len(again.token_ids)

    other = threading.Thread(target=lambda: asyncio.run(deaf()))
    try:
        assert asyncio.run(mine()) == 120
    finally:
        over.set()
        other.join()
        asyncio.run(engine.close())


def test_a_step_that_decodes_is_scheduled_and_laid_out_as_by_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "TOGETHER_S", 0.0)
    engine = ContinuousTokens(tiny_model(0), cache_tokens=2048, page=16)
    processor = engine._manager.batch_processor
    asyncio.run(engine.close())
    cache, scheduler = processor.cache, processor.scheduler
    processor.cb_config.max_blocks_per_request = cache.max_blocks_per_request = 8  # tables of blocks, as on a GPU
    cache.max_decode_fast_path_length = 8 * 16
    if hasattr(scheduler, "max_decode_fast_path_length"):
        scheduler.max_decode_fast_path_length = 8 * 16
    ours, theirs = (
        ContinuousBatchingIOs(
            cache=cache,
            config=processor.config,
            continuous_batching_config=processor.cb_config,
            device=torch.device("cpu"),
            model_dtype=torch.float32,
            logit_processor=processor.logit_processor,
        )
        for _ in range(2)
    )
    ours.attention_mask = theirs.attention_mask = None
    processor.inputs_and_outputs = ours
    in_less_python(processor)
    rng, names, compared = random.Random(0), iter(range(1000)), 0

    def waiting(name: str) -> RequestState:
        own = {"temperature": rng.random(), "top_p": rng.random(), "seed": rng.getrandbits(63)}
        return RequestState(name, [5] * rng.randrange(1, 60), max_new_tokens=999, logit_processor_kwargs=own)

    for step in range(200):
        if step % 7 == 0:  # some end, others come, also under the name of one that ended (its cache was taken away)
            for name in rng.sample(sorted(scheduler.active_requests), len(scheduler.active_requests) // 3):
                scheduler.finish_request(name)
                if rng.random() < 0.5:
                    scheduler.add_waiting_request(waiting(name))
            for _ in range(3):
                scheduler.add_waiting_request(waiting(f"call-{next(names)}"))
        requests, decode, tokens, read = scheduler.schedule_batch(1024, 2048)
        if decode:
            copies = [copy.copy(request) for request in requests]
            for request in copies:
                request.state = copy.copy(request.state)
            expected, *rest = type(scheduler).schedule_batch(scheduler, 1024, 2048)
            assert [r.state for r in expected] == [r.state for r in requests]
            assert rest[:2] == [decode, tokens]
            told = [(r.has_new_token, r.complete_blocks, r.query_length) for r in expected]
            assert told == [(r.has_new_token, r.complete_blocks, r.query_length) for r in requests]
            padded = 1 << (tokens - 1).bit_length()
            theirs.prepare_batch_tensors(copies, processor.logit_processor, True, padded, 0, True)
            ours.prepare_batch_tensors(requests, processor.logit_processor, True, padded, 0, True)
            mine, his = (inputs._bulk_input_tensor[:, : padded + 1].tolist() for inputs in (ours, theirs))
            assert mine == his
            for name in (
                "num_q_tokens",
                "max_kv_read",
                "num_request_in_batch",
                "use_block_table",
                "total_seqlen_q",
                "total_seqlen_k",
                "true_read_sizes",
                "true_write_sizes",
                "req_id_to_new_token_position",
            ):
                assert getattr(ours, name) == getattr(theirs, name), name
            for row, (request, other) in enumerate(zip(requests, copies, strict=True)):
                for name in ("position_offset", "tokens_to_process", "status", "allocated_blocks"):
                    assert getattr(request.state, name, None) == getattr(other.state, name, None), name
                blocks = -(-request.state.position_offset // 16)
                assert ours.block_table[0, row, :blocks].tolist() == theirs.block_table[0, row, :blocks].tolist()
                compared += 1
            assert (ours.block_table[0, len(requests) : padded] == -1).all()
        else:
            ours.prepare_batch_tensors(requests, processor.logit_processor, decode, tokens, read, False)
        for request in requests:
            request.state.tokens_to_process = [rng.randrange(VOCABULARY)]
            if request.state.position_offset > 100:
                scheduler.finish_request(request.state.request_id)
    assert compared > 500


def test_steps_that_decode_are_padded_to_the_next_64_rows() -> None:
    warm = list[tuple[int, int | None]]()
    runner = SimpleNamespace(
        pad_inputs=True,
        cb_config=SimpleNamespace(max_requests_per_batch=300),
        maybe_pad_inputs=lambda num_q_tokens, max_kv_read, use_decode_fast_path: (num_q_tokens, max_kv_read),
        run_one_warmup=lambda model, num_q_tokens, max_kv_read: warm.append((num_q_tokens, max_kv_read)) or 1.0,
    )
    pad_less(runner)

    def padded(rows: int, *, decodes: bool = True) -> tuple[int, int]:
        return runner.maybe_pad_inputs(num_q_tokens=rows, max_kv_read=7, use_decode_fast_path=decodes)

    assert [padded(rows)[0] for rows in (1, 64, 65, 128, 129, 257, 300)] == [1, 64, 128, 128, 192, 300, 300]
    assert padded(65) == (128, 0)
    assert padded(65, decodes=False) == (65, 7)
    runner.pad_inputs = False
    assert padded(65) == (65, 7)
    assert runner.run_one_warmup(model=None, num_q_tokens=700, max_kv_read=3) == 1.0
    for rows in (64, 128, 256, 300):
        runner.run_one_warmup(model=None, num_q_tokens=rows, max_kv_read=None)
    assert warm[0] == (700, 3)
    assert {rows for rows, read in warm[1:] if read is None} == {64, 128, 192, 256, 300}


def test_an_engine_pads_its_steps_so() -> None:
    engine = ContinuousTokens(tiny_model(0), cache_tokens=6400, page=16, rows=300)
    runner = engine._manager.batch_processor.model_runner
    runner.pad_inputs = True
    found = [runner.maybe_pad_inputs(rows, 0, use_decode_fast_path=True)[0] for rows in (60, 129)]
    asyncio.run(engine.close())
    assert found == [64, 192]


def test_tokens_are_carried_from_step_to_step_as_transformers_would() -> None:
    rng = random.Random(1)

    def host() -> SimpleNamespace:
        calls = rng.sample(range(40), rng.randrange(1, 30))
        places = dict(zip(calls, sorted(rng.sample(range(64), len(calls))), strict=True))
        bare = SimpleNamespace(req_id_to_new_token_position=places, device=torch.device("cpu"), block_table=())
        return SimpleNamespace(host_io=bare)

    for current in (0, 1) * 20:
        pairs = SimpleNamespace(io_pairs=[host(), host()], current_pair=current, max_batch_tokens=64)
        expected = ContinuousBatchingAsyncIOs.infer_carry_over_ids(pairs)
        in_less_python(SimpleNamespace(use_async_batching=True, inputs_and_outputs=pairs))
        assert pairs.infer_carry_over_ids().tolist() == expected.tolist()
