"""What clients of a simulated cluster ask: keys, values and requests, drawn.

`clients` sends them. Revisions and what is compared come from the model, so that much is true and
some is not.
"""

import random
from typing import Any

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from kvstore.wire.gen import rpc_pb2 as pb
from tests.sim.checks import Checker
from tests.sim.options import Options


class DrawnRequests:
    """Requests of all clients of a world."""

    def __init__(self, rng: random.Random, options: Options, checker: Checker) -> None:
        self._rng = rng
        self._options = options
        self._checker = checker
        self._values = 0
        self.leases: list[int] = []  # that were granted

    def key(self) -> bytes:
        """Return one of the keys."""
        return self._rng.choice(self._options.keys)

    def range_of(self) -> tuple[bytes, bytes]:
        """Return (key, range_end)."""
        key, end = self.key(), self.key()
        kind = self._rng.randrange(4)
        if kind == 0:
            return b"\0", b"\0"
        if kind == 1:
            return key, b"\0"
        return (key, b"") if kind == 2 or key >= end else (key, end)

    def value(self) -> bytes:
        """Return a value that no other write has."""
        self._values += 1
        size = self._rng.randrange(self._options.value_bytes_max)
        return (b"%d." % self._values).ljust(size, b"v")

    def lease(self) -> int:
        """Return a lease that was granted, seldom one that never was."""
        rng = self._rng
        return rng.choice(self.leases) if self.leases and rng.randrange(10) else 77

    def past(self) -> int:
        """Return a revision: a past one, the current one (0), or a future one."""
        rng, model = self._rng, self._checker.model
        kind = rng.randrange(6)
        if kind < 3:
            return 0
        if kind == 3:
            return model.revision + rng.randrange(4)
        return rng.randrange(max(model.compacted - 1, 1), model.revision + 1)

    def put(self, key: bytes) -> pb.PutRequest:
        """Return a put of a key."""
        rng = self._rng
        request = pb.PutRequest(key=key, prev_kv=rng.randrange(3) == 0)
        if rng.randrange(8):
            request.value = self.value()
        else:
            request.ignore_value = True
        if rng.randrange(4) == 0:
            request.lease = self.lease()
        elif rng.randrange(8) == 0:
            request.ignore_lease = True
        return request

    def range(self) -> pb.RangeRequest:
        """Return a range that may be read as a stream."""
        rng = self._rng
        key, end = self.range_of()
        request = pb.RangeRequest(key=key, range_end=end, revision=self.past())
        request.serializable = rng.randrange(3) == 0
        request.limit = rng.choice((0, 0, 1, 2, 5, (1 << 63) - 1))
        request.keys_only = rng.randrange(6) == 0
        request.count_only = rng.randrange(8) == 0
        return request

    def txn(self, keys: list[bytes], depth: int) -> pb.TxnRequest:
        """Make a transaction that writes no key twice: each write takes one off keys."""
        rng = self._rng
        request = pb.TxnRequest()
        for _ in range(rng.randrange(3)):
            request.compare.append(self.compare())
        for branch in (request.success, request.failure):
            for _ in range(rng.choice((0, 1, 1, 2, 4))):
                kind = rng.randrange(6)
                if kind == 0 or not keys:
                    branch.add().request_range.CopyFrom(self.range())
                elif kind == 1:
                    delete = pb.DeleteRangeRequest(key=keys.pop(), prev_kv=rng.randrange(2) == 0)
                    branch.add().request_delete_range.CopyFrom(delete)
                elif kind == 2 and depth < 2:
                    branch.add().request_txn.CopyFrom(self.txn(keys, depth + 1))
                else:
                    branch.add().request_put.CopyFrom(self.put(keys.pop()))
        return request

    def compare(self) -> pb.Compare:
        """Return a comparison that is often true."""
        rng, model = self._rng, self._checker.model
        key, end = self.range_of() if rng.randrange(4) == 0 else (self.key(), b"")
        compare = pb.Compare(key=key, range_end=end, result=any_of(rng, pb.Compare.CompareResult))
        compare.target = any_of(rng, pb.Compare.CompareTarget)
        held = model.at(key, model.revision)
        match compare.target:
            case pb.Compare.VERSION:
                compare.version = held.version if held else 0
            case pb.Compare.CREATE:
                compare.create_revision = held.create_revision if held else 0
            case pb.Compare.MOD:
                compare.mod_revision = rng.choice((held.mod_revision if held else 0, 3))
            case pb.Compare.VALUE:
                compare.value = held.value if held else b""
            case _:
                compare.lease = held.lease if held else 0
        return compare


def any_of(rng: random.Random, values: EnumTypeWrapper) -> Any:
    """Return one of the values of an enumeration of protobuf."""
    return rng.choice(values.values())
