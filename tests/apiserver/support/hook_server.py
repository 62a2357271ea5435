"""A webhook as tests need it: HTTPS on loopback, answers as told, and what it was sent is kept.

    with HookServer() as hooks:
        hooks.answers["/deny"] = {"status": 200, "json": {…"uid": "{uid}"…}}
        hooks.url, hooks.ca         where it is, and the base64 PEM of its authority
        hooks.calls                 [{"path": "/deny", "query": "timeout=10s", "review": {…}}]

An answer is a dict (`status`, `headers`, `json` or `text`, `delay` in seconds; `{uid}` stands for
that of the request), or a function from a review to such a dict.
"""

import base64
import http.server
import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from kvstack.apimachinery.objects.json_object import Object
from tests.support.certificates import Authority

How = Object | Callable[[Object], Object]


class HookServer:
    """The server; threads answer."""

    def __init__(self) -> None:
        self.answers: dict[str, How] = {}
        self.calls: list[Object] = []
        self._folder = tempfile.TemporaryDirectory()
        directory = Path(self._folder.name)
        authority = Authority(directory, "webhook-ca")
        certificate, key = authority.issue("webhook", host="")
        self.ca = base64.b64encode(Path(authority.file).read_bytes()).decode()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._closed = socket.socket()
        self._closed.bind(("127.0.0.1", 0))  # bound, and nobody listens
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def closed_port(self) -> str:
        """An address at which nobody listens."""
        return f"127.0.0.1:{self._closed.getsockname()[1]}"

    @property
    def placeholders(self) -> dict[str, str]:
        """What stands for it in recordings."""
        return {
            "{webhook}": self.url,
            "{webhook-localhost}": self.url.replace("127.0.0.1", "localhost"),
            "{webhook-ca}": self.ca,
            "{closed-port}": self.closed_port,
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._closed.close()
        self._thread.join()
        self._folder.cleanup()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    @override
    def handle_error(self, *_: Any) -> None:
        """Clients go as they like."""


def allowing(**response: Any) -> Object:
    """Return the answer of a webhook that allows what it is asked."""
    return reviewing(allowed=True, **response)


def reviewing(**response: Any) -> Object:
    """Return the answer of an admission webhook."""
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "{uid}", **response},
    }
    return {"status": 200, "json": review}


def patching(*operations: Object) -> Object:
    """Return the answer of a webhook that changes the object."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return allowing(patchType="JSONPatch", patch=patch)


def _handler(owner: HookServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        wbufsize = -1  # head and body leave together, as from any server of webhooks
        disable_nagle_algorithm = True
        protocol_version = "HTTP/1.1"

        @override
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path, _, query = self.path.partition("?")
            owner.calls.append(
                {
                    "path": path,
                    "query": query,
                    "content-type": self.headers["Content-Type"],
                    "accept": self.headers["Accept"],
                    "review": review,
                }
            )
            how = owner.answers.get(path, {"status": 404})
            if callable(how):
                how = how(review)
            time.sleep(how.get("delay", 0))
            text = how.get("text", "")
            if "json" in how:
                uid = (review.get("request") or {}).get("uid", "")
                text = json.dumps(how["json"]).replace("{uid}", uid)
            self._send(how["status"], how.get("headers", {}), text.encode())

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            length = {"Content-Length": str(len(body))}
            try:
                self.send_response(status)
                for name, value in {
                    "Content-Type": "application/json",
                    **headers,
                    **length,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client did not wait

    return Handler
