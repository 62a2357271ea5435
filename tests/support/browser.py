"""A real browser without a window, driven through its own pipe.

    with Browser(tmp_path) as browser:
        page = browser.open("https://127.0.0.1:6443/ui/")
        page.until("document.title === 'kvstack'")

Chromium speaks its DevTools protocol over two pipes, JSON messages that end with a zero byte; no
port is opened. Certificates are not checked, and nothing but the loopback is reached.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

PROGRAM: Final = shutil.which("chromium")
TIMEOUT_S: Final = 120.0
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--ignore-certificate-errors",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1280,800",
    "--remote-debugging-pipe",
)


class Browser:
    """A process of chromium and its messages."""

    def __init__(self, directory: Path) -> None:
        """Start it; directory: for its files."""
        assert PROGRAM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._log = (directory / "browser.log").open("wb")
        self._process = subprocess.Popen(
            ["bash", "-c", command, PROGRAM, *_FLAGS, f"--user-data-dir={directory / 'profile'}"],
            stdout=self._log,
            stderr=self._log,
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and all its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._log.close()

    def call(self, method: str, session: str = "", **parameters: object) -> dict[str, Any]:
        """Ask the browser; return its result. AssertionError for what it refuses."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)
        raise AssertionError(f"the browser ended during {method}")

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" in self._rest:
                text, _, self._rest = self._rest.partition(b"\0")
                yield json.loads(text)
            piece = os.read(self._in, 1 << 16)
            if not piece:
                return
            self._rest += piece

    def open(self, url: str) -> "Page":
        """Return a new page at a URL."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Page.navigate", url=url)
        return page


class Page:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Ask the page."""
        return self._browser.call(method, self._session, **parameters)

    def run(self, script: str) -> Any:
        """Return the value of an expression; AssertionError if it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + TIMEOUT_S
        script = f"""new Promise((resolve) => {{
          const end = Date.now() + 1000;
          const look = () => {{
            let found;
            try {{ found = ({condition}); }} catch {{ found = false; }}
            if (found || Date.now() > end) resolve(Boolean(found)); else setTimeout(look, 20);
          }};
          look();
        }})"""
        while time.monotonic() < end:
            try:
                found = self.run(script)
            except AssertionError as error:
                if "navigated" not in str(error) and "context" not in str(error).lower():
                    raise
                continue  # the page has just been left
            if found:
                return
        told = "\n".join([self.text(), *self.unanswered(), *self.complaints()])
        raise AssertionError(f"not within {TIMEOUT_S} s: {condition}\n{told}")

    def text(self) -> str:
        """Return what the page shows."""
        return str(self.run("document.body.innerText"))

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            text = key if len(key) == 1 and kind == "keyDown" else ""
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text)

    def write(self, text: str) -> None:
        """Insert a text where the cursor is."""
        self.call("Input.insertText", text=text)

    def complaints(self) -> list[str]:
        """Return what the page logged as errors, refusals of the content policy among them."""
        found = []
        for event in self._browser.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"])[:500])
            entry = parameters.get("entry", {})
            if event.get("method") == "Log.entryAdded" and entry.get("source") == "security":
                found.append(entry["text"])
        return found

    def requested(self) -> list[dict[str, Any]]:
        """Return the requests of the page so far."""
        self.run("0")  # what was sent before is known by now
        return [
            each["params"]["request"]
            for each in self._browser.events
            if each.get("method") == "Network.requestWillBeSent"
        ]

    def unanswered(self) -> list[str]:
        """Return what became of the requests that were not answered well, or not to their end."""
        self.run("0")
        found: dict[str, str] = {}
        for each in self._browser.events:
            method, about = str(each.get("method")), each.get("params", {})
            if method == "Network.requestWillBeSent":
                found[about["requestId"]] = f"{about['request']['url']}: not answered"
            elif about.get("requestId") in found:
                url = found[about["requestId"]].rpartition(": ")[0]
                if method == "Network.responseReceived":
                    found[about["requestId"]] = f"{url}: {about['response']['status']}, not whole"
                elif method == "Network.loadingFailed":
                    found[about["requestId"]] = f"{url}: {about['errorText']}"
                elif (
                    method == "Network.loadingFinished"
                    and "200, not whole" in found[about["requestId"]]
                ):
                    del found[about["requestId"]]
        return list(found.values())

    def picture(self, path: Path) -> None:
        """Write a PNG of the page."""
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
