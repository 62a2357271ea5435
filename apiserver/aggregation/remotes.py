"""Groups and versions of aggregated servers: the APIServices with a Service.

remotes = Remotes(view)
remotes.at("/apis/metrics.k8s.io/v1beta1/nodes")   → Remote, or None
"""

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.core.conditions import is_true
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.interfaces import Change, ObjectView

API_SERVICES: Final = GroupResource("apiregistration.k8s.io", "apiservices")
AVAILABLE: Final = "Available"
_PORT: Final = 443


class Remote(NamedTuple):
    """A group and version that an aggregated server serves."""

    name: str
    """Name of the APIService."""
    group: str
    version: str
    namespace: str
    service: str
    port: int
    ca: bytes
    """PEM; empty: the system's CAs."""
    is_insecure: bool
    is_available: bool
    group_priority: int
    version_priority: int

    @property
    def path(self) -> str:
        """The path of its resources."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def host(self) -> str:
        """The name that its certificate must have."""
        return f"{self.service}.{self.namespace}.svc"


class Remotes:
    """All of them, from the watch cache."""

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view
        self._found: dict[tuple[str, str], Remote] = {}
        self.local: frozenset[tuple[str, str]] = frozenset()
        """Groups and versions of APIServices without a Service."""
        self.on_change: Final[list[Callable[[], None]]] = []
        """Called when they or their properties have changed."""

    def follow(self) -> None:
        """Start following APIServices; the registry must have been read."""
        self._view.subscribe(API_SERVICES, self._note)

    def __len__(self) -> int:
        """Return their number."""
        return len(self._found)

    @property
    def all(self) -> list[Remote]:
        """All of them, by group and version."""
        return [self._found[key] for key in sorted(self._found)]

    def at(self, path: str) -> Remote | None:
        """Return the server of a path; None: this server."""
        if not self._found:
            return None
        parts = path.split("/", 4)
        if len(parts) > 3 and parts[1] == "apis":
            return self._found.get((parts[2], parts[3]))
        if len(parts) > 2 and parts[1] == "api":
            return self._found.get(("", parts[2]))
        return None

    def _note(self, _changes: Sequence[Change]) -> None:
        listed = list(self._view.list(API_SERVICES))
        found = [remote_of(each) for each in listed]
        self._found = {(each.group, each.version): each for each in found if each is not None}
        self.local = frozenset(
            (each["spec"].get("group", ""), each["spec"].get("version", ""))
            for each, remote in zip(listed, found, strict=True)
            if remote is None
        )
        for changed in self.on_change:
            changed()


def remote_of(obj: Object) -> Remote | None:
    """Return the server of an APIService; None: it is local."""
    spec = obj["spec"]
    service = spec.get("service")
    if service is None:
        return None
    return Remote(
        obj["metadata"]["name"],
        spec.get("group", ""),
        spec.get("version", ""),
        service.get("namespace", ""),
        service.get("name", ""),
        service.get("port") or _PORT,
        b64decode(spec.get("caBundle") or ""),
        bool(spec.get("insecureSkipTLSVerify")),
        is_true((obj.get("status") or {}).get("conditions"), AVAILABLE),
        spec.get("groupPriorityMinimum", 0),
        spec.get("versionPriority", 0),
    )
