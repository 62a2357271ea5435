"""ControllerRevisions: the templates of an owner, in order.

    data = data_of(template)
    ordered(revisions)[-1]                        the newest
    same = [each for each in revisions if is_same(each["data"], data)]

A revision holds a patch that puts its template back. Templates are equal if these patches are, but
for members that are null: releases before 1.37 wrote `creationTimestamp: null`, and a controller
that took such a revision for another template would replace all pods.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from kvstack.agents.client.built_in import CONTROLLER_REVISIONS
from kvstack.agents.controllers.ownership import (
    CONTROLLER_INDEX,
    controller_reference,
    orphans_value,
)
from kvstack.agents.controllers.workloads.hashes import fnv1_32, safe_text
from kvstack.agents.reconcile.plan import Delete, View
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector

REVISION_LABEL: Final = "controller-revision-hash"
"""The label of pods with their revision."""

_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_PREFIX_MAX: Final = 223


def data_of(template: Object) -> Object:
    """Return the patch that sets a template."""
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    # Sorted, as upstream writes it. What a patch makes of a revision has its raw content sorted,
    # and content that looks different then must not be changed: the revision would be orphaned.
    found: Object = orjson.loads(orjson.dumps(data, option=orjson.OPT_SORT_KEYS))
    return found


def template_of(revision: Object) -> Object:
    """Return the template that a revision puts back."""
    template = revision["data"]["spec"]["template"]
    return {name: value for name, value in template.items() if name != "$patch"}


def is_same(one: object, other: object) -> bool:
    """Whether two patches set the same template: members that are null are like none."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(is_same(one.get(name), other.get(name)) for name in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other) and type(one) is type(other)


def data_hash(data: Object, collision_count: int) -> str:
    """Return the hash that names a revision."""
    text = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    for plain, escaped in _ESCAPES:
        text = text.replace(plain, escaped)
    return safe_text(str(fnv1_32(text + str(collision_count).encode())))


def revision_name(owner: Object, hashed: str) -> str:
    """Return the name of a revision."""
    return f"{owner['metadata']['name'][:_PREFIX_MAX]}-{hashed}"


def new_revision(owner: Object, hashed: str, hash_label: str, data: Object, number: int) -> Object:
    """Return a revision of an owner's template."""
    meta = owner["metadata"]
    template_labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    metadata: Object = {
        "name": revision_name(owner, hashed),
        "namespace": meta["namespace"],
        "labels": {**template_labels, hash_label: hashed},
        "ownerReferences": [controller_reference(owner)],
    }
    if meta.get("annotations"):
        metadata["annotations"] = dict(meta["annotations"])
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": data,
        "revision": number,
    }


def ordered(revisions: Iterable[Object]) -> list[Object]:
    """Return revisions, the oldest first."""
    return sorted(revisions, key=_order)


def next_number(revisions: Sequence[Object]) -> int:
    """Return the number of the next revision."""
    return max((each["revision"] for each in revisions), default=0) + 1


def candidates(view: View, owner: Object, selector: Selector) -> list[Object]:
    """Return the revisions that an owner has, or may adopt."""
    meta = owner["metadata"]
    owned = view.by_index(CONTROLLER_REVISIONS, CONTROLLER_INDEX, meta["uid"])
    orphans = view.by_index(
        CONTROLLER_REVISIONS, CONTROLLER_INDEX, orphans_value(meta["namespace"])
    )
    return [
        each
        for each in (*owned, *orphans)
        if selector.matches(each["metadata"].get("labels") or {})
    ]


def surplus(revisions: Sequence[Object], live: set[str], limit: int) -> list[Delete]:
    """Return the deletions of the oldest beyond a limit that nothing uses; live: their names."""
    unused = [each for each in ordered(revisions) if each["metadata"]["name"] not in live]
    if limit < 0:
        return []
    return [
        Delete(CONTROLLER_REVISIONS, each["metadata"]["namespace"], each["metadata"]["name"])
        for each in unused[: max(len(unused) - limit, 0)]
    ]


def _order(revision: Object) -> tuple[int, str, str]:
    meta = revision["metadata"]
    return revision["revision"], meta.get("creationTimestamp", ""), meta["name"]
