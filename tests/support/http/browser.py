"""A real browser for tests: Debian's chromium, without a window, spoken to over two pipes.

    with browsing() as browser:
        page = browser.open(url, width=390, height=844)
        page.wait_for("document.title !== 'kvstore'")
        page.evaluate("document.body.scrollWidth")

The pipes carry the DevTools protocol, a JSON message a NUL. No port is opened, nothing is kept.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.waiting import wait_for

WAIT_S = 60.0
_READ_BYTES = 1 << 20
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)


def chromium() -> str:
    """Return the browser's path; skip the test, by name, where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (path := shutil.which(name)) is not None:
            return path
    pytest.skip("needs chromium (apt-get install chromium)")


class Page:
    """One tab."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        return self._browser.call(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page; AssertionError if it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Evaluate until it is true; return the value."""
        return wait_for(
            lambda: self.evaluate(expression), lambda: f"{expression}: {self.text()}", WAIT_S
        )

    def text(self) -> str:
        """Return what can be read on the page."""
        return str(self.evaluate("document.body.innerText"))

    def prefer(self, scheme: str) -> None:
        """Have the page see this color scheme: "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def events(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of the events of one kind so far."""
        return [
            event["params"]
            for event in self._browser.events
            if event["method"] == method and event.get("sessionId") == self._session
        ]


class Browser:
    """One chromium."""

    def __init__(self, path: str, profile: Path) -> None:
        self._number = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        commands_in, self._commands = os.pipe()
        self._answers, answers_out = os.pipe()
        command = [path, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        null = os.open(os.devnull, os.O_RDWR)
        low = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (commands_in, answers_out)]
        moves = [(null, 0), (null, 1), (null, 2), (low[0], 3), (low[1], 4)]
        self._pid = os.posix_spawn(
            path,
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in moves],
            setpgroup=0,
        )
        for each in (null, commands_in, answers_out, *low):
            os.close(each)

    def open(self, url: str, *, width: int, height: int) -> Page:
        """Open a tab of that size at url; requests and console messages are noted."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=True,
        )
        page.call("Page.navigate", url=url)
        return page

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Call a method and return its result; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        end_s = time.monotonic() + WAIT_S
        while True:
            answer = self._read(end_s)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def close(self) -> None:
        """End the browser and all its processes, by the group it was started in."""
        os.close(self._commands)
        os.close(self._answers)
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _read(self, end_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(end_s - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            data = os.read(self._answers, _READ_BYTES)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def browsing() -> Iterator[Browser]:
    """Run a browser with a profile of its own."""
    path = chromium()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Browser(path, Path(profile)) as browser,
    ):
        yield browser
