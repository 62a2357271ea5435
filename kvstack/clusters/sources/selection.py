"""Selects the rows of some namespaces, and cluster-scoped ones.

Of what belongs to none, other Namespaces stay away, and volumes that are bound to claims elsewhere.
"""

from collections.abc import Iterable
from typing import Final

from kvstack.clusters.contents import ROOT
from kvstack.clusters.kinds import Kinds, UnreadableError
from kvstore.client.values import KeyValue

_NAMESPACES: Final = b"/registry/namespaces/"
_VOLUMES: Final = b"/registry/persistentvolumes/"


def of_namespaces(
    kinds: Kinds, rows: Iterable[KeyValue], namespaces: tuple[str, ...]
) -> list[KeyValue]:
    """Return the rows that belong to namespaces; none are named: all."""
    if not namespaces:
        return list(rows)
    return [kv for kv in rows if _is_of(kinds, kv, namespaces)]


def _is_of(kinds: Kinds, kv: KeyValue, namespaces: tuple[str, ...]) -> bool:
    if kv.key.startswith(_NAMESPACES):
        return kv.key[len(_NAMESPACES) :].decode("utf-8", "replace") in namespaces
    if kv.key.startswith(_VOLUMES):
        return _is_volume_of(kinds, kv, namespaces)
    key_of = kinds.find(kv.key)
    if key_of is not None:
        return not key_of.namespace or key_of.namespace in namespaces
    # Of a kind that is not known: resource, or group and resource, then maybe a namespace.
    parts = kv.key.removeprefix(ROOT).decode("utf-8", "replace").split("/")
    return len(parts) <= 3 or parts[-2] in namespaces


def _is_volume_of(kinds: Kinds, kv: KeyValue, namespaces: tuple[str, ...]) -> bool:
    if not kv.version:
        return True
    try:
        claim = (kinds.read(kv).get("spec") or {}).get("claimRef") or {}
    except UnreadableError:
        return False
    return claim.get("namespace", namespaces[0]) in namespaces
