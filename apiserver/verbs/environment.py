"""What all requests of a server share: its registry, its policy, time, chance and settings."""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from kvstack.apiserver.kinds.allocation.cluster_ips import AddressRange
from kvstack.apiserver.kinds.allocation.node_ports import DEFAULT_RANGE, PortRange
from kvstack.apiserver.objects.metadata import SUFFIX_CHARACTERS, SUFFIX_LENGTH
from kvstack.apiserver.policy.ports import Admission, Authorizer
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.timing import Clock

if TYPE_CHECKING:
    from kvstack.apiserver.verbs.acting import Act
    from kvstack.apiserver.verbs.endpoint import Endpoints
    from kvstack.apiserver.verbs.made import Source

HOUR_S: Final = 3600
_UIDS: Final = 32
_VARIANTS: Final = {f"{digit:x}": "89ab"[digit & 3] for digit in range(16)}
SUFFIXES: Final = 32
"""Ends of names that are drawn at once."""
_SUFFIX_MASK: Final = (1 << 64) - 1


@dataclass(slots=True)
class Settings:
    """What the flags of a server say about requests."""

    event_ttl_s: int = HOUR_S
    catch_up_s: float = 30.0
    """How long a write waits for the copy, where it has to know everything."""
    allow_privileged: bool = True
    service_ranges: tuple[AddressRange, ...] = ()
    """The ranges of the flags, the default family first."""
    node_ports: PortRange = DEFAULT_RANGE
    kubelet_addresses: tuple[str, ...] = ("InternalIP", "Hostname")
    """Types of a node's addresses at which its kubelet is looked for, the best first."""
    proxies_to_loopback: bool = False
    """Whether nodes and pods at addresses of loopback can be reached by `proxy`: where all of a
    cluster is on one machine, they are there."""
    min_request_timeout_s: int = 1800
    """A watch without a time of its own lasts this long, or up to twice as long."""


@dataclass(slots=True)
class Environment:
    """What verbs need besides the request."""

    registry: Registry
    admission: Admission
    authorizer: Authorizer
    clock: Clock
    random: Random
    settings: Settings = field(default_factory=Settings)
    acts: dict[tuple[str, str, str], "Act"] = field(default_factory=dict)
    """What answers creates that store nothing, by group, resource and subresource: see `acting`."""
    sources: dict[tuple[str, str], "Source"] = field(default_factory=dict)
    """What makes objects that are not stored, by group and resource: see `made`."""
    endpoints: "Endpoints" = field(init=False)
    """What is served; set when it is known."""
    _uids: list[str] = field(default_factory=list)
    _suffixes: list[str] = field(default_factory=list)

    def new_uid(self) -> str:
        """Return a random UID (version 4)."""
        if not self._uids:
            # Many with one question: a source of good chance is slow to ask.
            text = f"{self.random.getrandbits(128 * _UIDS):0{32 * _UIDS}x}"
            self._uids = [text[at : at + 32] for at in range(0, len(text), 32)]
        text = self._uids.pop()
        variant = _VARIANTS[text[16]]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"

    def name_suffix(self) -> str:
        """Return the random end of a generated name."""
        if not self._suffixes:
            # Many with one question, as above; one of so many bits has no character more often.
            left = self.random.getrandbits(64 * SUFFIXES)
            for _ in range(SUFFIXES):
                self._suffixes.append(_suffix(left & _SUFFIX_MASK))
                left >>= 64
        return self._suffixes.pop()


def _suffix(number: int) -> str:
    found: list[str] = []
    for _ in range(SUFFIX_LENGTH):
        number, place = divmod(number, len(SUFFIX_CHARACTERS))
        found.append(SUFFIX_CHARACTERS[place])
    return "".join(found)
