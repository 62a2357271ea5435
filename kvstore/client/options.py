"""Options of a client: limits, credentials, TLS."""

from dataclasses import dataclass
from typing import Literal

from kvstore.client.channel import Metadata

TransportName = Literal["auto", "native", "grpcio"]


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Trusted authorities and the client's certificate; PEM files, read again when they change."""

    cert_file: str = ""
    key_file: str = ""
    trusted_ca_file: str = ""  # empty: the system's
    is_unverified: bool = False  # trust any certificate of a server
    server_name: str = ""  # that a server's certificate must have; empty: the endpoint's host
    is_enabled: bool = False  # TLS for endpoints without a scheme, as with any other setting

    @property
    def is_given(self) -> bool:
        """Whether anything is set: then endpoints without a scheme use TLS."""
        return self != ClientTls()


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Settings of a Store; the defaults suit a cluster on a local network."""

    timeout_s: float = 10.0  # of a call that has no limit of its own; servers give up after 7 s
    user: str = ""
    password: str = ""
    token: str = ""  # one issued elsewhere (JWT), instead of user and password
    metadata: Metadata = ()  # sent with every call
    tls: ClientTls = ClientTls()
    transport: TransportName = "auto"  # auto: native if the crate was built
    dial_timeout_s: float = 5.0
    reach_s: float = 0.0  # how long a call waits for an endpoint to be connected; 0: its own limit
    keepalive_interval_s: float = 30.0  # pings of a silent server with open calls; 0: never
    keepalive_timeout_s: float = 10.0
    keeps_idle_alive: bool = False  # pings also without open calls; servers may refuse that
    request_bytes_max: int = 2**31 - 1  # the server has a limit of its own, 1.5 MiB by default
    response_bytes_max: int = 512 << 20
    watch_bytes_max: int = 16 << 20  # of events that the reader of one watch has not consumed
    watches_bytes_max: int = 256 << 20  # of all watches together
    require_leader: bool = True  # watches leave a member that has no leader
    revision_key: bytes = b"\0"  # the key current_revision reads; the user needs permission
    seed: int | None = None  # seed of the jitter of pauses; None: random
