"""Sends the node's requests to other members: tasks of the kinds GET_PEER and POST_PEER.

    start(task) ──► queue of TASKS_MAX ──► THREADS threads ──► HTTP ──► on_done(result)

A task's args are (member id in hex, path and query, body) and, if the request is made on behalf of
a client, the value of its Authorization header. The member's URLs are tried one after another until
one can be connected to. A result's error is empty for status 200, "HTTP <status>" for any other,
with the response body, and else the reason why there was no response.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstore.batch import OffloadedTask, TaskKind, TaskResult
from kvstore.peers.http_client import (
    ANSWER_BYTES_MAX,
    HttpConnection,
    PeerRequestError,
    dial,
)
from kvstore.peers.identity import Identity, parse_id
from kvstore.peers.tls import PeerTls
from kvstore.peers.worker_threads import WorkerThreads

THREADS: Final = 8
TASKS_MAX: Final = 1024
_IDLE_S: Final = 3.0
_ARGS: Final = (3, 4)
METHODS: Final = {TaskKind.GET_PEER: "GET", TaskKind.POST_PEER: "POST"}


class PeerTasks:
    """A few threads, one queue."""

    def __init__(
        self,
        identity: Identity,
        urls_of: Callable[[int], Sequence[str]],
        *,
        tls: PeerTls,
        dial_timeout_s: float,
        timeout_s: float,
        on_done: Callable[[TaskResult], None],
    ) -> None:
        """urls_of returns the peer URLs of a known member; on_done is called in any thread.

        timeout_s is the limit of one request.
        """
        self._identity = identity
        self._urls_of = urls_of
        self._tls = tls
        self._dial_timeout_s = dial_timeout_s
        self._timeout_s = timeout_s
        self._on_done = on_done
        self._workers: WorkerThreads[OffloadedTask] = WorkerThreads(
            "peer-task", self._run, threads_max=THREADS, queue_max=TASKS_MAX, idle_s=_IDLE_S
        )

    def start(self, task: OffloadedTask) -> None:
        """Queue a task of a kind in METHODS; does not block."""
        if not self._workers.put(task):
            text = f"more than {TASKS_MAX} requests to other members are waiting"
            self._on_done(TaskResult(task.id, text, b""))

    def stop(self) -> None:
        """Drop the queue; requests in progress run to their end."""
        self._workers.stop()

    def _run(self) -> None:
        kept: dict[str, HttpConnection] = {}  # idle connections of this thread by URL
        while (task := self._workers.take()) is not None:
            self._on_done(self._run_task(task, kept))
        for connection in kept.values():
            connection.close()

    def _run_task(self, task: OffloadedTask, idle: dict[str, HttpConnection]) -> TaskResult:
        if len(task.args) not in _ARGS:
            return TaskResult(task.id, f"task of {len(task.args)} args", b"")
        member, target, body = task.args[:3]
        headers = self._identity.headers()
        if body:
            headers.append(("Content-Type", "application/protobuf"))
        if len(task.args) == _ARGS[1] and task.args[3]:
            headers.append(("Authorization", task.args[3].decode("latin-1")))
        member_id = parse_id(member.decode("ascii", "replace")) or 0
        error = f"member {member.decode('ascii', 'replace')} is not known"
        for url in self._urls_of(member_id):
            try:
                connection = self._connect(url, idle)
            except PeerRequestError as failure:
                error = str(failure)
                continue
            return self._ask(task, url, connection, target.decode(), headers, body, idle)
        return TaskResult(task.id, error, b"")

    def _connect(self, url: str, idle: dict[str, HttpConnection]) -> HttpConnection:
        connection = idle.pop(url, None)
        if connection is not None and connection.is_stale:
            connection.close()
            connection = None
        return connection or dial(url, self._tls, self._dial_timeout_s)

    def _ask(
        self,
        task: OffloadedTask,
        url: str,
        connection: HttpConnection,
        target: str,
        headers: list[tuple[str, str]],
        body: bytes,
        idle: dict[str, HttpConnection],
    ) -> TaskResult:
        try:
            answer = connection.ask(
                METHODS[task.kind],
                target,
                headers,
                body,
                timeout_s=self._timeout_s,
                bytes_max=ANSWER_BYTES_MAX,
            )
        except PeerRequestError as error:
            connection.close()
            return TaskResult(task.id, str(error), b"")
        if connection.is_reusable:
            idle[url] = connection
        else:
            connection.close()
        text = "" if answer.status == 200 else f"HTTP {answer.status}"
        return TaskResult(task.id, text, answer.body)
