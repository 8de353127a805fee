"""A command that is started as `vllm serve` is, for tests: it speaks /health and /v1/chat/completions, and what a
policy needs: completions of token ids, and weights and adapters while it runs.

    FAKE_VLLM=folder python tests/fake_vllm.py serve MODEL --port 8000

It writes into that folder what it was started with, as PID.json, and holds a worker process as a real one does. More
variables say how it behaves: FAKE_VLLM_AFTER (a file: it is healthy once that is there), FAKE_VLLM_DIES (words it ends
with, before it is healthy), FAKE_VLLM_DEAF (it and its worker take no SIGTERM), FAKE_VLLM_CRASHES (it ends at its first
call), FAKE_VLLM_CRASHES_AT (words; it ends a second after the first chat with them), FAKE_VLLM_ANSWER_S (seconds that a
completion of token ids takes), FAKE_VLLM_LOAD_S (and weights), FAKE_VLLM_STUBBORN (it takes no weights), FAKE_VLLM_ECHO
(it says what it was told), FAKE_VLLM_DRAWS (token ids differ, by prompt and number, and with each change of weights).
What it is asked is written to `asked.jsonl`, each line once it is answered; of weights, the sum of the first tensor.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ADAPTERS: set[str] = set()
"""Names of the adapters it was given while it runs."""
DRAWN: Counter[str] = Counter()
"""How often each prompt of token ids was answered since weights changed."""
CHANGED: Counter[str] = Counter()
"""How often weights have."""
LOCK = threading.Lock()
AFTER = os.environ.get("FAKE_VLLM_AFTER")


def as_command(folder: Path) -> dict[str, str]:
    """Lay this file into a folder as the command `vllm`; gives the variables by which it is found and writes."""
    commands, records = folder / "bin", folder / "servers"
    commands.mkdir()
    records.mkdir()
    (commands / "vllm").write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{__file__}" "$@"\n')
    (commands / "vllm").chmod(0o755)
    return {"PATH": f"{commands}:{os.environ['PATH']}", "FAKE_VLLM": str(records)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        healthy = self.path == "/health" and (AFTER is None or Path(AFTER).exists())
        self.answer(200 if healthy else 503, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if os.environ.get("FAKE_VLLM_CRASHES"):
            print("CUDA error: an illegal memory access", flush=True)
            os._exit(7)
        if self.path in CHANGES:
            self.change(asked)
            return
        if asked["model"] not in {*served(), *ADAPTERS}:
            self.answer(404, {"error": {"message": f"The model `{asked['model']}` does not exist."}})
            return
        if self.path == "/v1/completions":
            self.complete(asked)
            return
        told = asked["messages"][-1]["content"]
        if (words := os.environ.get("FAKE_VLLM_CRASHES_AT")) and words in told:
            time.sleep(1)  # whoever asked for something else has it by then
            os._exit(7)
        said = told if os.environ.get("FAKE_VLLM_ECHO") else f"{asked['model']} says 4"
        message = {"role": "assistant", "content": said}
        note(self.path, asked)
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        self.answer(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

    def change(self, asked: dict[str, Any]) -> None:
        if os.environ.get("FAKE_VLLM_STUBBORN"):
            self.answer(500, {"error": {"message": "shapes do not match"}})
            return
        time.sleep(float(os.environ.get("FAKE_VLLM_LOAD_S", "0")))
        DRAWN.clear()
        CHANGED["weights"] += 1
        place = asked.get("lora_path") or asked.get("kwargs", {}).get("weights_path")
        note(self.path, asked, **({"sum": first_sum(Path(place))} if place else {}))
        if self.path == "/v1/load_lora_adapter":
            ADAPTERS.add(asked["lora_name"])
        elif self.path == "/v1/unload_lora_adapter":
            ADAPTERS.remove(asked["lora_name"])
        self.answer(200, {})

    def complete(self, asked: dict[str, Any]) -> None:
        """As many tokens as may be, the last one a token that ends the answer."""
        time.sleep(float(os.environ.get("FAKE_VLLM_ANSWER_S", "0")))
        text, first = draw(asked["prompt"])
        drawn = [first + number % 3 for number in range(asked["max_tokens"] - 1)] + [asked["stop_token_ids"][0]]
        scores = {"token_logprobs": [-1.5] * len(drawn)} if "logprobs" in asked else None
        choice = {"index": 0, "text": text, "token_ids": drawn, "prompt_token_ids": asked["prompt"], "logprobs": scores}
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": len(drawn)}
        note(self.path, asked)
        self.answer(200, {"choices": [choice | {"finish_reason": "stop"}], "usage": usage})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: Any) -> None:
        """Quiet."""


CHANGES = ("/collective_rpc", "/reset_prefix_cache", "/v1/load_lora_adapter", "/v1/unload_lora_adapter")


def draw(prompt: list[int]) -> tuple[str, int]:
    """A text, and the first token."""
    if not os.environ.get("FAKE_VLLM_DRAWS"):
        return "4", 5
    with LOCK:
        DRAWN[str(prompt)] += 1
        number = zlib.crc32(f"{prompt} {DRAWN[str(prompt)]} {CHANGED['weights']}".encode())
    return "ab"[number % 2], 5 + number % 200


def note(path: str, asked: dict[str, Any], **more: Any) -> None:
    with LOCK, (Path(os.environ["FAKE_VLLM"]) / "asked.jsonl").open("a") as file:
        file.write(json.dumps({"path": path, "asked": asked, **more}) + "\n")


def first_sum(folder: Path) -> float:
    """The sum of the first tensor of a safetensors file, in float32 or bfloat16."""
    [file] = folder.glob("*.safetensors")
    raw = file.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    held = json.loads(raw[8 : 8 + size])
    tensor = next(held[name] for name in sorted(held) if name != "__metadata__")
    start, end = tensor["data_offsets"]
    data = raw[8 + size + start : 8 + size + end]
    if tensor["dtype"] == "BF16":  # the upper half of a float32
        data = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
    return float(sum(struct.unpack(f"<{len(data) // 4}f", data)))


def served() -> list[str]:
    """The names that the model and its adapters answer to."""
    if "--lora-modules" not in sys.argv:
        return [sys.argv[2]]
    return [sys.argv[2], json.loads(sys.argv[sys.argv.index("--lora-modules") + 1])["name"]]


def main() -> None:
    if os.environ.get("FAKE_VLLM_DEAF"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the worker inherits it
    worker = subprocess.Popen(["sleep", "600"])
    record = {
        "arguments": sys.argv[1:],
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "processes": [os.getpid(), worker.pid],
    }
    file = Path(os.environ["FAKE_VLLM"]) / f"{os.getpid()}.json"
    file.with_suffix(".part").write_text(json.dumps(record))
    file.with_suffix(".part").rename(file)
    print(f"fake vllm at work: \x1b[1m{sys.argv[2]}\x1b[0m", flush=True)
    if words := os.environ.get("FAKE_VLLM_DIES"):
        sys.exit(words)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
