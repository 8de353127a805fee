"""The Python of a decoding step of continuous batching: what the host does before and after the GPU has its turn.

    python bench/decode_step.py
    python bench/decode_step.py --rows 512 --steps 100

Steps of calls that all decode are scheduled, laid out and taken in as on a GPU, tables of blocks included, by
transformers' own code (`own`), and with what `engine/admission.py` and `engine/inputs.py` put in its place (`ours`),
in turns. Nothing is computed: the tensors are a CPU's, and every token is the same.

- `decode_step_ms_WHO_ROWS`: milliseconds of a step, the median.
- `decode_step_own_over_ours_ROWS`: their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import transformers
from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingAsyncIOs, ContinuousBatchingIOs
from transformers.generation.continuous_batching.requests import RequestState

from _clock import READ, as_on_a_gpu, clocked
from pilotfish.engine import continuous


class Host:
    """Calls that decode, and the host's part of their steps."""

    def __init__(self, rows: int) -> None:
        engine = clocked(rows, end=2, mean=9999, vocabulary=64)
        processor = engine._manager.batch_processor
        asyncio.run(engine.close())
        self.scheduler, self.columns = processor.scheduler, processor.logit_processor
        with as_on_a_gpu():
            hosts = [
                ContinuousBatchingIOs(
                    cache=processor.cache,
                    config=processor.config,
                    continuous_batching_config=processor.cb_config,
                    device=torch.device("cpu"),
                    model_dtype=torch.bfloat16,
                    logit_processor=self.columns,
                )
                for _ in range(2)
            ]
        self.pairs: Any = ContinuousBatchingAsyncIOs.__new__(ContinuousBatchingAsyncIOs)
        self.pairs.io_pairs = [SimpleNamespace(host_io=host) for host in hosts]
        self.pairs.current_pair, self.pairs.max_batch_tokens = 0, READ
        processor.inputs_and_outputs, processor.use_async_batching = self.pairs, True
        continuous.in_less_python(processor)
        for row in range(rows):
            own = {"temperature": 1.0, "top_p": 1.0, "seed": row * 7919}
            self.scheduler.add_waiting_request(
                RequestState(f"call-{row}", [5] * 60, max_new_tokens=9999, logit_processor_kwargs=own)
            )
        while self.scheduler.waiting_requests:
            self.step()

    def step(self) -> float:
        """Take one and return its seconds."""
        began = time.perf_counter()
        requests, decode, tokens, read = self.scheduler.schedule_batch(READ, 1 << 30)
        host = self.pairs.io_pairs[self.pairs.current_pair].host_io
        host.prepare_batch_tensors(requests, self.columns, decode, tokens, read, False)
        host.carry_over_ids.copy_(self.pairs.infer_carry_over_ids())
        laid_out, said, logprobs = host.prepare_batch_update()
        for request, token, logprob in zip(laid_out, said, logprobs, strict=False):
            request.state.update_and_check_completion(token, logprob)
        self.pairs.current_pair = 1 - self.pairs.current_pair
        return time.perf_counter() - began


def unchanged(*of: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--steps", type=int, default=60, help="of each side")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    for rows in options.rows:
        with patch.multiple(continuous, in_less_python=unchanged, let_in_together=unchanged):
            own = Host(rows)
        ours = Host(rows)
        pairs = [(own.step(), ours.step()) for _ in range(options.steps)]
        theirs, mine = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
        print(f"value decode_step_ms_own_{rows} {theirs:.2f}")
        print(f"value decode_step_ms_ours_{rows} {mine:.2f}")
        print(f"ratio decode_step_own_over_ours_{rows} {theirs / mine:.2f}", flush=True)


if __name__ == "__main__":
    main()
