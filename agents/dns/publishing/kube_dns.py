"""The Service kube-system/kube-dns, and where `kvstack up` and `kvstack dns` answer for it.

    Service kube-dns, the tenth address of the service range
      └─ EndpointSlice kube-dns-NAME: the agent of this process, by its node's or its own name

The Service is as upstream's, with its selector: once pods of CoreDNS are ready behind it, the slice
of the agent is deleted, and created again when they are gone. It is created at start if missing,
and may then be changed. `KubeDns.decide` returns the next write; the rest does it.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import ENDPOINT_SLICES, SERVICES
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.client.informer import Informer

Network: TypeAlias = IPv4Network | IPv6Network

NAMESPACE: Final = "kube-system"
NAME: Final = "kube-dns"
MANAGER: Final = "dns.kvstack.io"
PROBED_LABEL: Final = "dns.kvstack.io/probed"
PROBED: Final = "true"
_TENTH: Final = 10
_RETRY_S: Final = 1.0
_RETRY_S_MAX: Final = 30.0
_WITHDRAW_S: Final = 3.0
CONTESTED_S: Final = 10.0
"""Time until a slice that others have changed is changed back: they may do the same."""


class Endpoint(NamedTuple):
    """The address of the agent's DNS server."""

    address: str
    port: int
    metrics_port: int = 0
    """0: its metrics are not served."""
    is_probed: bool = False
    """Whether other servers delete the slice if nothing answers there (`peers`)."""


class Write(NamedTuple):
    """The next write."""

    verb: str
    """create, update or delete."""
    object: Object


def cluster_ip(service_range: Network) -> str:
    """Return the address of the Service; empty: the range is too small for it."""
    if service_range.num_addresses <= _TENTH + 1:
        return ""
    return str(service_range.network_address + _TENTH)


def slice_name(server: str) -> str:
    """Return the name of a server's EndpointSlice."""
    return f"{NAME}-{server}"


def service(ip: str) -> Object:
    """Return the Service, as kubeadm makes it."""
    ports = (("dns", 53, "UDP"), ("dns-tcp", 53, "TCP"), ("metrics", 9153, "TCP"))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {
                "k8s-app": NAME,
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
            "annotations": {"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
        },
        "spec": {
            "clusterIP": ip,
            "selector": {"k8s-app": NAME},
            "ports": [
                {"name": name, "port": port, "targetPort": port, "protocol": protocol}
                for name, port, protocol in ports
            ],
        },
    }


def piece(name: str, owner: Object, endpoint: Endpoint) -> Object:
    """Return the EndpointSlice of an agent; owner: the Service."""
    meta = owner["metadata"]
    ports = [("dns", endpoint.port, "UDP"), ("dns-tcp", endpoint.port, "TCP")]
    if endpoint.metrics_port:
        ports.append(("metrics", endpoint.metrics_port, "TCP"))
    labels = {SERVICE_NAME_LABEL: NAME, SLICE_MANAGED_BY_LABEL: MANAGER}
    if endpoint.is_probed:
        labels[PROBED_LABEL] = PROBED
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Service", "name": NAME, "uid": meta["uid"]}
            ],
        },
        "addressType": "IPv6" if ":" in endpoint.address else "IPv4",
        "endpoints": [
            {
                "addresses": [endpoint.address],
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
        ],
        "ports": [
            {"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports
        ],
    }


def decide(
    name: str, owner: Object | None, slices: list[Object], endpoint: Endpoint | None
) -> Write | None:
    """Return the next write; None: all is as it should be.

    owner: the Service, if there is one; slices: of it; endpoint: of this agent, once it answers.
    """
    own = next((each for each in slices if each["metadata"]["name"] == name), None)
    others = [each for each in slices if each is not own and not _is_ours(each)]
    if owner is None or endpoint is None or any(map(_is_ready, others)):
        return None if own is None else Write("delete", own)
    desired = piece(name, owner, endpoint)
    if own is None:
        return Write("create", desired)
    if own["addressType"] != desired["addressType"]:
        return Write("delete", own)  # it cannot be changed
    labels = (own["metadata"].get("labels") or {}).items()
    has_labels = desired["metadata"]["labels"].items() <= labels
    if has_labels and all(own.get(each) == desired[each] for each in ("endpoints", "ports")):
        return None
    meta = {**desired["metadata"], "resourceVersion": own["metadata"]["resourceVersion"]}
    return Write("update", {**desired, "metadata": meta})


def _is_ours(obj: Object) -> bool:
    return (obj["metadata"].get("labels") or {}).get(SLICE_MANAGED_BY_LABEL) == MANAGER


def _is_ready(obj: Object) -> bool:
    return any(
        (each.get("conditions") or {}).get("ready") is not False
        for each in obj.get("endpoints") or ()
    )


class KubeDns:
    """Keeps the objects as they should be, from `start` to `stop`."""

    def __init__(self, api: Api, informers: Informers, name: str, ip: str, logger: Logger) -> None:
        """name: of the agent or its node; ip: of the Service, empty: any."""
        self._api = api
        self._informers = informers
        self._name = slice_name(name)
        self._ip = ip
        self._logger = logger
        self._endpoint: Endpoint | None = None
        self._written: Endpoint | None = None
        self._is_due = asyncio.Event()
        self._followed: list[Informer] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Create the Service, then follow its endpoints."""
        for resource in (SERVICES, ENDPOINT_SLICES):
            informer = self._informers.of(resource)
            informer.on_change(self._on_change)
            self._followed.append(informer)
        work = self._run()
        self._task = asyncio.get_running_loop().create_task(work, name="kube-dns")

    async def stop(self) -> None:
        """Stop writing; the objects stay for the next start."""
        for informer in self._followed:
            informer.forget(self._on_change)
        self._followed.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def withdraw(self) -> None:
        """Stop writing, and delete the slice, so that no more queries come."""
        await self.stop()
        try:
            async with asyncio.timeout(_WITHDRAW_S):
                await self._api.delete(ENDPOINT_SLICES, NAMESPACE, self._name)
        except (ApiError, UnreachableError, TimeoutError) as error:
            if not (isinstance(error, ApiError) and error.is_not_found):
                text = "failed to delete the EndpointSlice of DNS"
                self._logger.warning(text, name=self._name, reason=str(error) or "timeout")

    def answers_at(self, endpoint: Endpoint) -> None:
        """Set the address that the agent answers at."""
        if ip_address(endpoint.address).is_loopback:
            return  # EndpointSlices must not have such an address, and pods do not reach it
        self._endpoint = endpoint
        self._is_due.set()

    async def _run(self) -> None:
        await self._again_and_again(self._make)
        services, slices = self._informers.of(SERVICES), self._informers.of(ENDPOINT_SLICES)
        await services.synced()
        await slices.synced()
        while True:
            self._is_due.clear()
            await self._again_and_again(self._write)
            await self._is_due.wait()

    def _on_change(self, old: Object | None, new: Object | None) -> None:
        meta = (new or old or {})["metadata"]
        label = (meta.get("labels") or {}).get(SERVICE_NAME_LABEL)
        if meta["namespace"] == NAMESPACE and NAME in (meta["name"], label):
            self._is_due.set()

    async def _again_and_again(self, work: Callable[[], Any]) -> None:
        """Do something until it is done."""
        wait_s = _RETRY_S
        while True:
            try:
                await work()
            except (ApiError, UnreachableError) as error:
                self._logger.warning("failed to update the Service of DNS", reason=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _RETRY_S_MAX)
            else:
                return

    async def _make(self) -> None:
        """Create the Service if it is missing; asked first, as its address would be refused."""
        try:
            await self._api.get(SERVICES, NAMESPACE, NAME)
        except ApiError as error:
            if not error.is_not_found:
                raise
        else:
            return
        try:
            await self._api.create(SERVICES, NAMESPACE, service(self._ip))
        except ApiError as error:
            if error.code == HTTPStatus.UNPROCESSABLE_ENTITY:
                text = "the Service kube-dns does not exist: its address is unknown"
                self._logger.warning(text, address=self._ip, reason=str(error))
            elif not error.is_conflict:
                raise

    async def _write(self) -> None:
        """Do the next write, as far as the objects are known; the informers deliver its result."""
        services, slices = self._informers.of(SERVICES), self._informers.of(ENDPOINT_SLICES)
        found = [
            each
            for each in slices.store.in_namespace(NAMESPACE)
            if (each["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL) == NAME
        ]
        owner = services.store.get(f"{NAMESPACE}/{NAME}")
        write = decide(self._name, owner, found, self._endpoint)
        if write is None:
            return
        is_contested = write.verb == "update" and self._written == self._endpoint
        try:
            await self._do(write)
            self._written = self._endpoint
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):  # the informers are behind
                raise
        if is_contested:
            text = "the EndpointSlice of DNS was changed: do two servers have the same name?"
            self._logger.warning(text, name=self._name)
            await asyncio.sleep(CONTESTED_S)

    async def _do(self, write: Write) -> None:
        if write.verb == "create":
            await self._api.create(ENDPOINT_SLICES, NAMESPACE, write.object)
        elif write.verb == "update":
            await self._api.update(ENDPOINT_SLICES, write.object)
        else:
            await self._api.delete(ENDPOINT_SLICES, NAMESPACE, self._name)
