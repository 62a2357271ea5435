"""The names of a cluster, and their records: Kubernetes' DNS schema 1.1.0.

    cluster.put_service(service, now_s); cluster.put_slice(piece, now_s)
    cluster.find(("web", "default", "svc"), A)        of the zone, its own labels left out
    cluster.find_address("10.96.0.10")                the names of an address, for PTR

Pure: objects go in, records come out. What is kept is small and changes with one object; answers
are built on request. Names are in lower case.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dns.rdatatype import AAAA, CNAME, NS, PTR, SOA, SRV, TXT, A, RdataType

from kvstack.agents.dns.services import (
    NO_PORT,
    Endpoint,
    Key,
    Port,
    Service,
    Slice,
    named,
    service_key,
    service_of,
    slice_of,
    undashed,
)
from kvstack.apimachinery.objects.json_object import Object

SCHEMA: Final = "1.1.0"
_SCHEMA_TTL_S: Final = 28_800
_SOA_TTL_S_MAX: Final = 300
RECORDS_MAX: Final = 1000
"""The maximum number of records in an answer; further endpoints are left out."""
_DNS_SERVICE: Final = ("kube-system", "kube-dns")

INSECURE, VERIFIED, DISABLED = "insecure", "verified", "disabled"
POD_MODES: Final = (DISABLED, INSECURE, VERIFIED)


class Record(NamedTuple):
    """A record; its name is the one in the question unless it has another."""

    kind: RdataType
    ttl_s: int
    data: tuple[str | int, ...]
    owner: str = ""
    """With the zone."""


class Resolution(NamedTuple):
    """The addresses or records of a name."""

    answers: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()
    exists: bool = True
    service: Key | None = None
    """The only one that this depends on, if there is such."""
    target: str = ""
    """Another name: what that stands for is a part of the answer, too."""


NOTHING: Final = Resolution()
"""The name exists, and has no records of the type."""
UNKNOWN: Final = Resolution(exists=False)


class Options(NamedTuple):
    """Settings of a zone."""

    domain: str = "cluster.local"
    ttl_s: int = 30
    pods: str = INSECURE
    names_by_pods: bool = False
    """Whether an endpoint without hostname is named after its pod."""


class _Match(NamedTuple):
    """An address, a port, and the name that a SRV record gives for them."""

    address: str
    port: int
    target: str


class Cluster:
    """The Services of a cluster."""

    def __init__(self, options: Options = Options()) -> None:  # noqa: B008 - it cannot be changed
        self.options: Final = options
        self.changed_s = 0
        """The time of the last change: the serial of the zone."""
        self._services: dict[Key, Service] = {}
        self._slices: dict[Key, dict[str, Slice]] = {}
        self._namespaces: set[str] = set()
        self._pods: dict[Key, set[str]] = {}  # namespace and address → names
        self._of_address: dict[str, set[Key]] = {}  # of Services
        self._behind: dict[str, dict[Key, int]] = {}  # how often an endpoint of a Service

    # What there is.

    def put_service(self, obj: Object, now_s: float) -> Key:
        """Add or update a Service; return its key."""
        key = _key(obj)
        self.drop_service(key, now_s)
        found = self._services[key] = service_of(obj)
        for address in found.ips:
            self._of_address.setdefault(address, set()).add(key)
        return key

    def drop_service(self, key: Key, now_s: float) -> None:
        """Forget a Service."""
        self.changed_s = int(now_s)
        old = self._services.pop(key, None)
        for address in old.ips if old else ():
            keys = self._of_address[address]
            keys.discard(key)
            if not keys:
                del self._of_address[address]

    def put_slice(self, obj: Object, now_s: float) -> Key | None:
        """Add or update an EndpointSlice; return the key of its Service."""
        key = service_key(obj)
        if key is not None:
            self._drop_slice(key, obj["metadata"]["name"])
            self.changed_s = int(now_s)
            found = slice_of(obj, by_pod_names=self.options.names_by_pods)
            self._slices.setdefault(key, {})[obj["metadata"]["name"]] = found
            for each in found.endpoints:
                keys = self._behind.setdefault(each.address, {})
                keys[key] = keys.get(key, 0) + 1
        return key

    def drop_slice(self, obj: Object, now_s: float) -> Key | None:
        """Forget an EndpointSlice; return the key of its Service."""
        key = service_key(obj)
        if key is not None:
            self.changed_s = int(now_s)
            self._drop_slice(key, obj["metadata"]["name"])
        return key

    def _drop_slice(self, key: Key, name: str) -> None:
        slices = self._slices.get(key, {})
        old = slices.pop(name, None)
        if not slices:
            self._slices.pop(key, None)
        for each in old.endpoints if old else ():
            keys = self._behind[each.address]
            keys[key] -= 1
            if not keys[key]:
                del keys[key]
            if not keys:
                del self._behind[each.address]

    def put_namespace(self, name: str) -> None:
        """Add a namespace."""
        self._namespaces.add(name)

    def drop_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self._namespaces.discard(name)

    def put_pod(self, namespace: str, name: str, addresses: Sequence[str]) -> None:
        """Set the addresses of a pod."""
        for each in addresses:
            self._pods.setdefault((namespace, each), set()).add(name)

    def drop_pod(self, namespace: str, name: str, addresses: Sequence[str]) -> None:
        """Forget the addresses of a pod."""
        for each in addresses:
            names = self._pods.get((namespace, each), set())
            names.discard(name)
            if not names:
                self._pods.pop((namespace, each), None)

    def has_service(self, key: Key) -> bool:
        """Whether a Service exists."""
        return key in self._services

    def is_headless(self, key: Key) -> bool | None:
        """Whether a Service is headless; None: there is none, or it leads elsewhere."""
        service = self._services.get(key)
        return None if service is None or service.is_alias else not service.ips

    # What names stand for.

    def find(self, labels: Sequence[str], kind: int) -> Resolution:
        """Return what a name of the zone stands for; labels: before those of the zone."""
        if not labels:
            return self._zone(kind)
        if tuple(labels) == ("dns-version",):
            text = Record(TXT, _SCHEMA_TTL_S, (SCHEMA,))
            return Resolution((text,)) if kind == TXT else NOTHING
        if kind == TXT:
            return NOTHING
        if labels[-1] not in ("svc", "pod"):
            return UNKNOWN
        if len(labels) == 1:
            return NOTHING
        namespace = labels[-2]
        if len(labels) == 2:
            return NOTHING if namespace in self._namespaces else UNKNOWN
        if labels[-1] == "pod":
            return self._pod(labels[:-2], namespace, kind)
        return self._service((namespace, labels[-3]), labels[:-3], kind)

    def soa(self) -> Record:
        """Return the record that says how long it is known that there is nothing."""
        zone, ttl_s = self.options.domain, self.options.ttl_s
        values = (f"ns.dns.{zone}", f"hostmaster.{zone}", self.changed_s, 7200, 1800, 86400, ttl_s)
        return Record(SOA, min(ttl_s, _SOA_TTL_S_MAX), values, owner=zone)

    def find_address(self, address: str) -> tuple[Record, ...]:
        """Return the names of an address, for PTR; none: it is not of this cluster."""
        names = [self._name_of(key) for key in sorted(self._of_address.get(address, ()))]
        if not names:
            for key in sorted(self._behind.get(address, {})):
                hosts = {
                    each.hostname: None
                    for piece in self._pieces(key)
                    for each in piece.endpoints
                    if each.address == address
                }
                names += [f"{host}.{self._name_of(key)}" for host in hosts]
        return tuple(Record(PTR, self.options.ttl_s, (each,)) for each in names[:RECORDS_MAX])

    def _zone(self, kind: int) -> Resolution:
        if kind == SOA:
            return Resolution((self.soa(),))
        if kind != NS:
            return NOTHING
        service = self._services.get(_DNS_SERVICE)
        if service is None:
            return Resolution((self._record(NS, f"ns.dns.{self.options.domain}"),))
        name = self._name_of(_DNS_SERVICE)
        addresses = [each._replace(owner=name) for each in self._addresses(service.ips)]
        return Resolution((self._record(NS, name),), tuple(addresses))

    def _pod(self, labels: Sequence[str], namespace: str, kind: int) -> Resolution:
        if len(labels) != 1 or self.options.pods == DISABLED or namespace not in self._namespaces:
            return UNKNOWN
        address = undashed(labels[0])
        if not address:
            return UNKNOWN
        if self.options.pods == VERIFIED and (namespace, address) not in self._pods:
            return UNKNOWN
        return Resolution(tuple(self._addresses([address], kind)))

    def _service(self, key: Key, labels: Sequence[str], kind: int) -> Resolution:
        service = self._services.get(key)
        if service is None or len(labels) > 2:
            return UNKNOWN
        if service.is_alias:
            if labels or not service.alias:
                return UNKNOWN
            if kind not in (A, AAAA, CNAME):
                return NOTHING
            answer = (self._record(CNAME, service.alias),)
            if kind == CNAME:
                return Resolution(answer, service=key)
            return Resolution(answer, target=service.alias)
        matches = list(self._matches(key, service, labels))
        if not matches:
            return UNKNOWN
        if kind == SRV:
            return self._srv(key, matches)
        return Resolution(
            tuple(self._addresses([each.address for each in matches], kind)), service=key
        )

    def _matches(self, key: Key, service: Service, labels: Sequence[str]) -> Iterator[_Match]:
        """Give what a name below a Service means: one endpoint, a port, or all there is."""
        own = self._name_of(key)
        name, protocol, host = "", "", ""
        if len(labels) == 2:
            name, protocol = (each.removeprefix("_") for each in labels)
        elif labels:
            host = labels[0]
        if service.ips and not host:
            for port in _ports(service.ports, name, protocol):
                for address in service.ips:
                    yield _Match(address, port.number, own)
            return
        for piece in self._pieces(key):
            ports = _ports(piece.ports, name, protocol)
            for each in piece.endpoints:
                if not host or each.hostname == host:
                    yield from _of_endpoint(each, ports, own)

    def _pieces(self, key: Key) -> list[Slice]:
        return list(self._slices.get(key, {}).values())

    def _srv(self, key: Key, matches: Sequence[_Match]) -> Resolution:
        with_port = [each for each in matches if each.port != NO_PORT]
        weight = max(1, 100 // len(with_port)) if with_port else 0
        told = dict.fromkeys((each.port, each.target) for each in with_port)
        answers = [
            self._record(SRV, 0, weight, port, target) for port, target in list(told)[:RECORDS_MAX]
        ]
        shown = {each.data[3] for each in answers}
        hosts = dict.fromkeys((e.target, e.address) for e in with_port if e.target in shown)
        additional = [
            record._replace(owner=target)
            for target, address in list(hosts)[:RECORDS_MAX]
            for record in self._addresses([address])
        ]
        return Resolution(tuple(answers), tuple(additional), service=key)

    def _addresses(self, addresses: Sequence[str], kind: int = 0) -> Iterator[Record]:
        """Give the records of addresses, each once; kind: of one family."""
        told = 0
        for each in dict.fromkeys(addresses):
            of_family = AAAA if ":" in each else A
            if kind in (0, of_family) and told < RECORDS_MAX:
                told += 1
                yield self._record(of_family, each)

    def _record(self, kind: RdataType, *data: str | int) -> Record:
        return Record(kind, self.options.ttl_s, data)

    def _name_of(self, key: Key) -> str:
        return f"{key[1]}.{key[0]}.svc.{self.options.domain}"


def _ports(ports: Sequence[Port], name: str, protocol: str) -> Sequence[Port]:
    """Return the requested ports; without any, addresses have records nevertheless."""
    if not ports and not name:
        return (Port("", "", NO_PORT),)
    return named(ports, name, protocol)


def _of_endpoint(endpoint: Endpoint, ports: Sequence[Port], own: str) -> Iterator[_Match]:
    for port in ports:
        yield _Match(endpoint.address, port.number, f"{endpoint.hostname}.{own}")


def _key(obj: Object) -> Key:
    meta = obj["metadata"]
    return meta["namespace"], meta["name"]
