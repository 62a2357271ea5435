"""The row of a lease in table `lease`: eight bytes of id, and a leasepb.Lease message.

key    id as an unsigned 64-bit big-endian number (a negative id is its two's complement)
value  1: ID   2: TTL in seconds   3: RemainingTTL in seconds      (varints; zero is omitted)

grant of id 10, TTL 60      k 00 00 00 00 00 00 00 0a    v 08 0a 10 3c
"""

from google.protobuf.message import DecodeError

from kvstore.errors import CorruptionError
from kvstore.wire.gen.lease_pb2 import Lease


def row_key(lease_id: int) -> bytes:
    """Return the key of a lease's row."""
    return (lease_id % 2**64).to_bytes(8, "big")


def encode_row(lease_id: int, ttl_s: int, remaining_ttl_s: int) -> bytes:
    """Return the leasepb.Lease message, byte for byte as etcd writes it."""
    return Lease(ID=lease_id, TTL=ttl_s, RemainingTTL=remaining_ttl_s).SerializeToString()


def decode_row(key: bytes, value: bytes) -> tuple[int, int, int]:
    """Return (id, TTL in seconds, remaining TTL in seconds).

    Raises CorruptionError for bytes that are not a Lease, or a Lease with another id than the
    key's.
    """
    try:
        lease = Lease.FromString(value)
    except DecodeError as error:
        raise CorruptionError(f"table lease, row {key.hex()}: not a lease: {error}") from error
    if row_key(lease.ID) != key:
        raise CorruptionError(f"table lease, row {key.hex()}: contains lease {lease.ID}")
    return lease.ID, lease.TTL, lease.RemainingTTL
