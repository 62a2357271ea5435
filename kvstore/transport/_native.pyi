# The types of the crate in kvstore/native; see its crossing.rs.

from collections.abc import Sequence

from kvstore.batch import Metadata, Request, Response
from kvstore.raft.model import Entry

def encode_entries(
    entries: list[Entry],
    crc: int,
) -> tuple[bytes, int]: ...

class Server:
    def __init__(
        self,
        addresses: Sequence[tuple[str, int | None, bool, bool, int]],
        routes: Sequence[tuple[str, int, int]],
        options: dict[str, int | float],
        tls: dict[str, str | list[str]] | None,
    ) -> None: ...
    @property
    def ports(self) -> list[int]: ...
    def poll(
        self, timeout_s: float
    ) -> tuple[
        list[tuple[int, int, bytes]],
        list[tuple[int, int]],
        list[tuple[int, bytes]],
        list[int],
        list[int],
        dict[int, int],
        dict[int, Metadata],
        list[Request],
        list[str],
    ]: ...
    def flush(
        self,
        replies: list[tuple[int, int, bytes]],
        deliveries: list[tuple[int, bytes, bytes]],
        ends: list[tuple[int, int, bytes]],
        responses: list[Response],
    ) -> None: ...
    def descriptor(self) -> int: ...
    def arm(self) -> bool: ...
    def disarm(self) -> None: ...
    def wake(self) -> None: ...
    def peer_of(self, call_id: int) -> str | None: ...
    def drain(self) -> None: ...
    @property
    def is_drained(self) -> bool: ...
    def stop(self, grace_s: float) -> bool: ...
