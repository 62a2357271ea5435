"""Events that are repeated become a series of the first one."""

import asyncio
from itertools import pairwise
from typing import Any

from kvstack.agents.client.api import Api
from kvstack.agents.client.series_recorder import SeriesRecorder, cut
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.scripted import Answered, Request, Scripted, refused
from tests.apiserver.support.virtual_time import run as in_virtual_time
from tests.sim.stack.timing import SimClock
from tests.support.clocks import HandClock
from tests.support.list_log import ListLog

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "web", "uid": "u", "resourceVersion": "7"},
}


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


def recorded_counts(*moments: float, then_s: float = 4000.0) -> list[tuple[str, int, float]]:
    """Record an event at these moments; return how often it was told to have happened, and when."""

    async def story() -> list[tuple[str, int, float]]:
        told: list[tuple[str, int, float]] = []

        def answer(request: Request) -> Answered:
            count = (request.body.get("series") or {"count": 1})["count"]
            told.append((request.method, count, asyncio.get_running_loop().time()))
            return Answered(201, request.body)

        api = Api(Scripted(answer))
        recorder = SeriesRecorder(api, "default-scheduler", "here", SimClock(), ListLog())
        for moment in moments:
            await asyncio.sleep(moment - asyncio.get_running_loop().time())
            recorder.record(POD, "Warning", "FailedScheduling", "Scheduling", "note")
        await asyncio.sleep(then_s)
        await recorder.close()
        return told

    return in_virtual_time(story())


def test_a_series_is_reported_at_its_second_time_and_when_it_is_over() -> None:
    assert recorded_counts(0) == [("POST", 1, 0)]
    assert recorded_counts(0, 100) == [("POST", 1, 0), ("PATCH", 2, 100)]
    told = recorded_counts(0, 100, 200, 300)
    assert told[:2] == [("POST", 1, 0), ("PATCH", 2, 100)]
    [(method, count, when_s)] = told[2:]
    assert (method, count) == ("PATCH", 4)
    assert 300 + 360 <= when_s <= 300 + 720


def test_a_series_that_is_over_is_reported_when_the_next_one_begins() -> None:
    # Looked for every six minutes: at 360 it is not over, at 651 it is.
    told = recorded_counts(0, 100, 200, 290, 651)
    assert [(method, count) for method, count, _ in told[2:]] == [("PATCH", 4), ("POST", 1)]
    assert told[2][2] == told[3][2] == 651


def test_a_long_series_is_reported_every_half_hour() -> None:
    told = recorded_counts(*range(0, 6000, 60))
    assert told[-1][:2] == ("PATCH", 100)
    waits = [after[2] - before[2] for before, after in pairwise(told[1:])]
    assert len(waits) == 4
    assert all(1800 <= wait <= 1800 + 360 for wait in waits[:3])


def test_a_series_whose_event_is_gone_begins_a_new_one() -> None:
    async def story() -> list[tuple[str, Object]]:
        asked: list[tuple[str, Object]] = []

        def answer(request: Request) -> Answered:
            asked.append((request.method, request.body))
            return refused(404) if request.method == "PATCH" else Answered(201, request.body)

        api = Api(Scripted(answer))
        recorder = SeriesRecorder(api, "default-scheduler", "here", SimClock(), ListLog())
        for _ in range(2):
            recorder.record(POD, "Warning", "FailedScheduling", "Scheduling", "note")
            await recorder.flushed()
        await recorder.close()
        return asked

    asked = in_virtual_time(story())
    assert [method for method, _ in asked] == ["POST", "PATCH", "POST"]
    assert asked[2][1]["series"]["count"] == 2


def test_events_that_are_not_repeated_are_forgotten() -> None:
    async def story() -> tuple[int, int]:
        api = Api(Scripted(lambda request: Answered(201, request.body)))
        recorder = SeriesRecorder(api, "default-scheduler", "here", SimClock(), ListLog())
        for number in range(10):
            pod = {**POD, "metadata": {"name": f"p{number}", "namespace": "web"}}
            recorder.record(pod, "Normal", "Scheduled", "Binding", "note")
        await asyncio.sleep(300)
        before = len(recorder)
        await asyncio.sleep(421)
        after = len(recorder)
        await recorder.close()
        return before, after

    assert in_virtual_time(story()) == (10, 0)


def test_two_at_once_are_one_after_another() -> None:
    assert [(method, count) for method, count, _ in recorded_counts(0, 0)] == [
        ("POST", 1),
        ("PATCH", 2),
    ]


def test_long_notes_are_cut() -> None:
    assert cut("x" * 1024) == "x" * 1024
    assert cut("x" * 1025) == "x" * 1020 + " ..."
