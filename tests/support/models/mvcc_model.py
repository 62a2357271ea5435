"""A store of revisions so plain that it can be checked by reading: all rows in one list.

Every answer is computed anew from the rows. The rules are etcd's, as seen in its
generations (a run of puts ended by a tombstone), not those of kvstore's index.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from google_crc32c import extend

from kvstore.wire.gen.kv_pb2 import KeyValue


class ModelRow(NamedTuple):
    main: int
    sub: int
    key: bytes
    kv: bytes
    tombstone: bool

    @property
    def revkey(self) -> bytes:
        name = self.main.to_bytes(8, "big") + b"_" + self.sub.to_bytes(8, "big")
        return name + b"t" if self.tombstone else name


class ModelEvent(NamedTuple):
    type: int
    key: bytes
    kv: bytes
    main: int
    sub: int
    prev: bytes | None


Revision = tuple[int, int]


def generations(rows: list[ModelRow]) -> dict[bytes, list[list[Revision]]]:
    found: dict[bytes, list[list[Revision]]] = {}
    for row in rows:
        lives = found.setdefault(row.key, [[]])
        lives[-1].append((row.main, row.sub))
        if row.tombstone:
            lives.append([])
    return found


def compaction_keep(rows: list[ModelRow], at: int) -> set[Revision]:
    """What a compaction at `at` keeps of the records up to it."""
    keep = set()
    for lives in generations(rows).values():
        life = next((each for each in lives[:-1] if each[-1][0] >= at), lives[-1])
        upto = [revision for revision in life if revision[0] <= at]
        if upto:
            keep.add(upto[-1])
    return keep


def hash_keep(rows: list[ModelRow], at: int) -> set[Revision]:
    """The same without tombstones: what HashKV takes for kept."""
    tombstones = {(row.main, row.sub) for row in rows if row.tombstone}
    return compaction_keep(rows, at) - tombstones


def hash_rows(rows: list[ModelRow], compacted: int, at: int, keep: set[Revision]) -> int:
    crc = extend(0, b"key")
    for row in rows:
        if row.main > at:
            continue
        if row.main <= compacted and keep and (row.main, row.sub) not in keep:
            continue
        if row.main == compacted and row.tombstone:
            continue
        crc = extend(extend(crc, row.revkey), row.kv)
    return crc


@dataclass
class Model:
    rows: list[ModelRow] = field(default_factory=list)
    revision: int = 1
    compacted: int = -1

    def copy(self) -> "Model":
        return Model(list(self.rows), self.revision, self.compacted)

    # reads

    def row_at(self, key: bytes, main: int) -> ModelRow | None:
        rows = [row for row in self.rows if row.key == key and row.main <= main]
        return rows[-1] if rows and not rows[-1].tombstone else None

    def range_at(self, key: bytes, range_end: bytes, main: int) -> list[bytes]:
        def inside(other: bytes) -> bool:
            if not range_end:
                return other == key
            return key <= other and (range_end == b"\0" or other < range_end)

        keys = sorted({row.key for row in self.rows if inside(row.key)})
        found = [self.row_at(each, main) for each in keys]
        return [row.kv for row in found if row is not None]

    def events(self, from_main: int, to_main: int) -> list[ModelEvent]:
        found = []
        for row in self.rows:
            if not from_main <= row.main < to_main:
                continue
            prev = self.row_at(row.key, row.main - 1) if row.main > self.compacted else None
            kv = row.kv
            if row.tombstone:
                kv = KeyValue(key=row.key, mod_revision=row.main).SerializeToString()
            found.append(
                ModelEvent(int(row.tombstone), row.key, kv, row.main, row.sub, prev and prev.revkey)
            )
        return found

    def leases(self) -> dict[bytes, int]:
        live = {row.key: self.row_at(row.key, self.revision) for row in self.rows}
        ids = {key: KeyValue.FromString(row.kv).lease for key, row in live.items() if row}
        return {key: lease for key, lease in ids.items() if lease}

    def hash_at(self, main: int) -> tuple[int, int | None]:
        """The hash, and that of a compaction there if it is another."""
        value, compaction = self._hashes(main)
        return value, None if compaction == value else compaction

    def _hashes(self, main: int) -> tuple[int, int]:
        keeps = hash_keep(self.rows, main), compaction_keep(self.rows, main)
        value, compaction = (hash_rows(self.rows, self.compacted, main, keep) for keep in keeps)
        return value, compaction

    # writes

    def put(self, key: bytes, value: bytes, lease: int, sub: int) -> None:
        main = self.revision + 1
        before = self.row_at(key, main)
        old = KeyValue.FromString(before.kv) if before else KeyValue(create_revision=main)
        kv = KeyValue(
            key=key,
            create_revision=old.create_revision,
            mod_revision=main,
            version=old.version + 1,
            value=value,
            lease=lease,
        )
        self.rows.append(ModelRow(main, sub, key, kv.SerializeToString(), tombstone=False))

    def delete(self, key: bytes, sub: int) -> None:
        kv = KeyValue(key=key).SerializeToString()
        self.rows.append(ModelRow(self.revision + 1, sub, key, kv, tombstone=True))

    def compact(self, main: int) -> tuple[int, int | None]:
        """Compact at once; return the hash of the compaction, and that of before if another."""
        keep = compaction_keep(self.rows, main)
        before, value = self._hashes(main)
        self.rows = [row for row in self.rows if row.main > main or (row.main, row.sub) in keep]
        self.compacted = main
        return value, None if before == value else before
