"""Events that are repeated become a series of the first one."""

import asyncio
from typing import Any

from kvstack.agents.client.series_recorder import SeriesRecorder, cut
from tests.agents.support.cluster import ListLog

Object = dict[str, Any]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "web", "uid": "u", "resourceVersion": "7"},
}


class HandClock:
    now = 1000.0

    def now_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now


class ListApi:
    def __init__(self) -> None:
        self.created: list[Object] = []
        self.patched: list[tuple[str, Object]] = []

    async def create(self, _resource: Any, _namespace: str, obj: Object) -> Object:
        self.created.append(obj)
        return obj

    async def patch(
        self, _resource: Any, _namespace: str, name: str, body: Object, _type: str
    ) -> Object:
        self.patched.append((name, body))
        return body


def test_a_repeat_within_six_minutes_is_counted_and_keeps_the_first_note() -> None:
    async def run() -> None:
        api: Any = ListApi()
        clock = HandClock()
        recorder = SeriesRecorder(api, "default-scheduler", "here", clock, ListLog())

        async def record(note: str) -> None:
            recorder.record(POD, "Warning", "FailedScheduling", "Scheduling", note)
            await recorder.flushed()

        await record("one")
        clock.now += 100
        await record("two")
        [event] = api.created
        assert (event["note"], event["reportingInstance"]) == ("one", "here")
        assert event["regarding"]["name"] == "p"
        [(name, body)] = api.patched
        assert name == event["metadata"]["name"]
        assert body["series"]["count"] == 2
        assert body["series"]["lastObservedTime"].startswith("1970-01-01T00:18:20")
        clock.now += 400
        await record("three")
        assert [each["note"] for each in api.created] == ["one", "three"]

    asyncio.run(run())


def test_long_notes_are_cut() -> None:
    assert cut("x" * 1024) == "x" * 1024
    assert cut("x" * 1025) == "x" * 1020 + " ..."
