"""A headless Chromium driven over its debugging pipe: what a page logs, what it asks the network for, what it shows."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. events: every message of the page's log, console and network, as the protocol gives them."""

    def __init__(self, binary: str, profile: Path):
        reads, self._commands = os.pipe()  # Chromium reads commands from descriptor 3 and answers on 4
        self._answers, writes = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{reads} 4>&{writes}', binary, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._rest = b""
        self._last = 0
        self._session: dict = {}
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict:
        while b"\0" not in self._rest:
            block = os.read(self._answers, 1 << 16)
            if not block:
                raise EOFError("Chromium ended")
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **params) -> dict:
        self._last += 1
        request = {"id": self._last, "method": method, "params": params, **self._session}
        os.write(self._commands, json.dumps(request).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._last:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def evaluate(self, expression: str):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, url: str, width: int, height: int) -> None:
        """Load the page and wait until it is done."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.events.clear()
        self.call("Page.navigate", url=url)
        while self.evaluate("location.href + document.readyState") != f"{url}complete":
            time.sleep(0.05)

    def screenshot(self, path: Path) -> None:
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(image["data"]))

    def errors(self) -> list[dict]:
        """Exceptions, and what was logged as a warning or an error."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            level = params.get("entry", {}).get("level") or params.get("type")
            logged = event.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled")
            if event.get("method") == "Runtime.exceptionThrown" or (logged and level in ("error", "warning", "assert")):
                found.append(event)
        return found

    def requests(self) -> list[str]:
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._session = {}
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
