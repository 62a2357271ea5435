"""Objects and events as the recordings have them: what differs from run to run is masked.

<time> <uid Kind/name> <r> <hash:n> <rev:n> <minute> <ip:n> <port:n> <node> <pod ip> …
"""

import json
import re
from collections import defaultdict
from typing import Any

from kvstack.apimachinery.objects.json_object import Object

_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n?", re.DOTALL)
_GENERATED = re.compile(r"^(.*-)[bcdfghjklmnpqrstvwxz2456789]{5}$")
_VOLUME = re.compile(r"\bkube-api-access-[a-z0-9]{5}\b")
_REFUSED = re.compile(r'(?<=pods ")([^"]+-)[bcdfghjklmnpqrstvwxz2456789]{5}(?=" is forbidden)')
"""Names of pods that were never made."""
_MINUTE = re.compile(r"(?<=-)2\d{7}\b")
_TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
_TEMPLATE_HASH = "pod-template-hash"
_HASH_LABELS = ("controller-revision-hash", "controller.kubernetes.io/hash")


class Names:
    """What was seen in one story, and what stands for it."""

    def __init__(self) -> None:
        self.uids: dict[str, str] = {}
        self.generated: dict[str, str] = {}
        self.hashes: dict[str, str] = {}
        self._by_owner: defaultdict[str, list[str]] = defaultdict(list)
        self._ips: dict[str, str] = {}
        self._ports: dict[int, str] = {}
        self.pod_ips: dict[str, str] = {}
        self.texts: dict[str, str] = {}

    def see(self, obj: Object) -> None:
        """Remember an object, in the order of creation."""
        meta, kind = obj["metadata"], obj["kind"]
        owner: Object = next(
            (each for each in meta.get("ownerReferences") or () if each.get("controller")), {}
        )
        if kind == "ReplicaSet" and owner:
            self._number(owner["uid"], (meta.get("labels") or {}).get(_TEMPLATE_HASH), "hash")
        elif kind == "ControllerRevision":
            self._number(owner.get("uid", ""), meta["name"].rpartition("-")[2], "rev")
        name, prefix = meta["name"], meta.get("generateName")
        if prefix and name.startswith(prefix) and len(name) == len(prefix) + 5:
            self.generated[name] = f"{prefix}<r>"
        self.uids.setdefault(meta["uid"], f"{kind}/{name}")
        status, spec = obj.get("status") or {}, obj.get("spec") or {}
        if kind == "Pod" and status.get("podIP"):
            is_random = bool(meta.get("generateName"))
            self.pod_ips[status["podIP"]] = "<pod ip>" if is_random else f"<ip of {name}>"
        if kind == "Service":
            for ip in spec.get("clusterIPs") or ():
                if ip != "None":
                    self._ips.setdefault(ip, f"<ip:{len(self._ips) + 1}>")
            for port in spec.get("ports") or ():
                if port.get("nodePort"):
                    self._ports.setdefault(port["nodePort"], f"<port:{len(self._ports) + 1}>")

    def _number(self, owner: str, value: str | None, word: str) -> None:
        if value and value not in self.hashes:
            known = self._by_owner[f"{word} {owner}"]
            known.append(value)
            self.hashes[value] = f"<{word}:{len(known)}>"

    def text(self, text: str) -> str:
        """Return a text with what stands for its parts."""
        for ip, mask in (*self.pod_ips.items(), *self._ips.items()):
            if text == ip:
                return mask
        text = _PEM.sub("<certificate>", text)
        text = _TIME.sub("<time>", text)
        text = _UID.sub(self._uid, text)
        for name in sorted(self.generated, key=len, reverse=True):
            if name in text:
                text = text.replace(name, self.generated[name])
        for value, mask in self.hashes.items():
            if value in text:
                text = text.replace(value, mask)
        text = _REFUSED.sub(r"\1<r>", text)
        text = _VOLUME.sub("kube-api-access-<r>", text)
        return _MINUTE.sub("<minute>", text)

    def _uid(self, match: re.Match[str]) -> str:
        found = self.uids.get(match.group(0))
        return f"<uid {found}>" if found else match.group(0)

    def value(self, value: Any) -> Any:
        """Return a value with all its texts masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {
                self.text(key): self._ports.get(each, each)
                if key == "nodePort"
                else ("<rv>" if key == "resourceVersion" else self.value(each))
                for key, each in value.items()
            }
        return value


def normal_object(obj: Object, names: Names) -> Object:
    """Return an object in the form of the recordings."""
    meta = dict(obj["metadata"])
    for name in ("managedFields", "resourceVersion"):
        meta.pop(name, None)
    annotations = dict(meta.get("annotations") or {})
    annotations.pop(_TRIGGER_TIME, None)
    meta.pop("annotations", None)
    if annotations:
        meta["annotations"] = annotations
    is_random = meta["name"] in names.generated
    masked: Object = names.value({**obj, "metadata": meta})
    kind = obj["kind"]
    if kind == "Pod" and is_random and masked["spec"].get("nodeName") and not _is_of_node(obj):
        masked["spec"]["nodeName"] = "<node>"
    if kind == "Secret":
        masks = {"ca.crt": "<certificate>", "token": "<token>"}
        data = masked.get("data") or {}
        data.update({name: mask for name, mask in masks.items() if name in data})
    if kind == "EndpointSlice":
        masked["metadata"]["generation"] = "<n>"
        if masked.get("endpoints"):
            masked["endpoints"].sort(key=_canonical)
    if kind == "Endpoints":
        for subset in masked.get("subsets") or ():
            for members in ("addresses", "notReadyAddresses"):
                if subset.get(members):
                    subset[members].sort(key=_canonical)
        if masked.get("subsets"):
            masked["subsets"].sort(key=_canonical)
    return masked


def _is_of_node(pod: Object) -> bool:
    """Whether a pod was made for its node."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(each["kind"] == "DaemonSet" for each in owners)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def differences(expected: Any, found: Any, at: str = "") -> list[str]:
    """Return where two values differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            line
            for key in sorted(expected.keys() | found.keys())
            for line in differences(
                expected.get(key, "absent"), found.get(key, "absent"), f"{at}/{key}"
            )
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            line
            for number, (left, right) in enumerate(zip(expected, found, strict=True))
            for line in differences(left, right, f"{at}/{number}")
        ]
    if expected == found:
        return []
    return [f"{at}: wanted {_short(expected)}, found {_short(found)}"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 200 else f"{text[:200]}…"


def compare_objects(expected: list[Object], found: list[Object], skipped: set[str]) -> list[str]:
    """Return how two sets of objects differ; equal names are a multiset.

    skipped: places that differ between two recordings, as `Kind name/path`.
    """
    lines: list[str] = []
    left, right = defaultdict(list), defaultdict(list)
    for each in expected:
        left[_name(each)].append(each)
    for each in found:
        right[_name(each)].append(each)
    for name in sorted(left.keys() | right.keys()):
        if len(left[name]) != len(right[name]):
            lines.append(f"{name}: wanted {len(left[name])}, found {len(right[name])}")
            continue
        rest = sorted(right[name], key=_canonical)
        for each in sorted(left[name], key=_canonical):
            told = [
                [
                    line
                    for line in differences(each, candidate, name)
                    if line.partition(": ")[0] not in skipped
                ]
                for candidate in rest
            ]
            best = min(range(len(rest)), key=lambda number: len(told[number]))
            lines += told[best]
            rest.pop(best)
    return lines


def _name(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"
