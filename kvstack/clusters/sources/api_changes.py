"""The changes of one resource of an API server between two revisions, from a watch.

    records = await changes_of(api, encoder, listed, namespace, rows, (first, last))

A watch begins at the first revision and ends once the server says, by a bookmark or a later change,
that it is at the last one. Create revisions and versions, which the API does not show, are counted
from the rows that there were at first.
"""

from collections.abc import Iterable
from typing import Final

from kvstack.agents.client.api import Api, Event
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.status import ApiError
from kvstack.clusters.sources.api_kinds import ListedResource
from kvstack.clusters.sources.api_listing import Encoder
from kvstack.clusters.sources.source import SourceError
from kvstore.client.values import KeyValue

WATCH_S: Final = 5
"""Servers send their revision two seconds before the end of a watch."""
_ATTEMPTS: Final = 6
_BOOKMARK: Final = "BOOKMARK"
_DELETED: Final = "DELETED"


async def changes_of(
    api: Api,
    encoder: Encoder,
    listed: ListedResource,
    namespace: str,
    rows: Iterable[KeyValue],
    between: tuple[int, int],
) -> list[KeyValue]:
    """Return the changes after one revision and up to another; raises SourceError."""
    live = {kv.key: kv for kv in rows}
    changes: list[KeyValue] = []
    at, last = between
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            events = api.watch(
                listed.resource, namespace, resource_version=str(at), timeout_s=WATCH_S * attempt
            )
            try:
                async for batch in events:
                    for event in batch:
                        at = max(at, _revision(event))
                        if event.type == _BOOKMARK and at >= last:
                            return changes
                        if event.type != _BOOKMARK:
                            kv = _row(encoder, listed, event, live)
                            if kv.mod_revision > last:
                                return changes
                            changes.append(kv)
            finally:
                await events.aclose()
    except ApiError as error:
        raise SourceError(f"history of {listed.resource}: {error}") from error
    except UnreachableError as error:
        raise SourceError(f"history of {listed.resource}: {error}") from error
    raise SourceError(
        f"history of {listed.resource}: the server did not come to revision {last}, only to {at}"
    )


def _row(
    encoder: Encoder, listed: ListedResource, event: Event, live: dict[bytes, KeyValue]
) -> KeyValue:
    kv = encoder.row(listed, event.object)
    before = live.pop(kv.key, None)
    if event.type == _DELETED:
        return KeyValue(kv.key, b"", 0, kv.mod_revision, 0, 0)
    if before is not None:
        kv = kv._replace(create_revision=before.create_revision, version=before.version + 1)
    live[kv.key] = kv
    return kv


def _revision(event: Event) -> int:
    text = str((event.object.get("metadata") or {}).get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0
