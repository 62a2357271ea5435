"""Pages about the program: /statusz, /flagz and the metrics of its health checks.

GET /flagz                                         text, a flag a line
Accept: application/json;g=config.k8s.io;v=v1beta1;as=Flagz      an object; YAML as well
"""

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.http.answers import NO_SNIFF
from kvstack.apiserver.http.encoding import write_plain
from kvstack.apiserver.http.negotiation import parse_accept
from kvstack.apiserver.http.pages.health import Health
from kvstack.apiserver.http.pages.page_set import Page, PageSet, check_get
from kvstack.apiserver.http.pages.version_page import MINOR
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.verbs.forms.bodies import JSON, YAML
from kvstack.component.clock import Clock
from kvstack.component.metrics.exposition import CONTENT_TYPE, FamilyKind, labels, render
from kvstack.component.version import KUBERNETES_VERSION

NAME: Final = "apiserver"
GROUP: Final = "config.k8s.io"
VERSIONS: Final = ("v1beta1",)
PATHS: Final = ("/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version")

_TEXT: Final = "text/plain"
_ACCEPTED: Final = (
    "only the following media types are accepted: application/json, application/yaml, text/plain"
)
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility"
    " guarantees and is for debugging purposes only.\n"
)


def add_component_pages(
    pages: PageSet, health: Health, clock: Clock, flags: Mapping[str, str]
) -> None:
    """Serve the pages; flags: the effective values by name."""
    began_ms = clock.unix_ms()
    pages.add("/flagz", _page("Flagz", lambda: ({"flags": dict(flags)}, _flags_text(flags))))
    pages.add("/statusz", _page("Statusz", lambda: _status(clock, began_ms)))
    pages.add("/metrics/slis", _checks(health))


def _page(kind: str, make: Callable[[], tuple[dict[str, Any], str]]) -> Page:
    async def page(context: RequestContext) -> None:
        request, reply = context.request, context.reply
        media_type, version = _negotiated(request.header("accept"), kind)
        members, text = make()
        if media_type == _TEXT:
            reply.send_text(200, f"\n{NAME} {kind.lower()}\n{_WARNING}{text}")
            return
        head = {"kind": kind, "apiVersion": f"{GROUP}/{version}", "metadata": {"name": NAME}}
        content_type = f"{media_type};g={GROUP};v={version};as={kind}"
        reply.send(200, content_type, write_plain({**head, **members}, media_type, is_pretty=True))

    return page


def _negotiated(accept: str, kind: str) -> tuple[str, str]:
    """Return the media type and the version of an answer; raises ApiError."""
    if not accept:
        return _TEXT, ""
    for each in parse_accept(accept):
        media_type = f"{each.type}/{each.subtype}"
        if media_type in (_TEXT, "text/*", "*/*"):
            return _TEXT, ""
        asked = dict(each.parameters)
        is_object = asked.get("g") == GROUP and asked.get("as") == kind
        if media_type in (JSON, YAML) and is_object and asked.get("v") in VERSIONS:
            return media_type, asked["v"]
    raise status.failure(406, "NotAcceptable", _ACCEPTED, {})


def _flags_text(flags: Mapping[str, str]) -> str:
    return "".join(f"{name} {text}\n" for name, text in sorted(flags.items()))


def _status(clock: Clock, began_ms: int) -> tuple[dict[str, Any], str]:
    up_s = (clock.unix_ms() - began_ms) // 1000
    python = ".".join(map(str, sys.version_info[:3]))
    members = {
        "startTime": format_time(began_ms // 1000),
        "uptimeSeconds": up_s,
        "goVersion": f"python{python}",
        "binaryVersion": KUBERNETES_VERSION,
        "emulationVersion": MINOR,
        "paths": list(PATHS),
    }
    began = datetime.fromtimestamp(began_ms / 1000, UTC)
    minutes, seconds = divmod(up_s, 60)
    hours, minutes = divmod(minutes, 60)
    lines = (
        f"Started:  {began:%a %b} {began.day:2} {began:%H:%M:%S} UTC {began.year}",
        f"Up:  {hours} hr {minutes:02} min {seconds:02} sec",
        f"Go version:  python{python}",
        f"Binary version:  {KUBERNETES_VERSION}",
        f"Emulation version:  {MINOR}",
        f"Paths:  {' '.join(PATHS)}",
    )
    return members, "\n" + "\n".join(lines) + "\n"


def _checks(health: Health) -> Page:
    async def page(context: RequestContext) -> None:
        request, reply = context.request, context.reply
        check_get(request)
        last: dict[str, int] = {}
        counts: dict[str, int] = {}
        for (name, kind), (fine, failed, is_fine) in sorted(health.observed.items()):
            last[labels(name=name, type=kind)] = int(is_fine)
            for level, count in (("error", failed), ("success", fine)):
                if count:
                    counts[labels(name=name, status=level, type=kind)] = count
        body = render(
            [
                (
                    "kubernetes_healthcheck",
                    FamilyKind.GAUGE,
                    "[STABLE] This metric records the result of a single healthcheck.",
                    last,
                ),
                (
                    "kubernetes_healthchecks_total",
                    FamilyKind.COUNTER,
                    "[STABLE] This metric records the results of all healthcheck.",
                    counts,
                ),
            ]
        )
        reply.send(200, CONTENT_TYPE, body, NO_SNIFF)

    return page
