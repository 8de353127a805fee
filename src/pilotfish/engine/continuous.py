"""Token engine over transformers' continuous batching: one manager a model, started once and kept. For a GPU.

Its private names are in this file, `admission.py` and `inputs.py`, which run on transformers 5.17 and 5.24. What the
manager lacks is added there: a seed, temperature and nucleus mass of each call's own, log-probabilities of the
untruncated distribution, stop functions, weights that change in place, calls that begin together, steps in less Python,
and an error for every call if its thread dies.
Its prefix sharing stays off, since shared blocks would keep the keys of old weights. Requests that would kill its
thread (an empty prompt, an id outside the vocabulary, more tokens than the cache holds) never get there.
"""

from __future__ import annotations

import asyncio
import atexit
import copy as copies
import itertools
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from pilotfish.engine.admission import let_in_together
from pilotfish.engine.base import CallFailed, Refused
from pilotfish.engine.batches import bare_generate
from pilotfish.engine.draw import draw, fractions
from pilotfish.engine.inputs import Column, Places, in_less_python, pad_less, page_of
from pilotfish.engine.norms import as_they_were, norms_at_once
from pilotfish.engine.steps import STEPS, in_daemon_thread, one_at_a_time, settled
from pilotfish.engine.tokens import Gate, TokenAnswer, check_request, limits, resolve

_WATCH_SECONDS = 0.5
_CHECK_TOKENS = 6
_CHECK_ERROR = {torch.float32: 0.05, torch.bfloat16: 1.0, torch.float16: 1.0}
"""Largest mean difference of log-probabilities to `generate()`. On random prompts rounding to bfloat16 gives 0.02 to
0.6 (a sharply fine-tuned model shows the most), a wrong mask or cache 2.8 to 18."""
_PROMPT_STEP = 256
"""A step's tokens of prompts are padded to a multiple of it: each such number is a CUDA graph to capture and keep."""
_LARGE = 64 << 30
"""Bytes of a GPU that answers 512 calls at once; a smaller one, 256."""


class CannotServe(RuntimeError):
    """transformers' continuous batching does not serve this model here; use `batches.py`."""


@dataclass(eq=False)
class _Call:
    """A call that waits for the manager."""

    answer: asyncio.Future[TokenAnswer]
    stop_ids: frozenset[int]
    stop: Callable[[list[int]], bool] | None

    def hear(self, output: Any) -> bool:
        """Take what the manager reports; True when the answer is complete but the manager would go on."""
        tokens = list(output.generated_tokens)
        if output.error is not None:
            resolve(self.answer, CallFailed(f"continuous batching failed: {output.error}"))
            return False
        stopped = self.stop is not None and bool(tokens) and not self.answer.done() and self.stop(tokens)
        if stopped or output.is_finished():
            ended = stopped or (bool(tokens) and tokens[-1] in self.stop_ids)
            found = TokenAnswer(tuple(tokens), tuple(output.logprobs), "stop" if ended else "length")
            resolve(self.answer, found)
        return stopped and not output.is_finished()


class ContinuousTokens:
    """A `TokenEngine` on a kept continuous-batching manager. The model belongs to it: use another copy elsewhere."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        rows: int | None = None,
        memory: float = 0.3,
        nucleus: bool = False,
        cache_tokens: int | None = None,
        page: int = 256,
    ) -> None:
        """Start the manager and check it against `generate()`.

        Args:
            model: on its device, in the type it is to run in; its own copy of the weights.
            rows: most calls in one step; by the size of the GPU when None.
            memory: share of the free GPU memory that the cache takes.
            nucleus: whether calls may have top_p below 1; costs a sort of the logits at every step.
            cache_tokens: size of the cache; from `memory` when None. Give it on a CPU.
            page: tokens in a block of the cache.

        Raises:
            CannotServe: the manager does not start with this model or computes something else than `generate()`.
        """
        self._model: Any = model.train(False)
        _own_config(model)
        self._nucleus = nucleus
        self._gate, self._names, self._calls = Gate(), itertools.count(), dict[str, _Call]()
        self._closed = False
        self._dead: str | None = None
        self._manager: Any = None
        self._norms: Sequence[torch.nn.Module] = ()
        self._vocabulary, limit = limits(model)
        self._window = min(limit, cache_tokens or limit)
        reference = _greedy_reference(model, self._vocabulary, min(300, self._window // 2))
        attention = model.config._attn_implementation
        try:
            # The manager seeds the global generators.
            with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
                self._start(rows or _rows(model.device), memory, cache_tokens, page)
            self._window = min(self._window, self._capacity())
            in_daemon_thread(lambda: asyncio.run(self._check(*reference)))
        except Exception as error:
            self._shut()
            model.set_attn_implementation(attention)
            as_they_were(self._norms)
            raise CannotServe(f"continuous batching does not serve {type(model).__name__}: {error}") from error
        atexit.register(self._shut)

    def _start(self, rows: int, memory: float, cache_tokens: int | None, page: int) -> None:
        known = ContinuousBatchingConfig.__dataclass_fields__
        on_gpu = self._model.device.type == "cuda"
        wanted: dict[str, Any] = {
            ("page_size" if "page_size" in known else "block_size"): page,
            "allow_block_sharing": False,
            "return_logprobs": True,
            "max_requests_per_batch": rows,
            "max_memory_percent": memory,
            "auto_switch_to_flash": on_gpu,
            "seed": 0,
            "q_padding_interval_size": _PROMPT_STEP if on_gpu else 0,
        }
        if cache_tokens is not None:
            wanted |= {"num_blocks": -(-cache_tokens // page), "max_batch_tokens": min(cache_tokens, 1024)}
            wanted |= {"safety_margin": 0.0}
        settings: Any = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)  # type: ignore[no-untyped-call]
        self._manager = self._model.init_continuous_batching(
            generation_config=settings,
            continuous_batching_config=ContinuousBatchingConfig(**{k: v for k, v in wanted.items() if k in known}),
        )
        manager = self._manager
        if on_gpu and "flash" not in str(self._model.config._attn_implementation):
            raise RuntimeError("there is no FlashAttention, and without it `generate()` is as fast")
        if on_gpu:
            self._norms = norms_at_once(self._model)
        self._add_columns(manager.logit_processor)
        manager.output_router.deliver_batch = self._deliver
        manager.output_router.deliver = lambda output: self._deliver([output])
        # The manager makes its buffers on the default stream, and resets them there when its thread starts; the streams
        # of its steps do not wait for it. Where the GPU lags behind, the zeros came after the inputs of the first step.
        manager._create_batch_processor = one_at_a_time(settled(manager._create_batch_processor, self._model.device))
        manager.batch_processor = manager._create_batch_processor()
        runner = manager.batch_processor.model_runner
        runner._sample = self._sample
        pad_less(runner)
        in_less_python(manager.batch_processor)
        let_in_together(manager.batch_processor.scheduler, page_of(manager.continuous_batching_config))
        manager.batch_processor._generation_step = one_at_a_time(manager.batch_processor._generation_step)
        if on_gpu:
            self._warm_up()
        # The manager's thread is a daemon only if the thread that starts it is one.
        in_daemon_thread(manager.start)
        threading.Thread(target=self._watch, name="pilotfish-watch", daemon=True).start()

    def _warm_up(self) -> None:
        """Capture the graphs, one after the other.

        transformers before 5.24 writes a graph's inputs while the one before still reads them, where the GPU lags
        behind (several processes on it): memory is then written that belongs to others.
        """
        runner, device = self._manager.batch_processor.model_runner, self._model.device
        compute = runner.compute_batch
        runner.compute_batch = settled(compute, device)
        with STEPS:
            self._manager.warmup()
        runner.compute_batch = compute

    def _add_columns(self, processors: Any) -> None:
        self._temperature, self._top_p, self._fraction = Column("temperature"), Column("top_p"), Places()
        processors.logits_processor = LogitsProcessorList([self._temperature, self._top_p, self._fraction])
        processors.tensors_required = 3
        processors._retrieve_processors_kwargs()
        processors.do_processing = True

    def _sample(self, scores: Tensor, output_ids: Tensor) -> None:
        """Stands in for the model runner's own: row 0 takes the tokens, row 1 the bits of their log-probabilities."""
        top_p = self._top_p.rows if self._nucleus else None
        tokens, logprobs = draw(scores[0], self._temperature.rows, self._fraction.rows, top_p)
        output_ids[0, : tokens.numel()].copy_(tokens)
        output_ids[1, : tokens.numel()].copy_(logprobs.view(torch.int32))

    def _capacity(self) -> int:
        """Tokens that the cache holds."""
        settings = self._manager.continuous_batching_config
        return int(settings.num_blocks * page_of(settings))

    async def complete(
        self,
        token_ids: Sequence[int],
        max_new_tokens: int,
        temperature: float,
        seed: int,
        *,
        top_p: float = 1.0,
        stop_ids: Collection[int] = (),
        stop: Callable[[list[int]], bool] | None = None,
    ) -> TokenAnswer:
        """See `TokenEngine`."""
        check_request(token_ids, max_new_tokens, self._vocabulary, self._window)
        if top_p < 1.0 and not self._nucleus:
            raise Refused(
                f"top_p {top_p} on an engine that was started without nucleus sampling; start it with nucleus"
            )
        async with self._gate.inside():
            call = _Call(asyncio.get_running_loop().create_future(), frozenset(stop_ids), stop)
            name = f"call-{next(self._names)}"
            self._calls[name] = call
            try:
                self._submit(name, call, list(token_ids), max_new_tokens, temperature, top_p, seed)
                return await call.answer
            except BaseException:
                self._manager.cancel_request(name)
                raise
            finally:
                del self._calls[name]

    def _submit(
        self, name: str, call: _Call, ids: list[int], length: int, temperature: float, top_p: float, seed: int
    ) -> None:
        if self._dead is not None or self._closed:
            raise CallFailed(self._dead or "the engine is closed")
        taken = self._manager.add_request(
            ids,
            request_id=name,
            max_new_tokens=length,
            eos_token_id=sorted(call.stop_ids) or -1,
            streaming=call.stop is not None,
            temperature=float(temperature),
            top_p=float(top_p),
            seed=int(seed),
        )
        if taken is None:
            raise CallFailed(self._dead or "continuous batching takes no more requests")

    def _deliver(self, outputs: Sequence[Any]) -> None:
        """Tell each call's own event loop. The manager's router tells one loop of all of a step's answers, and keeps
        those that nobody waits for."""
        told: dict[asyncio.AbstractEventLoop, list[tuple[_Call, Any]]] = {}
        for output in outputs:
            if call := self._calls.get(output.request_id):
                told.setdefault(call.answer.get_loop(), []).append((call, output))
        for loop, heard in told.items():
            with suppress(RuntimeError):  # closed: its calls have ended with it
                loop.call_soon_threadsafe(self._hear, heard)

    def _hear(self, heard: Sequence[tuple[_Call, Any]]) -> None:
        for call, output in heard:
            if call.hear(output):
                self._manager.cancel_request(output.request_id)

    async def update(self, copy: Callable[[], None]) -> None:
        """See `TokenEngine`."""

        def change() -> None:
            with getattr(self._manager, "pause", nullcontext)(), torch.no_grad():
                settled(copy, self._model.device)()

        async with self._gate.drained():
            await asyncio.to_thread(change)

    async def close(self) -> None:
        """See `TokenEngine`."""
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._shut)
        if self._manager is not None:
            self._manager.stop(block=True, timeout=30, hard_stop=True)
            self._manager.destroy()
        for call in list(self._calls.values()):
            resolve(call.answer, CallFailed("the engine was closed before this call was answered"))

    def _watch(self) -> None:
        """Fail the calls that a dead manager would never answer."""
        pause = threading.Event()
        while self._manager.is_running() and not self._closed:
            pause.wait(_WATCH_SECONDS)
        if not self._closed:
            self._dead = f"continuous batching died: {self._manager.background_thread_status.fatal_error!r}"
            for call in list(self._calls.values()):
                resolve(call.answer, CallFailed(self._dead))

    async def _check(self, prompt: list[int], tokens: list[int], rows: Tensor) -> None:
        """Raise unless the manager gives what `generate()` gave, up to rounding, in company and in a second page."""
        answers = await asyncio.gather(*[self.complete(prompt, len(tokens), 0.0, 0) for _ in range(3)])
        for answer in answers:
            same = [a == b for a, b in zip(answer.token_ids, tokens, strict=True)]
            # Up to the first token that differs (a near tie, or a fault) the text before each token is the same.
            compared = same.index(False) + 1 if False in same else len(same)
            pairs = zip(answer.token_ids[:compared], answer.logprobs, rows, strict=False)
            error = sum(abs(logprob - float(row[token])) for token, logprob, row in pairs) / compared
            if not error < _CHECK_ERROR.get(self._model.dtype, 1.0):
                raise RuntimeError(f"its log-probabilities lie {error:.3g} from those of generate()")


def _greedy_reference(model: Any, vocabulary: int, length: int) -> tuple[list[int], list[int], Tensor]:
    """A prompt, what `generate()` continues it with, and the log-probabilities of all tokens there.

    Returns:
        Prompt ids [length], token ids [n], log-probabilities [n, vocabulary].
    """
    prompt = [place % vocabulary for place in fractions([1] * length, range(length)).tolist()]
    ids = torch.tensor([prompt], device=model.device)
    settings = {"max_new_tokens": _CHECK_TOKENS, "output_logits": True, "return_dict_in_generate": True}
    with torch.no_grad():
        found = bare_generate(model, ids, torch.ones_like(ids), settings)
    return prompt, found.sequences[0, length:].tolist(), torch.stack(found.logits)[:, 0].float().log_softmax(-1)


def _rows(device: torch.device) -> int:
    large = device.type == "cuda" and torch.cuda.get_device_properties(device).total_memory >= _LARGE
    return 512 if large else 256


def _own_config(model: Any) -> None:
    """Give the model a config of its own: the manager changes the attention in it, for every model that shares it."""
    shared, own = model.config, copies.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own
