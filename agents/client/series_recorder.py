"""Writes events of events.k8s.io in the background; repeats become a series of the first one.

    recorder = SeriesRecorder(api, "default-scheduler", "default-scheduler-host", clock, logger)
    recorder.record(pod, "Warning", "FailedScheduling", "Scheduling", "0/3 nodes are available: …")
    await recorder.flushed()

An event is repeated when type, reason, action and object are the same, whatever its note, and the
last was less than six minutes ago. The second time makes it a series. Later times are only counted
here; the server gets the count every half hour, and when the series ends. Six minutes after the
last time an event is forgotten. Recording never blocks; the newest are dropped when thousands wait.

There is a series for each recently scheduled pod. So what is remembered is small: the compressed
event, and a digest of what identifies it.
"""

import asyncio
from collections import OrderedDict, deque
from hashlib import blake2b
from typing import Final

import orjson

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NEW_EVENTS
from kvstack.agents.client.event_recorder import reference_to
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.json_text import exact
from kvstack.apimachinery.objects.times import micro_time_text
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.packing import Packed, Packing

_WAITING_MAX: Final = 10_000
_REMEMBERED_MAX: Final = 4096
_SERIES_S: Final = 360.0
_WRITE_EVERY_S: Final = 1800.0
_WRITERS: Final = 16
_NOTE_BYTES_MAX: Final = 1024
_DIGEST_BYTES: Final = 15


class _Series:
    """An event, how often it happened, and the count that the server has."""

    __slots__ = (
        "_data",
        "_examples",
        "count",
        "is_due",
        "is_written",
        "last_s",
        "written_count",
        "written_s",
    )

    def __init__(self, event: Object, last_s: float, packing: Packing) -> None:
        # Most are never needed again; parsed, each would take fifteen times as much.
        content = orjson.dumps(event)
        packed = packing.of(content)
        self._data: Final = exact(content) if packed is None else packed.data
        self._examples: Final = None if packed is None else packed.examples
        """None: it is not compressed."""
        self.count = 1
        self.last_s = last_s
        self.written_count = 0
        self.written_s = last_s
        self.is_written = False  # just now
        self.is_due = False  # once more, after that

    def event(self) -> Object:
        """Return the event as it was first written."""
        data, examples = self._data, self._examples
        event: Object = orjson.loads(data if examples is None else Packed(data, examples).content())
        return event


class SeriesRecorder:
    """Records events of one component."""

    def __init__(
        self, api: Api, controller: str, instance: str, clock: Clock, logger: Logger
    ) -> None:
        """controller and instance: the reporting component."""
        self._api = api
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._logger = logger
        self._series: OrderedDict[bytes, _Series] = OrderedDict()
        self._packing = Packing()
        self._waiting: deque[_Series] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many events are remembered."""
        return len(self._series)

    def record(self, about: Object, type_: str, reason: str, action: str, note: str) -> None:
        """Record an event about an object."""
        if len(self._waiting) >= _WAITING_MAX:
            self._logger.warning("an event was dropped", reason=reason, limit=_WAITING_MAX)
            return
        now_s = self._clock.now_s()
        regarding = reference_to(about)
        key = _digest(type_, reason, action, *map(str, regarding.values()))
        series = self._series.get(key)
        if series is not None and now_s - series.last_s >= _SERIES_S:
            if series.count > series.written_count:
                self._write_soon(series)
            series = None
        if series is None:
            event = self._event(regarding, type_, reason, action, cut(note), now_s)
            series = self._series[key] = _Series(event, now_s, self._packing)
            if len(self._series) > _REMEMBERED_MAX:
                self._series.popitem(last=False)
            self._write_soon(series)
        else:
            series.count += 1
            series.last_s = now_s
            if series.count == 2:
                self._write_soon(series)
        self._series.move_to_end(key)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SERIES_S, self._sweep)

    def _write_soon(self, series: _Series) -> None:
        self._waiting.append(series)
        if len(self._tasks) < _WRITERS:
            task = asyncio.get_running_loop().create_task(self._write_all(), name="events")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _sweep(self) -> None:
        """Write the counts of series that have ended, and of those not written for long.

        Those that are over are forgotten.
        """
        now_s = self._clock.now_s()
        for key, series in list(self._series.items()):
            is_over = now_s - series.last_s >= _SERIES_S
            is_behind = series.count > series.written_count
            if is_behind and (is_over or now_s - series.written_s >= _WRITE_EVERY_S):
                self._write_soon(series)
            if is_over:
                del self._series[key]
        self._timer = None
        if self._series:
            self._timer = asyncio.get_running_loop().call_later(_SERIES_S, self._sweep)

    @property
    def is_idle(self) -> bool:
        """Whether all that is due is written, or dropped."""
        return not self._tasks

    async def flushed(self) -> None:
        """Wait until what was recorded is written, or given up."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Give up what waits."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _event(
        self, regarding: Object, type_: str, reason: str, action: str, note: str, now_s: float
    ) -> Object:
        # Names must differ even if the clock does not advance.
        self._last_ns = max(int(now_s * 1e9), self._last_ns + 1)
        namespace = regarding.get("namespace") or "default"
        return {
            "apiVersion": NEW_EVENTS.api_version,
            "kind": NEW_EVENTS.kind,
            "metadata": {
                "name": f"{regarding['name']}.{self._last_ns:x}",
                "namespace": namespace,
            },
            "eventTime": micro_time_text(now_s),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": regarding,
            "note": note,
            "type": type_,
        }

    async def _write_all(self) -> None:
        while self._waiting:
            series = self._waiting.popleft()
            if series.is_written:
                series.is_due = True
                continue
            series.is_written = True
            try:
                await self._write(series)
            except (ApiError, UnreachableError) as error:
                reason = series.event()["reason"]
                self._logger.warning(
                    "the API server refused an event", reason=reason, error=str(error)
                )
            series.is_written = False
            if series.is_due:
                series.is_due = False
                self._waiting.append(series)

    async def _write(self, series: _Series) -> None:
        event = series.event()
        meta = event["metadata"]
        is_first = not series.written_count
        series.written_count = series.count
        if is_first:
            series.written_count = 1
            await self._api.create(NEW_EVENTS, meta["namespace"], event)
            return
        series.written_s = self._clock.now_s()
        counted = {"count": series.count, "lastObservedTime": micro_time_text(series.last_s)}
        try:
            await self._api.patch(
                NEW_EVENTS,
                meta["namespace"],
                meta["name"],
                {"series": counted},
                STRATEGIC_MERGE_PATCH,
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
            await self._api.create(NEW_EVENTS, meta["namespace"], {**event, "series": counted})


def _digest(*parts: str) -> bytes:
    """Return what tells events apart, in some bytes instead of some hundred."""
    return blake2b(
        "\n".join(parts).encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES
    ).digest()


def cut(note: str) -> str:
    """Return a note no longer than events may have."""
    data = note.encode()
    if len(data) <= _NOTE_BYTES_MAX:
        return note
    return data[: _NOTE_BYTES_MAX - 4].decode("utf-8", "ignore") + " ..."
