"""The file of packed contents, written and read.

    shop.kvs (zip)
        about.json                  readable: origin, revision, kinds, what was left out, checksums
        objects/00000.msgpack       [[key, value, create, mod, version, lease], …]   by key
        history/00000.msgpack       what there was before, by revision

The same contents make the same bytes: names, times and order in the zip are fixed. A file is put in
place whole. What is read is not believed: sizes are limited before anything is unpacked, checksums
and order are checked, and what is wrong names the segment.
"""

import hashlib
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack
import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.times import TimeError, format_time, parse_time
from kvstack.clusters.contents import Contents, History, LeftOut, Origin
from kvstack.clusters.kinds import Kinds
from kvstack.component.errors import ConfigError
from kvstack.component.version import VERSION
from kvstore.client.values import KeyValue

FORMAT: Final = "kvstack-pack"
FORMAT_VERSION: Final = 1
ABOUT: Final = "about.json"
SEGMENT_BYTES: Final = 4 << 20
"""A segment ends with the record that exceeds it."""
SEGMENT_RECORDS: Final = 5_000
SEGMENT_BYTES_MAX: Final = 64 << 20
"""The maximum size of a segment that is read."""
SEGMENTS_MAX: Final = 20_000
ABOUT_BYTES_MAX: Final = 16 << 20
_OBJECTS: Final = "objects/"
_HISTORY: Final = "history/"
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_LEVEL: Final = 6
_UNIX: Final = 3
_MODE: Final = 0o100600


class PackError(ConfigError):
    """A file cannot be written or read; the text names it, and the segment."""


class Segment(NamedTuple):
    """The entry of a segment in `about.json`."""

    name: str
    sha256: str
    bytes: int
    records: int


# Writing.


def write_pack(path: Path, contents: Contents, secrets: Mapping[str, int] | None) -> None:
    """Write contents into a file, whole or not at all; PackError.

    secrets: how many of which kind were left out; None: all are kept.
    """
    new = path.with_name(f".{path.name}.kvstack-{os.getpid()}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                _write(archive, contents, secrets)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise PackError(f"{path}: {error.strerror}") from error
    finally:
        new.unlink(missing_ok=True)


def _write(archive: zipfile.ZipFile, contents: Contents, secrets: Mapping[str, int] | None) -> None:
    segments = []
    history = contents.history
    old = sorted(history.records, key=attrgetter("mod_revision", "key")) if history else ()
    for prefix, records in ((_OBJECTS, contents.rows), (_HISTORY, old)):
        for number, (data, count) in enumerate(_packed(records)):
            name = f"{prefix}{number:05d}.msgpack"
            _add(archive, name, data)
            segments.append(Segment(name, hashlib.sha256(data).hexdigest(), len(data), count))
    about = _about(contents, secrets, segments)
    _add(archive, ABOUT, orjson.dumps(about, option=orjson.OPT_INDENT_2) + b"\n")


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    info.external_attr = _MODE << 16
    archive.writestr(info, data, compresslevel=_LEVEL)


def _packed(records: Iterable[KeyValue]) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes of segments, and how many records each has."""
    pending: list[KeyValue] = []
    size = 0
    for kv in records:
        pending.append(kv)
        size += len(kv.key) + len(kv.value)
        if size >= SEGMENT_BYTES or len(pending) >= SEGMENT_RECORDS:
            yield msgpack.packb([tuple(each) for each in pending]), len(pending)
            pending, size = [], 0
    if pending:
        yield msgpack.packb([tuple(each) for each in pending]), len(pending)


def _about(
    contents: Contents, secrets: Mapping[str, int] | None, segments: Sequence[Segment]
) -> dict[str, Any]:
    kinds = Kinds.of(contents.rows)
    numbers = Counter(
        str(key_of.resource) if key_of else "of kinds that are not known"
        for key_of in (kinds.find(kv.key) for kv in contents.rows)
    )
    history = contents.history
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kvstack": VERSION,
        "origin": contents.origin._asdict(),
        "revision": contents.revision,
        "time": format_time(contents.time_s) if contents.time_s else "",
        "objects": len(contents.rows),
        "kinds": dict(sorted(numbers.items())),
        "history": None
        if history is None
        else {"readableFrom": history.readable_from, "records": len(history.records)},
        "leftOut": [each._asdict() for each in contents.left_out],
        "unread": sorted([each.group, each.resource] for each in contents.unread),
        "leases": {str(lease): ttl_s for lease, ttl_s in sorted(contents.leases.items())},
        "secrets": "kept" if secrets is None else {"leftOut": dict(sorted(secrets.items()))},
        "segments": [each._asdict() for each in segments],
    }


# Reading.


def is_pack(head: bytes) -> bool:
    """Return whether a file that begins so may be one of these."""
    return head.startswith(b"PK\x03\x04")


def read_about(path: Path) -> dict[str, Any]:
    """Return the `about.json` of a file; PackError."""
    with _open(path) as archive:
        return _read_about(path, archive)


def read_pack(path: Path, objects_max: int) -> Contents:
    """Return the contents of a file; PackError names what is wrong with it."""
    with _open(path) as archive:
        about = _read_about(path, archive)
        try:
            return _contents(path, archive, about, objects_max)
        except (KeyError, TypeError, ValueError, AttributeError, TimeError) as error:
            raise PackError(f"{path}: {ABOUT}: {error!r}") from error


def _open(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise PackError(f"{path}: {error.strerror}") from error
    except zipfile.BadZipFile as error:
        raise PackError(f"{path}: not a packed file, or truncated: {error}") from error


def _read_about(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    data = _member(path, archive, ABOUT, ABOUT_BYTES_MAX)
    try:
        about = orjson.loads(data)
    except ValueError as error:
        raise PackError(f"{path}: {ABOUT}: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise PackError(f"{path}: {ABOUT}: not a packed cluster")
    if about.get("version") != FORMAT_VERSION:
        raise PackError(
            f"{path}: it has version {about.get('version')!r} of the format; this program reads "
            f"version {FORMAT_VERSION}"
        )
    return about


def _contents(
    path: Path, archive: zipfile.ZipFile, about: dict[str, Any], objects_max: int
) -> Contents:
    segments = [Segment(**each) for each in about["segments"]]
    if len(segments) > SEGMENTS_MAX:
        raise PackError(f"{path}: {len(segments)} segments, at most {SEGMENTS_MAX} are read")
    rows: list[KeyValue] = []
    old: list[KeyValue] = []
    for segment in segments:
        records = rows if segment.name.startswith(_OBJECTS) else old
        records += _segment(path, archive, segment)
        if len(rows) > objects_max:
            raise PackError(
                f"{path}: it has {about['objects']} objects, at most {objects_max} are read; "
                "--max-objects reads more"
            )
    for before, kv in pairwise(rows):
        if before.key >= kv.key:
            raise PackError(f"{path}: key {kv.key!r} comes after {before.key!r}")
    time = about["time"]
    history = about["history"]
    return Contents(
        rows,
        int(about["revision"]),
        Origin(**about["origin"]),
        float(parse_time(time).seconds) if time else 0.0,
        [LeftOut(**each) for each in about["leftOut"]],
        None if history is None else History(int(history["readableFrom"]), old),
        frozenset(GroupResource(*each) for each in about["unread"]),
        {int(lease): int(ttl_s) for lease, ttl_s in about["leases"].items()},
    )


def _segment(path: Path, archive: zipfile.ZipFile, segment: Segment) -> list[KeyValue]:
    data = _member(path, archive, segment.name, SEGMENT_BYTES_MAX)
    found = hashlib.sha256(data).hexdigest()
    if found != segment.sha256:
        raise PackError(
            f"{path}: segment {segment.name} is damaged: its checksum is {found[:16]}… and not "
            f"{segment.sha256[:16]}…"
        )
    try:
        return [_record(each) for each in msgpack.unpackb(data)]
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise PackError(f"{path}: segment {segment.name}: {error}") from error


def _record(values: Sequence[Any]) -> KeyValue:
    """Return a record of an untrusted file; raises ValueError and TypeError."""
    kinds = [type(each) for each in values]
    if kinds != [bytes, bytes, int, int, int, int] or min(values[2:]) < 0:
        raise ValueError(f"invalid record: {values!r:.200}")
    return KeyValue(*values)


def _member(path: Path, archive: zipfile.ZipFile, name: str, bytes_max: int) -> bytes:
    """Return the bytes of a file of the zip, up to the limit."""
    try:
        with archive.open(name) as member:
            data = member.read(bytes_max + 1)
    except KeyError:
        raise PackError(f"{path}: {name} is missing") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise PackError(f"{path}: segment {name} is damaged: {error}") from error
    except RuntimeError as error:  # it is encrypted
        raise PackError(f"{path}: {name}: {error}") from error
    if len(data) > bytes_max:
        raise PackError(f"{path}: {name} has more than {bytes_max} bytes")
    return data
