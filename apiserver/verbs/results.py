"""Results of verbs; http encodes each in the representation that the client accepts."""

from typing import NamedTuple, TypeAlias

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.registry.reads import Page
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.verbs.options import ListParameters


class Stored(NamedTuple):
    """A stored object."""

    record: Record
    code: int = 200


class Computed(NamedTuple):
    """An object that is not stored in this form: of a dry run, a Scale, a review, a Status."""

    obj: Object
    """The object with kind and apiVersion."""
    kind: Kind
    type: Type
    code: int = 200


class Listing(NamedTuple):
    """A list of stored objects."""

    page: Page


class Watching(NamedTuple):
    """A validated watch."""

    selection: Selection
    options: ListParameters
    timeout_s: float
    is_list: bool = False
    """Whether it replaces a list: a bookmark marks the end of the initial objects."""


class Connecting(NamedTuple):
    """A stream that a kubelet serves."""

    host: str
    """The kubelet's host; empty: there is none, and the stream is empty."""
    port: int
    target: str
    """Path and query for the kubelet."""
    is_log: bool
    takes_websockets: bool = True
    """Whether the kubelet supports the WebSocket protocol of clients; else it is translated to
    SPDY."""

    @property
    def authority(self) -> str:
        """Host and port as in URLs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Proxying(NamedTuple):
    """A request that is proxied to a node, a pod or a Service."""

    scheme: str
    """`http` or `https`."""
    host: str
    """The target with the port, if there is one: `10.0.0.7:80`, `[fd00::7]:80`."""
    path: str
    """The path at the target, decoded; empty: the request named none, not even `/`."""
    prefix: str = ""
    """The prefix of the client's path, decoded, without a trailing slash."""
    is_kubelet: bool = False
    """Whether it is a kubelet, to which the client certificate is presented."""
    address: str = ""
    """The address that the host resolved to when it was checked; it may resolve to another one
    later."""


Result: TypeAlias = Stored | Computed | Listing | Watching | Connecting | Proxying
