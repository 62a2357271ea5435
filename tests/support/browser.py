"""A real browser without a window, driven through its own pipe.

    with Browser(tmp_path) as browser:
        page = browser.open("https://127.0.0.1:6443/ui/")
        page.until("document.title === 'kvstack'")

Chromium speaks its DevTools protocol over two pipes, JSON messages that end with a zero byte; no
port is opened. Certificates are not checked, and nothing but the loopback is reached.

A browser ends its requests when an interface of the machine comes or goes, as those of pods do all
the time. So it has a network of its own where that can be made (`OwnNetwork`), with nothing but a
loopback, and the ports that it is to reach are relayed into it.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from tests.support.network.tcp_proxy import TcpProxy
from tests.support.waiting import wait_for

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


_CODES: Final = {
    "Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "End": 35, "Home": 36,
}  # fmt: skip


_CLONE_NEWNET: Final = 0x40000000
_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_UP: Final = 1


def _may_unshare() -> bool:
    """Tell whether this process may make networks."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return done.returncode == 0


class OwnNetwork:
    """The network of a process that was started by `unshare --net`."""

    def __init__(self, pid: int) -> None:
        """Wait for it, and bring its loopback up."""
        own, theirs = Path("/proc/self/ns/net").readlink(), Path(f"/proc/{pid}/ns/net")
        wait_for(lambda: theirs.readlink() != own, "the browser has a network of its own")
        self._descriptor = os.open(theirs, os.O_RDONLY)
        self._relays: dict[int, TcpProxy] = {}
        self._inside(_raise_loopback)

    def _inside(self, do: Callable[[], None]) -> None:
        """Do something in a thread of the network; sockets that it makes stay there."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                assert not libc.setns(self._descriptor, _CLONE_NEWNET), ctypes.get_errno()
                do()
            except BaseException as error:  # noqa: BLE001 - it is raised by whoever waits
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def reach(self, port: int) -> None:
        """Let the network reach a port of this one's loopback."""
        if port in self._relays:
            return
        made: list[socket.socket] = []
        self._inside(lambda: made.append(socket.create_server(("127.0.0.1", port), backlog=128)))
        self._relays[port] = TcpProxy(port, made[0]).__enter__()

    def close(self) -> None:
        """Relay nothing more."""
        for each in self._relays.values():
            each.__exit__(None, None, None)
        os.close(self._descriptor)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(asked, _SIOCGIFFLAGS, request))
        fcntl.ioctl(asked, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


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
        is_apart = _may_unshare()
        self._process = subprocess.Popen(
            [
                *(("unshare", "--net") if is_apart else ()),
                "bash",
                "-c",
                command,
                PROGRAM,
                *_FLAGS,
                f"--user-data-dir={directory / 'profile'}",
            ],
            stdout=self._log,
            stderr=self._log,
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._network = OwnNetwork(self._process.pid) if is_apart else None
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
        if self._network is not None:
            self._network.close()
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

    def reach(self, url: str) -> None:
        """Let pages reach the server of a URL; `open` does."""
        if self._network is not None and (port := urlsplit(url).port) is not None:
            self._network.reach(port)

    def open(self, url: str, *, before: Callable[["Page"], None] | None = None) -> "Page":
        """Return a new page at a URL, with what a browser keeps of its own.

        before: called before the page is loaded.
        """
        self.reach(url)
        context = self.call("Target.createBrowserContext")["browserContextId"]
        made = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        target = made["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        if before is not None:
            before(page)
        page.call("Page.navigate", url=url)
        return page


class Page:
    """One page."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self._answered: set[str] = set()

    def close(self) -> None:
        """Leave the page; what was known of it is forgotten."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)
        kept = [each for each in self._browser.events if each.get("sessionId") != self._session]
        self._browser.events = kept

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the browser has told of this page."""
        return [each for each in self._browser.events if each.get("sessionId") == self._session]

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
        shown = self.run("(document.querySelector('main') || document.body).innerText")
        told = "\n".join([shown[:5000], *self.unanswered()[-20:], *self.complaints()])
        raise AssertionError(f"not within {TIMEOUT_S} s: {condition}\n{told}")

    def text(self) -> str:
        """Return what the page shows."""
        return str(self.run("document.body.innerText"))

    def press(self, key: str, *, is_control: bool = False) -> None:
        """Press and release a key."""
        modifiers = 2 if is_control else 0
        code = _CODES.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            text = key if len(key) == 1 and kind == "keyDown" and not is_control else ""
            text = "\r" if key == "Enter" and kind == "keyDown" else text
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=text,
                modifiers=modifiers,
                windowsVirtualKeyCode=code,
            )

    def paused(self, part: str) -> str:
        """Wait for a request that `Fetch.enable` holds, whose URL has a part; return its id."""
        end = time.monotonic() + TIMEOUT_S
        seen: set[str] = set()
        while time.monotonic() < end:
            self.run("new Promise((resolve) => setTimeout(resolve, 20))")
            for each in self.events:
                about = each.get("params", {})
                if each.get("method") != "Fetch.requestPaused" or about["requestId"] in seen:
                    continue
                seen.add(about["requestId"])
                if about["requestId"] in self._answered:
                    continue
                self._answered.add(about["requestId"])
                if part in about["request"]["url"]:
                    return str(about["requestId"])
                self.call("Fetch.continueRequest", requestId=about["requestId"])
        raise AssertionError(f"nothing was asked for {part}")

    def write(self, text: str) -> None:
        """Insert a text where the cursor is."""
        self.call("Input.insertText", text=text)

    def complaints(self) -> list[str]:
        """Return what the page logged as errors, refusals of the content policy among them."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"])[:500])
            entry = parameters.get("entry", {})
            is_refused = entry.get("source") in ("security", "violation")
            if event.get("method") == "Log.entryAdded" and is_refused:
                found.append(entry["text"])
        return found

    def until_complaint(self, word: str) -> None:
        """Wait until the page has logged an error with a word; it may come after what it is of."""
        end = time.monotonic() + TIMEOUT_S
        while not any(word in each.lower() for each in self.complaints()):
            assert time.monotonic() < end, (word, self.complaints())
            self.run("new Promise((resolve) => setTimeout(resolve, 20))")

    def requested(self) -> list[dict[str, Any]]:
        """Return the requests of the page so far."""
        self.run("0")  # what was sent before is known by now
        return [
            each["params"]["request"]
            for each in self.events
            if each.get("method") == "Network.requestWillBeSent"
        ]

    def unanswered(self) -> list[str]:
        """Return what became of the requests that were not answered well, or not to their end."""
        self.run("0")
        found: dict[str, str] = {}
        for each in self.events:
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
