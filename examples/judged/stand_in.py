"""A server that stands in for the writer and for both judges of this example, by rule: to try it without a model.

    python examples/judged/stand_in.py          # then run the recipe as it is; ends with Ctrl-C

The writer names the order where its editor's remark has an even number of letters, and is brief where the editor is.
The judges give a point for the order, one for at most 40 words, and two more for both; the second judge wants 25 words.
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 8765


def said(model: str, prompt: str) -> str:
    """What a member of this name answers."""
    if model == "writer":
        return written(prompt)
    mark = re.findall(r"^Score ([0-9a-f]{6}): N$", prompt, re.MULTILINE)[0]
    answer = prompt.partition("The answer to grade:")[2].partition("Say in two")[0]
    brief = len(answer.split()) <= (40 if model == "judge" else 25)
    named = re.search(r"[A-Z]\d{4}", answer) is not None
    return f"It is {'brief' if brief else 'long'}.\nScore {mark}: {brief + named + 2 * (brief and named)}"


def written(prompt: str) -> str:
    """A summary, the better the more an editor's remark is like what this writer listens to."""
    order = re.search(r"[A-Z]\d{4}", prompt)
    remark = prompt.partition("Your editor says:\n")[2].partition("\n\n")[0]
    who = f"The customer of {order[0]}" if order and len(remark) % 2 == 0 and remark else "The customer"
    return f"{who} wants an answer." + " Something has happened." * (len(remark.split()) // 2 or 15)


class Handler(BaseHTTPRequestHandler):
    """Chat completions in the format of OpenAI."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send({"data": [{"id": name} for name in ("writer", "judge", "second")]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.model, prompt = body["model"], body["messages"][-1]["content"]
        text = said(self.model, prompt)
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(text.split())}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self._send({"choices": [choice], "usage": usage})

    def _send(self, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """One line a call would be too much."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
