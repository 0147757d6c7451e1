"""A headless Chromium that opens pages of this machine: for the tests of the report, and for the pictures of the documentation.

Spoken through a pair of pipes (``--remote-debugging-pipe``), one JSON message after another, each ended by a zero byte: the protocol needs
no package and no port.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SECONDS = 90
"""A page or an answer that takes longer is an error: the machine of a test may be very busy."""


def browser_command() -> str | None:
    """Return the path of a Chromium or Chrome; None where it has none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserPage:
    """One tab of a browser. ``events``: every message that is not an answer, in order."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer to a command. Raises RuntimeError where the browser refuses it, TimeoutError where no answer comes."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def look_like(self, width: int, height: int, scheme: str = "light") -> None:
        """Width and height of the window in CSS pixels; scheme: light or dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, page: Path, fragment: str = "") -> None:
        """Opens a page, and waits until its pictures are drawn or it says that they cannot be."""
        self.ask("Page.navigate", url="about:blank")  # the same page with another fragment would not be opened again
        self.events.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri() + fragment)
        until = time.monotonic() + SECONDS
        while not self.run("document.documentElement?.dataset.shownAfter || document.getElementById('failure')?.hidden === false"):
            if time.monotonic() > until:
                raise TimeoutError(f"{page} is not shown after {SECONDS} s: {self.complaints()}")
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """Return the value of an expression, awaited where it is a promise. Raises RuntimeError where it fails."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Return what the page wrote to the console, or what the browser wrote about the page, warnings included."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
            elif event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"])[:500])
            elif event.get("method") == "Log.entryAdded":
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Return the requests of the page, itself left out."""
        urls = [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls[1:] if not url.startswith("data:")]

    def screenshot(self, out: Path, clip: dict[str, float] | None = None) -> None:
        """Save a PNG of the window, or of a part of the page in CSS pixels: x, y, width, height."""
        part = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        out.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png", **part)["data"]))

    def place_of(self, selector: str) -> dict[str, float]:
        """Find the place of an element on the page, for ``screenshot``."""
        place: dict[str, float] = self.run(
            f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}; })()"
        )
        return place

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"the browser has not answered for {SECONDS} s")
            piece = os.read(self._from, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser_page(command: str) -> Iterator[BrowserPage]:
    """Yield a tab of a browser that ends with the block. command: as ``browser_command`` finds it."""
    with tempfile.TemporaryDirectory() as profile:
        to_browser, ours_to = os.pipe()
        ours_from, from_browser = os.pipe()
        # The browser reads from its descriptor 3 and writes to 4, whatever numbers the pipes have here.
        arguments = [command, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        arguments += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *arguments],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield BrowserPage(ours_to, ours_from)
        finally:
            os.close(ours_to)  # the browser ends when its pipe does
            os.close(ours_from)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
