"""Plain requests to an API server, for what a test needs around its subject."""

import http.client
import json
from typing import Any

from tests.apiserver.support.api_servers import ADMIN_TOKEN, ApiServer, trusting

TIMEOUT_S = 60.0


class RefusedError(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, status: dict[str, Any]) -> None:
        super().__init__(f"{code} {status.get('message')}")
        self.code = code
        self.status = status


class Connection:
    """One kept connection; opened anew when it was lost."""

    def __init__(self, server: ApiServer, *, timeout_s: float = TIMEOUT_S) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._context = trusting()
        self._open: http.client.HTTPSConnection | None = None

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        token: str = ADMIN_TOKEN,
    ) -> Any:
        """Send one request; return the answer's document. RefusedError if it is an error."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": content_type}
        if self._open is None:
            self._open = http.client.HTTPSConnection(
                "127.0.0.1", self._server.port, timeout=self._timeout_s, context=self._context
            )
        try:
            content = None if body is None else json.dumps(body)
            self._open.request(method, path, content, headers)
            response = self._open.getresponse()
            answer = response.read()
        except BaseException:
            self.close()
            raise
        document = json.loads(answer) if answer else None
        if response.status >= 400:
            raise RefusedError(response.status, document or {})
        return document

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None


def send(server: ApiServer, method: str, path: str, body: Any = None, **options: Any) -> Any:
    """Send one request on a connection of its own."""
    connection = Connection(server)
    try:
        return connection.ask(method, path, body, **options)
    finally:
        connection.close()
