"""What verbs answer; http writes each in the representation that the client asked for."""

from typing import NamedTuple, TypeAlias

from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.registry.reads import Page
from kvstack.apiserver.registry.record import Obj, Record
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.verbs.options import ListParameters


class Stored(NamedTuple):
    """An object as it is stored."""

    record: Record
    code: int = 200


class Computed(NamedTuple):
    """An object that is not stored as it is: of a dry run, a Scale, a review, a Status."""

    obj: Obj
    """With kind and apiVersion."""
    kind: Kind
    type: Type
    code: int = 200


class Listing(NamedTuple):
    """A list of stored objects."""

    page: Page


class Watching(NamedTuple):
    """A watch that may begin."""

    selection: Selection
    options: ListParameters
    timeout_s: float
    is_list: bool = False
    """Whether it takes the place of a list: a bookmark tells when all that is there was sent."""


class Connecting(NamedTuple):
    """A stream that a kubelet serves."""

    host: str
    """Of the kubelet; empty: nobody serves it, and it has nothing."""
    port: int
    target: str
    """Path and query, as the kubelet takes them."""
    is_log: bool
    takes_websockets: bool = True
    """Whether the kubelet speaks what clients speak over WebSockets; else it is translated."""

    @property
    def authority(self) -> str:
        """Host and port as URLs have them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Proxying(NamedTuple):
    """A request that a node, a pod or a Service answers."""

    scheme: str
    """`http` or `https`."""
    host: str
    """With the port, where there is one: `10.0.0.7:80`, `[fd00::7]:80`."""
    path: str
    """That is asked for there, decoded; empty: the request named none, not even `/`."""
    prefix: str = ""
    """What stands before that in the client's path, decoded, without a slash at its end."""
    is_kubelet: bool = False
    """Whether it is a kubelet, which is shown a certificate."""
    address: str = ""
    """Where the host was found when it was checked; a name may lead elsewhere soon after."""


Result: TypeAlias = Stored | Computed | Listing | Watching | Connecting | Proxying
