"""A command that is started as `vllm serve` is, for tests: it speaks /health and /v1/chat/completions.

    FAKE_VLLM=folder python tests/fake_vllm.py serve MODEL --port 8000

It writes into that folder what it was started with, as PID.json, and holds a worker process as a real one does. More
variables say how it behaves: FAKE_VLLM_SLOW_S (seconds until it is healthy), FAKE_VLLM_DIES (words it ends with, before
it is healthy), FAKE_VLLM_DEAF (it and its worker take no SIGTERM), FAKE_VLLM_CRASHES (it ends at its first call).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BORN = time.monotonic()
SLOW_S = float(os.environ.get("FAKE_VLLM_SLOW_S", "0"))


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
        healthy = self.path == "/health" and time.monotonic() - BORN >= SLOW_S
        self.answer(200 if healthy else 503, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if os.environ.get("FAKE_VLLM_CRASHES"):
            print("CUDA error: an illegal memory access", flush=True)
            os._exit(7)
        if asked["model"] not in served():
            self.answer(404, {"error": {"message": f"The model `{asked['model']}` does not exist."}})
            return
        message = {"role": "assistant", "content": f"{asked['model']} says 4"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        self.answer(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: Any) -> None:
        """Quiet."""


def served() -> list[str]:
    """The names that the model and its adapters answer to."""
    if "--lora-modules" not in sys.argv:
        return [sys.argv[2]]
    return [sys.argv[2], json.loads(sys.argv[sys.argv.index("--lora-modules") + 1])["name"]]


def main() -> None:
    if os.environ.get("FAKE_VLLM_DEAF"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the worker inherits it
    worker = subprocess.Popen(["sleep", "60"])
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
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
