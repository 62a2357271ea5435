"""Serves a kubelet's HTTPS API.

    GET        /containerLogs/NAMESPACE/POD/CONTAINER
    GET, POST  /exec/NAMESPACE/POD[/UID]/CONTAINER     and /attach, /portForward/NAMESPACE/POD[/UID]
    POST       /run/NAMESPACE/POD[/UID]/CONTAINER?cmd=
    GET        /pods  /runningpods/  /stats/summary  /configz  /logs/  /checkpoint (refused)
    GET        /metrics  /metrics/resource  /metrics/cadvisor  /metrics/probes
    GET        /healthz  /healthz/{ping,log,syncloop}

Streams are upgraded to WebSocket or SPDY/3.1 (`upgrades`).
"""

import asyncio
import contextlib
import mimetypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qs, quote, unquote, urlsplit

import orjson

from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.configuration import whole
from kvstack.agents.kubelet.kubelet import Kubelet
from kvstack.agents.kubelet.pods.sandboxes import containers_of
from kvstack.agents.kubelet.runtime.runtime import Container, Session, StartError
from kvstack.agents.kubelet.runtime.runtime import Stream as Connection
from kvstack.agents.kubelet.server import log_stream, metrics, remote_command, upgrades, wires
from kvstack.agents.kubelet.server.access import Access
from kvstack.agents.kubelet.server.port_forward import SpdyForwarder, forward_channels
from kvstack.agents.kubelet.server.stats import Sampler, summary
from kvstack.agents.kubelet.server.upgrades import UpgradeError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import MIRROR_ANNOTATION
from kvstack.component.clock import Clock
from kvstack.component.flags.flag_reader import TLS_VERSIONS
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import ClientAuth, KeyPair, Listener, ServerTls
from kvstack.component.http.serving.request import ClientGoneError, Request
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.streams import websocket
from kvstack.component.streams.channels import Wants, WebSocketWire, failed_status

Query: TypeAlias = dict[str, list[str]]
Target: TypeAlias = tuple[str, str, str]
"""Namespace, pod, container."""

_TEXT: Final = [
    ("Content-Type", "text/plain; charset=utf-8"),
    ("X-Content-Type-Options", "nosniff"),
]
_LOG: Final = [("Content-Type", "text/plain")]
_JSON: Final = [("Content-Type", "application/json")]
_METRICS: Final = [("Content-Type", metrics.CONTENT_TYPE)]
_LOGS: Final = Path("/var/log").resolve()
_CLIENTS: Final = "clients"
_STREAMING: Final = ("exec", "attach", "portForward")
_DEBUGGING: Final = (*_STREAMING, "run", "containerLogs", "logs", "runningpods")
"""Paths that enableDebuggingHandlers turns off."""


class _RefusedError(Exception):
    """A request is answered with a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class KubeletServer:
    """Serves one kubelet."""

    def __init__(
        self,
        kubelet: Kubelet,
        access: Access,
        clock: Clock,
        url: str,
        pair: KeyPair,
        client_ca: str,
        configuration: Object | None = None,
    ) -> None:
        """Listen at an URL (https://) later; client_ca: who may vouch for clients, a file.

        configuration: /configz shows it and the defaults of what it lacks.
        """
        self._kubelet = kubelet
        self._access = access
        self._clock = clock
        self._configuration = configuration or {}
        self._debugs = self._configuration.get("enableDebuggingHandlers", True)
        self._sampler = Sampler(kubelet, clock)
        authorities = {_CLIENTS: client_ca} if client_ca else {}
        asks = ClientAuth.REQUEST if client_ca else ClientAuth.NONE
        tls = ServerTls(
            pair,
            client_auth=asks,
            authorities=authorities,
            min_version=TLS_VERSIONS[self._configuration.get("tlsMinVersion", "")],
            cipher_suites=tuple(self._configuration.get("tlsCipherSuites", ())),
            http2=False,
        )
        self._http = HttpServer([Listener(url, "kubelet", tls)], self._serve)

    async def start(self) -> None:
        """Listen; ConfigError for an address that cannot be had."""
        await self._http.start()

    @property
    def urls(self) -> list[str]:
        """The URLs that it listens on."""
        return self._http.urls

    async def stop(self, grace_s: float = 0.0) -> None:
        """End."""
        await self._http.stop(grace_s)

    async def _serve(self, request: Request, answer: Answer) -> None:
        path, _, query_text = request.target.partition("?")
        query = parse_qs(query_text, keep_blank_values=True)
        try:
            denied = await self._access.denied(request, path)
        except (ApiError, UnreachableError):
            answer.send(500, _TEXT, b"Internal Error")
            return
        if denied is not None:
            answer.send(denied.code, _TEXT, denied.text.encode())
            return
        parts = [unquote(each) for each in path.split("/")[1:]]
        if parts[0] in _DEBUGGING and not self._debugs:
            answer.send(405, _TEXT, b"Debug endpoints are disabled.\n")
            return
        try:
            if parts[0] in _STREAMING:
                await self._stream(request, answer, parts, query)
            else:
                await self._answer(request, answer, parts, query)
        except _RefusedError as error:
            answer.send(error.code, _TEXT, error.text.encode())
        except UpgradeError as error:
            answer.send(error.code, [*_TEXT, *error.headers], error.text.encode())

    def _whole_configuration(self) -> Object:
        """Return the configuration, with the port that is in use."""
        return whole({**self._configuration, "port": urlsplit(self.urls[0]).port})

    async def _answer(
        self, request: Request, answer: Answer, parts: list[str], query: Query
    ) -> None:
        match parts:
            case ["healthz"] | ["healthz", "ping" | "log" | "syncloop"]:
                answer.send(200, _TEXT, b"ok")
            case ["pods" | "allocatedPods"] | ["pods" | "allocatedPods", ""]:
                answer.send(200, _JSON, orjson.dumps(_pod_list(self._kubelet.pods())))
            case ["runningpods"] | ["runningpods", ""]:
                answer.send(200, _JSON, orjson.dumps(_pod_list(self._running_pods())))
            case ["configz"]:
                answer.send(
                    200, _JSON, orjson.dumps({"kubeletconfig": self._whole_configuration()})
                )
            case ["stats"] | ["stats", ""] | ["stats", "summary"]:
                sample = await self._sampler.take()
                is_short = log_stream.is_true(query, "only_cpu_and_memory")
                found = await asyncio.to_thread(summary, sample, only_cpu_and_memory=is_short)
                answer.send(200, _JSON, orjson.dumps(found))
            case ["metrics", *rest]:
                answer.send(200, _METRICS, (await self._metrics(rest)).encode())
            case ["containerLogs", namespace, pod, container]:
                await self._log(answer, namespace, pod, container, query)
            case ["run", namespace, pod, *_, container] if request.method == "POST":
                await self._run(answer, (namespace, pod, container), query)
            case ["logs", *rest]:
                await self._files(answer, rest)
            case ["checkpoint", _, _, _]:
                raise _RefusedError(500, "checkpointing is not supported by the runtime\n")
            case _:
                raise _RefusedError(404, "404 page not found\n")

    async def _metrics(self, parts: list[str]) -> str:
        match parts:
            case [] | [""]:
                return metrics.kubelet_metrics(self._kubelet)
            case ["probes"]:
                return metrics.probe_metrics(self._kubelet)
            case ["resource"]:
                return metrics.resource_metrics(await self._sampler.take())
            case ["cadvisor"]:
                return metrics.container_metrics(await self._sampler.take())
        raise _RefusedError(404, "404 page not found\n")

    def _running_pods(self) -> list[Object]:
        pods = []
        for pod in self._kubelet.pods():
            meta = pod["metadata"]
            running = [
                each for each in self._kubelet.runtime.of_pod(meta["uid"]) if each.is_running
            ]
            if running:
                names = {key: meta[key] for key in ("name", "namespace", "uid")}
                containers = [{"name": each.name, "image": each.image} for each in running]
                pods.append({"metadata": names, "spec": {"containers": containers}, "status": {}})
        return pods

    async def _files(self, answer: Answer, parts: Sequence[str]) -> None:
        """Answer with a file of /var/log, or a listing of a directory."""
        root = _LOGS
        path = await asyncio.to_thread(_resolved, root, parts)
        if not path.is_relative_to(root) or not await asyncio.to_thread(path.exists):
            raise _RefusedError(404, "404 page not found\n")
        if await asyncio.to_thread(path.is_dir):
            names = await asyncio.to_thread(_entries, path)
            lines = "".join(f'<a href="{quote(each)}">{each}</a>\n' for each in names)
            answer.send(200, [("Content-Type", "text/html; charset=utf-8")], lines.encode())
            return
        kind = mimetypes.guess_type(path.name)[0] or "text/plain; charset=utf-8"
        answer.send(200, [("Content-Type", kind)], await asyncio.to_thread(path.read_bytes))

    # Logs.

    def _pod(self, namespace: str, name: str) -> Object:
        found = self._kubelet.pod(namespace, name)
        if found is None:
            raise _RefusedError(404, f'pod "{name}" does not exist\n')
        return found

    def _containers(self, target: Target) -> Sequence[Container]:
        namespace, name, container = target
        found = self._pod(namespace, name)
        if all(each["name"] != container for each in containers_of(found)):
            raise _RefusedError(404, f'container "{container}" not found in pod "{name}"\n')
        uid = self._uid(found)
        return [each for each in self._kubelet.runtime.of_pod(uid) if each.name == container]

    def _uid(self, pod: Object) -> str:
        """Return under which uid the node runs a pod: that of a static pod is its own."""
        meta = pod["metadata"]
        found: str = (meta.get("annotations") or {}).get(MIRROR_ANNOTATION, meta["uid"])
        return found

    async def _log(self, answer: Answer, namespace: str, pod: str, name: str, query: Query) -> None:
        containers = self._containers((namespace, pod, name))
        try:
            selection = log_stream.selection_of(query, self._clock.now_s())
        except log_stream.QueryError:
            raise _RefusedError(422, '{"message": "Invalid request."}\n') from None
        is_previous = log_stream.is_true(query, "previous")
        if is_previous:
            containers = _previous(self._pod(namespace, pod), name, containers)
        if not containers:
            if is_previous:
                text = f'previous terminated container "{name}" in pod "{pod}" not found'
            else:
                text = f'container "{name}" in pod "{pod}" is waiting to start: '
                text += _waiting_reason(self._pod(namespace, pod), name)
            raise _RefusedError(400, text)
        container = containers[-1]
        if not await asyncio.to_thread(container.log.exists):
            text = f"unable to retrieve container logs for {self._kubelet.runtime.name}://"
            raise _RefusedError(400, f"{text}{container.id}")
        answer.start(200, _LOG, endless=True)
        pieces = log_stream.pieces(
            container.log,
            selection,
            follows=log_stream.is_true(query, "follow"),
            is_running=lambda: container.is_running,
        )
        async for piece in pieces:
            await answer.write(piece)

    # Streams.

    async def _stream(
        self, request: Request, answer: Answer, parts: list[str], query: Query
    ) -> None:
        match parts:
            case [("exec" | "attach") as what, namespace, pod, container]:
                await self._talk(request, answer, what, (namespace, pod, container), query)
            case [("exec" | "attach") as what, namespace, pod, _, container]:
                await self._talk(request, answer, what, (namespace, pod, container), query)
            case ["portForward", namespace, pod] | ["portForward", namespace, pod, _]:
                await self._forward(request, answer, namespace, pod, query)
            case _:
                raise _RefusedError(404, "404 page not found\n")

    def _running(self, target: Target) -> Container:
        if self._kubelet.pod(target[0], target[1]) is None:
            raise _RefusedError(404, "pod does not exist\n")
        try:
            running = [each for each in self._containers(target) if each.is_running]
        except _RefusedError:
            running = []
        if not running:
            raise _RefusedError(500, f'container not found ("{target[2]}")')
        return running[-1]

    async def _talk(
        self, request: Request, answer: Answer, what: str, target: Target, query: Query
    ) -> None:
        container = self._running(target)
        tty = container.has_tty if what == "attach" else log_stream.is_true(query, "tty")
        wants = Wants(
            log_stream.is_true(query, "input"),
            log_stream.is_true(query, "output"),
            log_stream.is_true(query, "error") and not tty,
            tty,
        )
        if not any(wants[:3]):
            raise _RefusedError(400, "you must specify at least 1 of stdin, stdout, stderr")
        wire = await _wire(request, answer, wants)
        if wire is None:
            return
        try:
            session = await self._session(container, what, query, tty=tty)
        except StartError as error:
            verb = "executing command in container" if what == "exec" else "attaching to container"
            text = f"error {verb}: {error.message}"
            with contextlib.suppress(OSError):  # the client has gone
                await wire.end(failed_status(text))
            return
        with contextlib.suppress(ClientGoneError):
            await remote_command.run(wire, session, wants)

    async def _session(
        self, container: Container, what: str, query: Query, *, tty: bool
    ) -> Session:
        runtime = self._kubelet.runtime
        if what == "attach":
            return await runtime.attach(container.id)
        return await runtime.exec(container.id, query.get("command", []), tty=tty)

    async def _run(self, answer: Answer, target: Target, query: Query) -> None:
        """Run a command, and answer with its output."""
        container = self._running(target)
        command = query.get("cmd", [""])[0].split()
        try:
            session = await self._kubelet.runtime.exec(container.id, command, tty=False)
        except StartError as error:
            raise _RefusedError(500, error.message) from error
        session.close_input()
        output = bytearray()
        try:
            while (piece := await session.read())[0]:
                output += piece[1]
        finally:
            session.close()
        answer.send(200, _JSON, bytes(output))

    async def _forward(
        self, request: Request, answer: Answer, namespace: str, name: str, query: Query
    ) -> None:
        pod = self._pod(namespace, name)
        uid = self._uid(pod)

        async def connect(port: int) -> Connection:
            return await self._kubelet.runtime.connect(uid, port)

        if websocket.is_asked(request) and not upgrades.is_tunnel(request):
            texts = [each for value in query.get("port", ()) for each in value.split(",")]
            if not texts or not all(each.isdecimal() and int(each) < 1 << 16 for each in texts):
                raise _RefusedError(400, 'query parameter "port" is required\n')
            ports = [int(each) for each in texts]
            protocols = ("v4.channel.k8s.io",)
            socket, _ = upgrades.web_socket(request, answer, protocols)
            with contextlib.suppress(ClientGoneError):
                await forward_channels(socket, ports, name, connect)
            return
        if websocket.is_asked(request):
            session = upgrades.tunnel(request, answer)
        else:
            session, _ = upgrades.spdy(request, answer, (upgrades.PORT_FORWARD,))
        await SpdyForwarder(session, name, connect).run()


async def _wire(request: Request, answer: Answer, wants: Wants) -> wires.Wire | None:
    """Return the connection of a command; None: the client did not keep to it. UpgradeError."""
    if websocket.is_asked(request):
        socket, protocol = upgrades.web_socket(request, answer, upgrades.WEB_SOCKETS)
        wire = WebSocketWire(socket, protocol)
        try:
            await wire.begin(wants)
        except ClientGoneError:
            return None
        return wire
    session, protocol = upgrades.spdy(request, answer, upgrades.SPDY_COMMANDS)
    try:
        return await wires.spdy_wire(session, wants, protocol)
    except wires.WireError:
        await session.close()
        return None


def _resolved(root: Path, parts: Sequence[str]) -> Path:
    return root.joinpath(*parts).resolve()


def _entries(directory: Path) -> list[str]:
    return sorted(f"{each.name}/" if each.is_dir() else each.name for each in directory.iterdir())


def _pod_list(pods: Sequence[Object]) -> Object:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}


def _statuses(pod: Object, name: str) -> Iterator[Object]:
    """Yield the status of the container of this name, if there is one."""
    status = pod.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(field) or ():
            if each["name"] == name:
                yield each


def _previous(pod: Object, name: str, containers: Sequence[Container]) -> Sequence[Container]:
    """Return the instances before the current one; the last of them is the previous one.

    While a container waits to be started again, the one that has ended is the previous one.
    """
    for each in _statuses(pod, name):
        ended = (each.get("lastState") or {}).get("terminated") or {}
        last_id = str(ended.get("containerID", "")).rpartition("://")[2]
        for at, container in enumerate(containers, 1):
            if container.id == last_id:
                return containers[:at]
    return containers[:-1]


def _waiting_reason(pod: Object, name: str) -> str:
    for each in _statuses(pod, name):
        reason = (each.get("state") or {}).get("waiting", {}).get("reason")
        if reason:
            return _REASONS.get(reason, str(reason))
    return "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"


_REASONS: Final = {
    "ErrImagePull": "image can't be pulled",
    "ErrImageNeverPull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
