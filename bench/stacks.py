"""`kvstack up` as a user starts it: a process with a cluster of its own.

    with Stack.started(directory, "--nodes=100") as stack:
        stack.ask("GET", "/api/v1/nodes")
        memory(stack.pid)

Requests are the administrator's, by the certificate that the stack made.
"""

import json
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from tests.support.servers import free_ports

READY_S: Final = 300.0
_STOP_S: Final = 60.0
_REQUEST_S: Final = 120.0
_POLL_S: Final = 0.02


class Stack:
    """One process."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path, url: str) -> None:
        """Watch a process that was started; directory: where it keeps its data."""
        self.pid: Final = process.pid
        self._process = process
        self._directory = directory
        self._url = url
        self._opened: ssl.SSLContext | None = None

    @classmethod
    @contextmanager
    def started(cls, directory: Path, *flags: str) -> Iterator[Self]:
        """Start it, on what is in the directory if there is something; end it whatever happens."""
        directory.mkdir(parents=True, exist_ok=True)
        store, api = free_ports(2)
        command = [sys.executable, "-m", "kvstack", "up", f"--data-dir={directory / 'data'}"]
        command += [f"--listen-client-urls=http://127.0.0.1:{store}", f"--secure-port={api}"]
        with (directory / "log").open("ab") as log:
            process = subprocess.Popen([*command, *flags], stdout=log, stderr=log)
        try:
            yield cls(process, directory, f"https://127.0.0.1:{api}")
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            finally:
                process.kill()
                process.wait()

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send one request; return the answer's document."""
        found: dict[str, Any] = json.loads(self._asked(method, path, body))
        return found

    def _asked(self, method: str, path: str, body: object = None) -> bytes:
        if self._opened is None:
            pki = self._directory / "data" / "kubernetes" / "pki"
            opened = ssl.create_default_context(cafile=pki / "ca.crt")
            opened.load_cert_chain(pki / "admin.crt", pki / "admin.key")
            self._opened = opened
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, context=self._opened, timeout=_REQUEST_S) as answer:
            content: bytes = answer.read()
        return content

    def wait_ready(self) -> None:
        """Wait until the API server says that it is ready."""
        limit_s = time.monotonic() + READY_S
        while True:
            try:
                self._asked("GET", "/readyz")
            except OSError as error:  # no certificate, no listener yet
                self._check(limit_s, str(error))
            else:
                return
            time.sleep(_POLL_S)

    def wait_for(self, path: str, name: str, count: int, limit_s: float) -> None:
        """Wait until a number in an object's status is at least count; it is polled."""
        end_s = time.monotonic() + limit_s
        while True:
            found = (self.ask("GET", path).get("status") or {}).get(name) or 0
            if found >= count:
                return
            self._check(end_s, f"{path}: {name} is {found}, not {count}")
            time.sleep(_POLL_S)

    def _check(self, limit_s: float, what: str) -> None:
        if self._process.poll() is not None or time.monotonic() > limit_s:
            log = (self._directory / "log").read_text()[-4000:]
            raise RuntimeError(f"kvstack up ended, or takes too long: {what}: {log}")
