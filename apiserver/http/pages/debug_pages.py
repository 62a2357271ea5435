"""Debug pages as JSON, for the dashboard and for users whom RBAC allows.

    /debug/slow_requests    the last requests of half a second and more, by stages
    /debug/watches          who watches what, what they have not taken, how old memory's copy is
    /debug/terminating      objects of all kinds that are being deleted, and what each waits for

The pages cover all namespaces and are not listed at `/`. Upstream has none of them.
"""

import asyncio
from collections import Counter
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects import status
from kvstack.apiserver.http.answers import NO_SNIFF
from kvstack.apiserver.http.pages.page_set import Page, PageSet, check_get
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.http.slow_requests import SLOW_NS, SlowRequests
from kvstack.apiserver.http.watches.watch_streams import WatchStreams
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.watch_cache import BehindError
from kvstack.apiserver.verbs.forms.bodies import JSON
from kvstack.component.clock import Clock
from kvstack.component.units import MILLISECOND_NS
from kvstore.client.errors import StoreError

ROOT: Final = "/debug"
SLOW_REQUESTS: Final = f"{ROOT}/slow_requests"
WATCHES: Final = f"{ROOT}/watches"
TERMINATING: Final = f"{ROOT}/terminating"
PATHS: Final = (SLOW_REQUESTS, WATCHES, TERMINATING)

BEHIND_SHOWN: Final = 20
TERMINATING_MAX: Final = 500
"""Limit of objects that are listed; all are counted."""
_STORE_S: Final = 2.0
_SLICE: Final = 2000
"""Records per slice, after which other tasks run."""
_PARSED_SLICE: Final = 200
_MARK: Final = b'"deletionTimestamp":"'


def add_debug_pages(
    pages: PageSet, slow: SlowRequests, watches: WatchStreams, registry: Registry, clock: Clock
) -> None:
    """Serve the pages."""

    async def slow_requests(context: RequestContext) -> None:
        check_get(context.request)
        send_json(
            context,
            {
                "thresholdMs": SLOW_NS // MILLISECOND_NS,
                "count": slow.count,
                "requests": [each.to_json() for each in reversed(slow.kept)],
            },
        )

    pages.add(SLOW_REQUESTS, slow_requests, is_listed=False)
    pages.add(WATCHES, _watches(watches, registry, clock), is_listed=False)
    pages.add(TERMINATING, _terminating(registry), is_listed=False)


def send_json(context: RequestContext, value: object) -> None:
    """Answer with JSON that is not to be cached."""
    context.reply.cache_control = "no-store"
    context.reply.send(200, JSON, orjson.dumps(value), NO_SNIFF)


def _watches(watches: WatchStreams, registry: Registry, clock: Clock) -> Page:
    async def page(context: RequestContext) -> None:
        check_get(context.request)
        copy = registry.watch_cache
        send_json(
            context,
            {
                "revision": copy.revision,
                "delayMs": await _delay_ms(registry, clock),
                "isInterrupted": copy.is_interrupted,
                **_fan_out(watches),
            },
        )

    return page


async def _delay_ms(registry: Registry, clock: Clock) -> float | None:
    """Return by how much the watch cache is behind the store; None: it did not catch up."""
    began_ns = clock.monotonic_ns()
    try:
        await registry.watch_cache.latest(_STORE_S)
    except (BehindError, StoreError):
        return None
    return round((clock.monotonic_ns() - began_ns) / MILLISECOND_NS, 2)


def _fan_out(watches: WatchStreams) -> dict[str, Any]:
    streams: Counter[tuple[str, str]] = Counter()
    for endpoint, _ in watches.open():
        streams[endpoint.row.group, endpoint.row.name] += 1
    sent_counts = {
        (each.group, each.resource): count for each, count in watches.event_counts().items()
    }
    groups = {(each.group, each.resource): count for each, count in watches.group_counts().items()}
    behind = sorted(watches.backlogs(), key=lambda each: -each.unsent_bytes)
    return {
        "streams": sum(streams.values()),
        "events": sum(sent_counts.values()),
        "unsentBytes": sum(each.unsent_bytes for each in behind),
        "resources": [
            {
                "group": key[0],
                "resource": key[1],
                "streams": streams[key],
                "groups": groups.get(key, 0),
                "events": sent_counts.get(key, 0),
            }
            for key in sorted({*streams, *sent_counts}, key=lambda each: (-streams[each], each))
        ],
        "behind": [each._asdict() for each in behind[:BEHIND_SHOWN]],
    }


def _terminating(registry: Registry) -> Page:
    async def page(context: RequestContext) -> None:
        check_get(context.request)
        try:
            await registry.watch_cache.latest(_STORE_S)
        except (BehindError, StoreError):
            raise status.service_unavailable("failed to read the store at present") from None
        terminating: list[dict[str, Any]] = []
        finalizers: Counter[str] = Counter()
        count = 0
        for collection in list(registry.watch_cache.collections.values()):
            resource = collection.resource
            for position, record in enumerate(list(collection.between())):
                if position % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                meta = _ending(record)
                if meta is None:
                    continue
                count += 1
                if count % _PARSED_SLICE == 0:
                    await asyncio.sleep(0)
                finalizers.update(meta["finalizers"])
                terminating.append({"group": resource.group, "resource": resource.resource, **meta})
        terminating.sort(
            key=lambda each: (each["deletionTimestamp"], each["namespace"], each["name"])
        )
        send_json(
            context,
            {
                "count": count,
                "finalizers": dict(finalizers.most_common(TERMINATING_MAX)),
                "objects": terminating[:TERMINATING_MAX],
            },
        )

    return page


def _ending(record: Record) -> dict[str, Any] | None:
    """Return what an object that is being deleted waits for; None: it is not being deleted."""
    if record.error or _MARK not in record.body:
        return None
    obj = record.parse()
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp"):
        return None  # the text occurs elsewhere in it
    return {
        "namespace": record.namespace,
        "name": record.name,
        "deletionTimestamp": meta["deletionTimestamp"],
        "graceSeconds": meta.get("deletionGracePeriodSeconds") or 0,
        # A namespace waits for the finalizers of its spec.
        "finalizers": [
            *(meta.get("finalizers") or ()),
            *((obj.get("spec") or {}).get("finalizers") or () if not record.namespace else ()),
        ],
        "conditions": [
            {"type": each.get("type"), "message": each["message"]}
            for each in (obj.get("status") or {}).get("conditions") or ()
            if not record.namespace and each.get("status") == "True" and each.get("message")
        ],
    }
