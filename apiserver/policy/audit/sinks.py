"""Sinks of events, and their wrappers.

Sink.process(events) → whether they were taken, or an awaitable of it

LineSink     one line an event, in JSON or in the legacy format
Truncating   events that are too large lose their objects, batches are split
Several      all of some sinks
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.component.logger import Logger

JSON: Final = "json"
LEGACY: Final = "legacy"
FORMATS: Final = (JSON, LEGACY)
_TRUNCATED: Final = "audit.k8s.io/truncated"
_LARGE: Final = frozenset(("Request", "RequestResponse"))


class Sink(Protocol):
    """Takes events."""

    def process(self, events: Sequence[Object]) -> bool | Awaitable[bool]:
        """Take events; return False if they are lost. Must not fail."""
        ...

    async def stop(self) -> None:
        """Flush and close."""
        ...


class Errors:
    """Counts and logs lost events."""

    def __init__(self, logger: Logger) -> None:
        self._logger: Final = logger
        self.counts: Final[dict[str, int]] = {}
        """Lost events by back end."""

    def add(self, plugin: str, error: object, count: int) -> None:
        """Count lost events."""
        self.counts[plugin] = self.counts.get(plugin, 0) + count
        self._logger.error("lost audit events", plugin=plugin, count=count, error=str(error))


class LineSink:
    """Writes events as lines."""

    name = "log"

    def __init__(
        self,
        write: Callable[[bytes], None],
        errors: Errors,
        format_: str = JSON,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """write: raises OSError on failure."""
        self._write: Final = write
        self._errors: Final = errors
        self._line: Final = legacy_line if format_ == LEGACY else json_line
        self._close: Final = close

    def process(self, events: Sequence[Object]) -> bool:
        """Write events."""
        try:
            self._write(b"".join(map(self._line, events)))
        except OSError as error:
            self._errors.add(self.name, error, len(events))
            return False
        return True

    async def stop(self) -> None:
        """Close the output."""
        self._close()


class Truncating:
    """Limits the size in bytes of events and batches."""

    name = "truncate"

    def __init__(self, to: Sink, errors: Errors, event_max: int, batch_max: int) -> None:
        self._to: Final = to
        self._errors: Final = errors
        self._event_max: Final = event_max
        self._batch_max: Final = batch_max

    def process(self, events: Sequence[Object]) -> bool | Awaitable[bool]:
        """Pass events on."""
        batches: list[list[Object]] = []
        batch_size = 0
        for each in events:
            event, size = each, len(json_line(each))
            if size > self._event_max and each["level"] in _LARGE:
                event = _truncated(each)
                size = len(json_line(event))
            if size > self._event_max:
                self._errors.add(self.name, "event is too large even after truncating", 1)
                continue
            if not batches or batch_size + size > self._batch_max:
                batches.append([])
                batch_size = 0
            batches[-1].append(event)
            batch_size += size
        return _all([self._to.process(each) for each in batches])

    async def stop(self) -> None:
        """Stop the wrapped sink."""
        await self._to.stop()


class Several:
    """Passes events on to several sinks."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks: Final = tuple(sinks)

    def process(self, events: Sequence[Object]) -> bool | Awaitable[bool]:
        """Pass events on."""
        return _all([each.process(events) for each in self._sinks])

    async def stop(self) -> None:
        """Stop all of them."""
        for each in self._sinks:
            await each.stop()


def _all(found: Sequence[bool | Awaitable[bool]]) -> bool | Awaitable[bool]:
    if all(isinstance(each, bool) for each in found):
        return all(found)
    return _wait(found)


async def _wait(found: Sequence[bool | Awaitable[bool]]) -> bool:
    taken = [each if isinstance(each, bool) else await each for each in found]
    return all(taken)


def _truncated(event: Object) -> Object:
    found = {n: v for n, v in event.items() if n not in ("requestObject", "responseObject")}
    found["annotations"] = {**event.get("annotations", {}), _TRUNCATED: "true"}
    return found


def json_line(event: Object) -> bytes:
    """Return an event as a line of JSON."""
    return json_text.write(event) + b"\n"


def legacy_line(event: Object) -> bytes:
    """Return an event as a line of the format before JSON."""
    user, other = event["user"], event.get("impersonatedUser")
    name = user.get("username", "")
    groups = user.get("groups") if name else None
    as_groups = None if other is None else other.get("groups")
    status = event.get("responseStatus")
    ips = event.get("sourceIPs")
    pairs = (
        ("id", event["auditID"]),
        ("stage", event["stage"]),
        ("ip", ips[0] if ips else "<unknown>"),
        ("method", event["verb"]),
        ("user", name or "<none>"),
        ("groups", _list(groups) if groups else "<none>"),
        ("as", "<self>" if other is None else other.get("username", "")),
        ("asgroups", "<lookup>" if as_groups is None else _list(as_groups)),
        ("user-agent", event.get("userAgent", "")),
        ("namespace", (event.get("objectRef") or {}).get("namespace") or "<none>"),
        ("uri", event["requestURI"]),
        ("response", "<deferred>" if status is None else str(status.get("code", 0))),
    )
    text = " ".join(f"{key}={quote(value)}" for key, value in pairs)
    return f"{event['requestReceivedTimestamp']} AUDIT: {text}\n".encode()


def _list(values: Sequence[str]) -> str:
    return ",".join(quote(each) for each in values)
