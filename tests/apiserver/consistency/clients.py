"""Clients of several API servers: they write, list and watch counters, each in a thread.

A client goes on with another server when one fails it, and notes what it has seen. It knows no more
than any user: a write that was not answered may have taken place.
"""

import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from tests.apiserver.consistency.history import Event, History, Read, Values, Write
from tests.apiserver.support.api_servers import ADMIN_TOKEN, ApiServer, trusting
from tests.apiserver.support.requests import Connection, RefusedError

MAPS = "/api/v1/namespaces/default/configmaps"
LABEL = "counter=yes"
REQUEST_TIMEOUT_S = 4.0
WATCH_TIMEOUT_S = 8  # a stream is renewed as often, also without faults
PAUSE_S = 0.02
LOST = (OSError, http.client.HTTPException, json.JSONDecodeError)


class Client:
    """One client and its thread."""

    def __init__(
        self, name: str, servers: Sequence[ApiServer], history: History, seed: int
    ) -> None:
        self.name = name
        self.history = history
        self.random = random.Random(f"{seed} {name}")
        self._connections = [Connection(each, timeout_s=REQUEST_TIMEOUT_S) for each in servers]
        self.servers = servers
        self._current = self.random.randrange(len(servers))
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tell it to end; `join` waits."""
        self._stop.set()

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} goes on"
        for connection in self._connections:
            connection.close()
        if self.failure is not None:
            raise self.failure

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the current server; on to the next if it is lost."""
        try:
            return self._connections[self._current].ask(method, path, body)
        except LOST:
            self.turn()
            raise

    def turn(self) -> None:
        """Go on with the next server."""
        self._current = (self._current + 1) % len(self._connections)

    @property
    def server(self) -> ApiServer:
        return self.servers[self._current]

    def step(self) -> None:
        """Do one thing."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self.is_stopped:
                try:
                    self.step()
                except LOST:
                    time.sleep(PAUSE_S)
                except RefusedError as error:
                    if error.code < 429:
                        raise
                    self.turn()
                    time.sleep(PAUSE_S)
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            self.failure = error


def values_of(items: Sequence[dict[str, Any]]) -> Values:
    """Return the counters' values in a list."""
    return {each["metadata"]["name"]: int(each["data"]["n"]) for each in items}


class Writer(Client):
    """Raises counters by one, guarded by the revision it has read."""

    counters: Sequence[str] = ()

    @override
    def step(self) -> None:
        counter = self.random.choice(self.counters)
        found = self.ask("GET", f"{MAPS}/{counter}")
        value = int(found["data"]["n"]) + 1
        found["data"]["n"] = str(value)
        began_s = time.monotonic()
        try:
            done = self.ask("PUT", f"{MAPS}/{counter}", found)
        except RefusedError as error:
            if error.code == 409:  # somebody was faster
                return
            self._note(counter, value, 0, began_s)
            raise
        except LOST:
            self._note(counter, value, 0, began_s)
            raise
        self._note(counter, value, int(done["metadata"]["resourceVersion"]), began_s)

    def _note(self, counter: str, value: int, revision: int, began_s: float) -> None:
        self.history.add(Write(counter, value, revision, began_s, time.monotonic()))


class Lister(Client):
    """Lists all counters, now here, now there; no resourceVersion: the newest there is."""

    @override
    def step(self) -> None:
        self._current = self.random.randrange(len(self.servers))
        began_s = time.monotonic()
        found = self.ask("GET", f"{MAPS}?labelSelector={LABEL}")
        revision = int(found["metadata"]["resourceVersion"])
        self.history.add(Read(self.name, revision, values_of(found["items"]), began_s))


class Watcher(Client):
    """Lists once, then watches on and on from the last revision it knows."""

    revision = ""
    values: Values

    @override
    def step(self) -> None:
        if not self.revision:
            found = self.ask("GET", f"{MAPS}?labelSelector={LABEL}")
            self.values = values_of(found["items"])
            self.history.begin(self.name, dict(self.values))
            self.revision = found["metadata"]["resourceVersion"]
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.server.port, timeout=REQUEST_TIMEOUT_S, context=trusting()
        )
        path = (
            f"{MAPS}?watch=1&labelSelector={LABEL}&resourceVersion={self.revision}"
            f"&timeoutSeconds={WATCH_TIMEOUT_S}&allowWatchBookmarks=true"
        )
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
            response = connection.getresponse()
            if response.status != 200:
                raise OSError(f"watch: {response.status}")
            self._read(response)
        finally:
            connection.close()
            self.turn()

    def _read(self, response: http.client.HTTPResponse) -> None:
        """Take events until the stream ends; a line torn off by the end of a server is none."""
        while not self.is_stopped:
            line = response.readline()
            if not line.endswith(b"\n"):
                return
            event = json.loads(line)
            kind, body = event["type"], event["object"]
            if kind == "ERROR":
                raise OSError(f"watch: {body}")
            self.revision = body["metadata"]["resourceVersion"]
            if kind != "BOOKMARK":
                name, value = body["metadata"]["name"], int(body["data"]["n"])
                self.history.add(Event(self.name, name, value, int(self.revision)))
                self.values[name] = value
