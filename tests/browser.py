"""A page in a real browser: Chromium without a window, driven over its debugging socket.

    async with opened(file, width=390) as page:
        await page.value("document.title")
        page.complaints, page.requests

Skips the test where Chromium is not installed (Debian: `apt-get install chromium`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
LIMIT_S = 100
"""Whatever a test waits for comes long before, also on a machine that has much else to do."""
CODES = {"Enter": 13, "Escape": 27, "Tab": 9}


@dataclass
class Page:
    """One page, and all that it asked for and complained of since it was opened."""

    socket: aiohttp.ClientWebSocketResponse
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    _answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def call(self, method: str, **parameters: Any) -> Any:
        """A command of the debugging protocol."""
        number = len(self._answers) + 1
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(self._answers[number], LIMIT_S)

    async def value(self, expression: str) -> Any:
        """What JavaScript comes to in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def comes(self, expression: str) -> Any:
        """What an expression comes to in the end, in a page that waits for something."""
        look = f"const look = () => ({expression}) ? done({expression}) : setTimeout(look, 20); look()"
        return await self.value(f"new Promise((done) => {{ {look} }})")

    async def press(self, *keys: str) -> None:
        for key in keys:
            typed = {"text": "\r"} if key == "Enter" else {}
            code = {"code": key, "windowsVirtualKeyCode": CODES.get(key, 0)}
            await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code, **typed)
            await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    async def picture(self, name: str) -> None:
        """Write the whole page as a picture into the folder $PICTURES, where one is named."""
        if folder := os.environ.get("PICTURES"):
            size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
            taken = await self.call("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
            await asyncio.to_thread(Path(folder, f"{name}.png").write_bytes, base64.b64decode(taken["data"]))

    async def listen(self) -> None:
        async for message in self.socket:
            self._heard(json.loads(message.data))

    def _heard(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        match message.get("method"):
            case None:
                assert "result" in message, message
                self._answers[message["id"]].set_result(message["result"])
            case "Page.loadEventFired":
                self.loaded.set()
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(told["entry"]["text"])
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(told["args"]))


@asynccontextmanager
async def opened(address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> AsyncIterator[Page]:
    """A page that has loaded, in a browser of its own."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            chromium,
            *FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stderr
            port = await asyncio.wait_for(_port(process.stderr), LIMIT_S)
            async with aiohttp.ClientSession() as session:
                tabs = await (await session.get(f"http://127.0.0.1:{port}/json/list")).json()
                tab = next(tab for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    listener = asyncio.create_task(page.listen())
                    await _open(page, address, width, height, dark)
                    yield page
                    await page.call("Browser.close")
                    listener.cancel()
                    await asyncio.wait_for(process.wait(), LIMIT_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _port(told: asyncio.StreamReader) -> str:
    """Where the browser listens, as it says when it does."""
    async for line in told:
        if found := re.search(rb"listening on ws://127\.0\.0\.1:(\d+)", line):
            return found[1].decode()
    raise AssertionError("Chromium ended before it listened")


async def _open(page: Page, address: str, width: int, height: int, dark: bool) -> None:
    for domain in ("Page", "Network", "Runtime", "Log"):
        await page.call(f"{domain}.enable")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    await page.call("Emulation.setEmulatedMedia", features=[scheme])
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    await page.call("Emulation.setDeviceMetricsOverride", **size)
    page.loaded.clear()
    await page.call("Page.navigate", url=address)
    await asyncio.wait_for(page.loaded.wait(), LIMIT_S)
