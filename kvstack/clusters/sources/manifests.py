"""Contents of files and directories of YAML and JSON, and of a `kubectl cluster-info dump`.

    ManifestSource([Path("k8s/")]).read(options, progress)

What a manifest lacks is generated, always the same for the same files: uids, times,
revisions, the Namespaces that objects are in, cluster IPs of Services, and the status by which
definitions are served. Values in manifests are kept. If an object is written twice, the
later one counts. Objects are decoded as the store would: an invalid one is an error that names its
file and line.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

import orjson
from typing_extensions import override

from kvstack.agents.standalone.stack_settings import SERVICE_RANGE
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_path_segment
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apimachinery.well_known import NAMESPACE_NAME_LABEL
from kvstack.clusters.contents import ROOT, Contents, Origin
from kvstack.clusters.kinds import DEFINITIONS, Kinds, UnreadableError
from kvstack.clusters.sources.manifest_files import Manifest, manifests
from kvstack.clusters.sources.revision_times import newest_time_s
from kvstack.clusters.sources.source import Progress, ReadOptions, Source, SourceError
from kvstack.clusters.sources.store_records import StoreRecords
from kvstore.client.values import KeyValue

KIND: Final = "files"
_NAMESPACES: Final = b"/registry/namespaces/"
_UIDS: Final = UUID("6d1c3c0e-8d1b-4a53-9f0e-5b1d7a1f3a60")
_FIRST_IP: Final = IPv4Address(SERVICE_RANGE.partition("/")[0]) + 0x100
_REVISION_MAX: Final = 1 << 62
_KIND_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_VERSION_NAME: Final = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[a-z][a-z0-9]*")


class ManifestSource(Source):
    """Files and directories."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths: Final = tuple(paths)

    @property
    @override
    def name(self) -> str:
        return self._paths[0].resolve().name.partition(".")[0] or "files"

    @override
    async def read(self, options: ReadOptions, progress: Progress) -> Contents:
        paths = ", ".join(map(str, self._paths))
        if options.at or options.since_s:
            raise SourceError(f"{paths}: files have no past")
        progress.say(f"reading {paths}")
        reading = _Reading()
        found: dict[bytes, KeyValue] = {}
        # Definitions first: they say which kinds have namespaces.
        everything = list(manifests(self._paths, reading.left_out))
        for of_definitions in (True, False):
            for each in everything:
                if (each.obj["kind"] == "CustomResourceDefinition") == of_definitions:
                    kv = reading.row(each)
                    found.pop(kv.key, None)
                    found[kv.key] = kv
        rows = reading.completed(list(found.values()))
        records = StoreRecords(options._replace(etcd_prefix=ROOT.decode()), progress)
        for kv in rows:
            records.add(kv)
        revision = max(records.last_revision, 1)
        contents = await records.contents(Origin(KIND, paths), revision, revision, {})
        contents.left_out = [*reading.left_out, *contents.left_out]
        return contents


class _Reading:
    """Makes rows of objects."""

    def __init__(self) -> None:
        self._kinds: Final = Kinds()
        self._at: Final[dict[bytes, str]] = {}
        self.left_out: Final = list[Any]()

    def row(self, manifest: Manifest) -> KeyValue:
        """Return the row of an object; revision 0: it has none."""
        obj = manifest.obj
        meta = obj["metadata"]
        if not _KIND_NAME.fullmatch(obj["kind"]) or not _VERSION_NAME.fullmatch(obj["apiVersion"]):
            raise SourceError(f"{manifest.at}: unknown kind {obj['apiVersion']} {obj['kind']}")
        prefix, row = self._resource(obj)
        if wrong := check_path_segment(meta["name"]):
            raise SourceError(f"{manifest.at}: metadata.name {meta['name']!r}: {wrong[0]}")
        if row is not None and row.is_namespaced:
            meta["namespace"] = meta.get("namespace") or "default"
        elif row is not None:
            meta.pop("namespace", None)
        namespace = meta.get("namespace") or ""
        path = f"{namespace}/{meta['name']}" if namespace else meta["name"]
        key = ROOT + f"{prefix}/{path}".encode()
        revision = str(meta.pop("resourceVersion", "") or "")
        at = int(revision) if revision.isascii() and revision.isdigit() else 0
        if at > _REVISION_MAX:
            raise SourceError(f"{manifest.at}: resourceVersion {revision} is above {_REVISION_MAX}")
        meta["uid"] = str(meta.get("uid") or uuid5(_UIDS, key.decode()))
        if obj["kind"] == "Secret":
            _encode_strings(obj)
        if obj["kind"] == "Namespace":
            _activate(obj)
        if key.startswith(DEFINITIONS):
            _establish(obj)
        self._at[key] = manifest.at
        kv = KeyValue(key, _value(obj), at, at, 1, 0)
        if key.startswith(DEFINITIONS):
            self._check(kv)
            self._kinds.define(kv)
        return kv

    def completed(self, rows: list[KeyValue]) -> list[KeyValue]:
        """Return rows with what all of them together lack, in the order of their revisions."""
        rows += self._namespaces(rows)
        for kv in rows:
            self._check(kv)
        time_s = newest_time_s(self._kinds, rows)
        time = format_time(time_s or self._file_time_s())
        addresses = _addresses(self._kinds, rows)
        revision = max((kv.mod_revision for kv in rows), default=0)
        completed_rows = []
        for kv in sorted(rows, key=lambda kv: kv.key):
            obj = orjson.loads(kv.value)
            changed = obj["metadata"].setdefault("creationTimestamp", time) == time
            if kv.key.startswith(b"/registry/services/specs/"):
                changed |= _give_address(obj, addresses)
            at = kv.mod_revision
            if not at:
                revision += 1
                at = revision
            value = _value(obj) if changed else kv.value
            completed_rows.append(kv._replace(value=value, create_revision=at, mod_revision=at))
        completed_rows.sort(key=lambda kv: (kv.mod_revision, kv.key))
        return completed_rows

    def _resource(self, obj: Object) -> tuple[str, Resource | None]:
        """Return the prefix of an object's key, and its row; None: the kind is not known."""
        group, kind = obj["apiVersion"].rpartition("/")[0], obj["kind"]
        prefix = self._kinds.prefix_of_kind(group, kind)
        if prefix is not None:
            return prefix, self._kinds.resources[prefix][0]
        plural = f"{kind.lower()}s"
        return f"{group}/{plural}" if group else plural, None

    def _check(self, kv: KeyValue) -> None:
        """Raise SourceError for an object that no server could read."""
        if self._kinds.find(kv.key) is None:
            return
        try:
            self._kinds.read(kv)
        except UnreadableError as error:
            at = self._at.get(kv.key, "")
            raise SourceError(f"{at}: {error}") from error

    def _namespaces(self, rows: Iterable[KeyValue]) -> list[KeyValue]:
        """Return the Namespaces that objects are in and that are not among them."""
        names = set()
        there = set()
        for kv in rows:
            key_of = self._kinds.find(kv.key)
            if key_of is not None and key_of.namespace:
                names.add(key_of.namespace)
            if kv.key.startswith(_NAMESPACES):
                there.add(kv.key[len(_NAMESPACES) :].decode())
        return [
            KeyValue(
                _NAMESPACES + name.encode(),
                _value(
                    {
                        "apiVersion": "v1",
                        "kind": "Namespace",
                        "metadata": {
                            "name": name,
                            "uid": str(uuid5(_UIDS, f"namespaces/{name}")),
                            "labels": {NAMESPACE_NAME_LABEL: name},
                        },
                        "spec": {"finalizers": ["kubernetes"]},
                        "status": {"phase": "Active"},
                    }
                ),
                0,
                0,
                1,
                0,
            )
            for name in sorted(names - there)
        ]

    def _file_time_s(self) -> float:
        """Return when the newest of the files was written."""
        files = {at.partition("[")[0].rpartition(":")[0] for at in self._at.values()}
        return max((Path(each).stat().st_mtime for each in files), default=0.0)


def _value(obj: Object) -> bytes:
    return orjson.dumps(obj) + b"\n"  # it is decoded and defaulted when it is read


def _activate(namespace: Object) -> None:
    """Add the finalizer and phase that a server would, so that it is emptied before it goes."""
    spec, status = namespace.get("spec") or {}, namespace.get("status") or {}
    namespace["spec"] = {"finalizers": ["kubernetes"], **spec}
    namespace["status"] = {"phase": "Active", **status}


def _encode_strings(secret: Object) -> None:
    """Turn what people write into a Secret into what is stored of it."""
    strings = secret.pop("stringData", None)
    if isinstance(strings, dict):
        data = secret.setdefault("data", {})
        for name, text in strings.items():
            data[name] = base64.b64encode(str(text).encode()).decode()


def _establish(definition: Object) -> None:
    """Add the conditions of a served definition, if it has none."""
    status = definition.get("status") or {}
    spec = definition.get("spec")
    if status.get("acceptedNames", {}).get("plural") or not isinstance(spec, dict):
        return
    names = spec.get("names")
    if not isinstance(names, dict):
        return
    kind = str(names.get("kind", ""))
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    versions = [each for each in spec.get("versions") or () if isinstance(each, dict)]
    accepted = {"reason": "NoConflicts", "message": "no conflicts found", "status": "True"}
    served = {
        "reason": "InitialNamesAccepted",
        "message": "the initial names have been accepted",
        "status": "True",
    }
    definition["status"] = {
        "acceptedNames": names,
        "storedVersions": [each.get("name") for each in versions if each.get("storage")],
        "conditions": [{"type": "NamesAccepted", **accepted}, {"type": "Established", **served}],
    }


def _addresses(kinds: Kinds, rows: Iterable[KeyValue]) -> set[str]:
    """Return the cluster IPs that Services have."""
    found: set[str] = set()
    for key_of, obj in kinds.objects(rows):
        if key_of.resource == GroupResource("", "services"):
            found.update(obj["spec"].get("clusterIPs") or ())
    return found


def _give_address(service: Object, taken: set[str]) -> bool:
    """Give a Service the next cluster IP, if it needs one; return whether it does."""
    spec = service.setdefault("spec", {})
    if spec.get("clusterIP") or spec.get("type") == "ExternalName":
        return False
    address = _FIRST_IP
    while str(address) in taken:
        address += 1
    taken.add(str(address))
    spec |= {"clusterIP": str(address), "clusterIPs": [str(address)]}
    return True
