# The types of the crate in kvstore/native; see its folder python.

from collections.abc import Callable, Sequence
from typing import Any

from kvstack.apimachinery.objects.text.json_text import Json
from kvstack.apimachinery.objects.text.yaml_crate import Refusal
from kvstack.apimachinery.objects.text.yaml_scalars import Scalar
from kvstore.backend import Row
from kvstore.batch import AnyDelivery, Metadata, PortRequest, PortResponse
from kvstore.client.values import (
    DeleteResult,
    Event,
    KeyValue,
    PutResult,
    RangeResult,
    TxnResult,
)
from kvstore.raft.model import Entry

ABI: int  # see kvstack.component.crate

def encode_entries(
    entries: list[Entry],
    state: bytes,
    crc: int,
) -> tuple[bytes, int]: ...
def read_yaml(
    data: bytes, limits: tuple[int, int, int, int]
) -> tuple[Json, list[tuple[int, Scalar]], Refusal | None]: ...

class Kernels:
    def __init__(self) -> None: ...
    def encode_puts(
        self,
        keys: list[bytes],
        values: list[bytes],
        leases: list[int] | None,
        numbers: tuple[list[int], list[int]],
        first: int,
    ) -> tuple[list[bytes], list[bytes]]: ...
    def put_replies(
        self, call_ids: list[int], header: tuple[bytes, bytes], first: int
    ) -> list[tuple[int, int, bytes]]: ...
    def swap_replies(
        self,
        call_ids: list[int],
        outcomes: bytes,
        revisions: list[int],
        kvs: list[bytes],
        header: tuple[bytes, bytes],
    ) -> list[tuple[int, int, bytes]]: ...
    def get_replies(
        self, gets: list[tuple[int, bytes]], kvs: list[bytes | None], header: bytes
    ) -> list[tuple[int, int, bytes]]: ...
    def join_messages(
        self, head: bytes, tail: bytes, middles: Sequence[bytes], block_bytes_max: int
    ) -> list[bytes]: ...
    def tally(self, tuples: list[tuple[int, int, bytes]]) -> tuple[dict[int, int], int]: ...

class PlainCalls:
    def __init__(
        self, put: tuple[int, int], range_: int, txn: tuple[int, int], overhead_bytes: int
    ) -> None: ...
    def recognize(
        self,
        calls: list[tuple[int, int, bytes]],
        start: int,
        limits: tuple[int, int],
        last_id: tuple[int, int],
    ) -> tuple[int, list[Any], list[tuple[int, bytes]], list[tuple[int, bytes]]]: ...
    def puts_of_entries(
        self, entries: list[Entry], start: int
    ) -> tuple[list[bytes], list[bytes]]: ...

class RowSums:
    def __init__(self) -> None: ...
    def seal(self, rows: Sequence[Row]) -> list[Row]: ...
    def value(self, key: bytes, stored: bytes) -> bytes | None: ...
    def values(self, keys: Sequence[bytes], stored: Sequence[bytes]) -> list[bytes] | None: ...
    def rows(self, rows: Sequence[Row]) -> list[Row] | None: ...
    def fields(
        self, keys: Sequence[bytes], stored: Sequence[bytes], head: bytes, tail: bytes
    ) -> bytes | None: ...

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
        list[PortRequest],
        list[str],
    ]: ...
    def flush(
        self,
        replies: list[tuple[int, int, bytes]],
        deliveries: list[AnyDelivery],
        ends: list[tuple[int, int, bytes]],
        responses: list[PortResponse],
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

class Client:
    def __init__(
        self, paths: Sequence[str], options: dict[str, int | float], tls: dict[str, object]
    ) -> None: ...
    def set_endpoints(
        self, addresses: Sequence[tuple[str, str, int | None, bool, str, str]]
    ) -> None: ...
    def descriptor(self) -> int: ...
    def flush(
        self,
        calls: list[tuple[int, int, bytes, float | None, tuple[tuple[str, str], ...] | None]],
        opened: list[tuple[int, int, tuple[tuple[str, str], ...] | None]],
        frames: list[tuple[int, bytes]],
        half_closed: list[int],
        gone: list[int],
        taken: list[tuple[int, int]],
    ) -> None: ...
    def poll(
        self,
    ) -> tuple[
        list[tuple[int, bytes]],
        list[tuple[int, bytes]],
        list[tuple[int, int, str, bool]],
        list[str],
    ]: ...
    def close(self) -> bool: ...

class Decoder:
    def __init__(
        self,
        key_value: type[KeyValue],
        event: type[Event],
        range_: type[RangeResult],
        put: type[PutResult],
        delete: type[DeleteResult],
        txn: type[TxnResult],
    ) -> None: ...
    def range(self, body: bytes) -> RangeResult: ...
    def put(self, body: bytes) -> PutResult: ...
    def delete(self, body: bytes) -> DeleteResult: ...
    def txn(self, body: bytes) -> TxnResult: ...
    def watch(self, body: bytes) -> tuple[int, int, int, int, str, list[Event]]: ...

class Head:
    def get(self, name: str) -> str | None: ...
    def get_all(self, name: str) -> list[str]: ...
    def items(self) -> list[tuple[str, str]]: ...
    def has_prefix(self, prefix: str) -> bool: ...

class HttpServer:
    def __init__(
        self,
        addresses: Sequence[tuple[str, int | None, bool, int | None, dict[str, int | float]]],
        tls: Sequence[dict[str, object]],
        options: dict[str, int],
        make_connection: Callable[..., object],
    ) -> None: ...
    @property
    def ports(self) -> list[int]: ...
    def descriptor(self) -> int: ...
    def arm(self) -> bool: ...
    def disarm(self) -> None: ...
    def poll(
        self,
    ) -> tuple[
        list[Any],  # of (id, connection, method, target, version, Head, body, may upgrade)
        list[tuple[int, bytes]],
        list[int],
        list[int],
        list[int],
        list[str],
    ]: ...
    def respond(
        self,
        call: int,
        status: int,
        headers: Sequence[tuple[str, str]],
        body: bytes | None,
        *rest: bytes,
    ) -> None: ...
    def write(self, call: int, data: bytes) -> int | None: ...
    def write_all(self, calls: list[int], data: bytes, unsent_bytes_max: int) -> list[int]: ...
    def end(self, call: int, is_whole: bool) -> None: ...
    def take(self, call: int, size: int) -> None: ...
    def notify_writable(self, call: int, size: int) -> bool: ...
    def unsent(self, calls: list[int]) -> list[int]: ...
    def cut(self, call: int) -> None: ...
    def stalled(self, limit_s: float) -> list[int]: ...
    def flush(self) -> None: ...
    def drain(self) -> None: ...
    @property
    def is_drained(self) -> bool: ...
    def stop(self, grace_s: float) -> None: ...
    @property
    def is_over(self) -> bool: ...
