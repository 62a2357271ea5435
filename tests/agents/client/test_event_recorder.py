"""Which Events are written, under which names, and how often they are tried."""

import asyncio
import gc
import sys
import weakref
from typing import Any

import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.event_correlation import EventCorrelator
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from tests.agents.support.scripted import Answered, Request, Scripted, refused
from tests.apiserver.support.virtual_time import run
from tests.sim.stack.timing import SimClock
from tests.support.list_log import ListLog
from tests.support.reachable import reachable


def event(
    message: str = "m", *, reason: str = "R", name: str = "web", type_: str = "Normal"
) -> Object:
    return {
        "metadata": {"name": f"{name}.1", "namespace": "default"},
        "source": {"component": "c"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name, "uid": name},
        "type": type_,
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": "t",
        "lastTimestamp": "t",
    }


def test_what_is_remembered_of_an_event_is_small() -> None:
    """A node with a thousand pods that come and go remembers four thousand events."""
    correlator = EventCorrelator()
    for number in range(500):
        correlator.correlate(event("m" * 500, name=f"web-{number}-{'x' * 200}"), 0.0)
    held = reachable([correlator.__dict__])
    assert sum(map(sys.getsizeof, held.values())) / 500 < 1_000 + len(f"web-499-{'x' * 200}.1")


class Referable(Object):
    """An object to which a weak reference is possible."""


def test_events_that_were_written_are_not_kept() -> None:
    correlator = EventCorrelator()
    written = Referable(event(), firstTimestamp="then")
    assert correlator.correlate(written, 0.0) == (written, False)
    kept = weakref.ref(written)
    del written
    gc.collect()
    assert kept() is None
    again = correlator.correlate(
        {**event(), "metadata": {"name": "web.2", "namespace": "default"}, "lastTimestamp": "now"},
        1.0,
    )
    assert again is not None
    assert again.is_patch
    assert again.event["metadata"]["name"] == "web.1"
    counted = [again.event[each] for each in ("firstTimestamp", "lastTimestamp", "count")]
    assert counted == ["then", "now", 2]


def test_the_same_event_is_counted() -> None:
    correlator = EventCorrelator()
    found = [correlator.correlate(event(), 0.0) for _ in range(3)]
    assert [(each.is_patch, each.event["count"]) for each in found if each] == [
        (False, 1),
        (True, 2),
        (True, 3),
    ]


@pytest.mark.parametrize(
    "other",
    [event("other"), event(reason="Other"), event(name="other"), event(type_="Warning")],
)
def test_events_that_differ_are_not_counted_together(other: Object) -> None:
    correlator = EventCorrelator()
    correlator.correlate(event(), 0.0)
    found = correlator.correlate(other, 0.0)
    assert found is not None
    assert not found.is_patch


def test_ten_messages_about_one_thing_become_one() -> None:
    correlator = EventCorrelator()
    found = [correlator.correlate(event(f"m{number}"), float(number)) for number in range(12)]
    told = [(each.is_patch, each.event["message"]) for each in found if each]
    combined = "(combined from similar events): "
    assert told[8:] == [
        (False, "m8"),
        (False, f"{combined}m9"),
        (True, f"{combined}m10"),
        (True, f"{combined}m11"),
    ]


def test_messages_that_are_ten_minutes_apart_are_not_similar() -> None:
    correlator = EventCorrelator()
    for number in range(12):
        found = correlator.correlate(event(f"m{number}"), number * 601.0)
        assert found is not None
        assert found.event["message"] == f"m{number}"


def test_a_source_may_write_25_events_about_an_object_and_then_one_in_five_minutes() -> None:
    correlator = EventCorrelator()
    first = [correlator.correlate(event(), 0.0) for _ in range(30)]
    assert sum(each is not None for each in first) == 25
    assert correlator.correlate(event(), 299.0) is None
    assert correlator.correlate(event(), 301.0) is not None
    assert correlator.correlate(event(), 302.0) is None
    assert correlator.correlate(event(name="other"), 302.0) is not None


def record(answers: list[Any], *abouts: Object) -> tuple[list[Request], list[float]]:
    """Record one event about each; return what was asked, and when."""

    async def body() -> tuple[list[Request], list[float]]:
        given = iter(answers)
        times: list[float] = []

        def answer(request: Request) -> Any:
            times.append(asyncio.get_running_loop().time())
            return next(given, None) or Answered(201, request.body)

        server = Scripted(answer)
        recorder = EventRecorder(Api(server), "c", SimClock(), lambda: 0.5, ListLog())
        for about in abouts:
            recorder.record(about, "Normal", "R", "m")
        await recorder.flushed()
        return server.requests, times

    return run(body())


def about(name: str, **meta: str) -> Object:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "uid": "u", **meta}}


@pytest.mark.parametrize("name", ["system:node", "Web", "a" * 250])
def test_what_cannot_begin_a_name_has_events_all_the_same(name: str) -> None:
    requests, _ = record([], about(name), about(name + "x"))
    names = [request.body["metadata"]["name"] for request in requests]
    assert len(set(names)) == 2
    for each in names:
        assert name_is_dns_subdomain(each, False) == []


def test_an_event_as_upstream_writes_it() -> None:
    [request], _ = record([], about("web", namespace="prod", resourceVersion="7"))
    body = request.body
    assert request.path == "/api/v1/namespaces/prod/events"
    name, _, moment = body["metadata"]["name"].partition(".")
    assert (name, int(moment, 16)) == ("web", 1_800_000_000 * 10**9)
    assert body["source"] == {"component": "c"}
    assert (body["reportingComponent"], body["reportingInstance"]) == ("c", "")
    assert (body["count"], body["firstTimestamp"]) == (1, body["lastTimestamp"])
    assert body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Thing",
        "name": "web",
        "namespace": "prod",
        "uid": "u",
        "resourceVersion": "7",
    }


def test_what_has_no_namespace_has_its_events_in_default() -> None:
    [request], _ = record([], about("n1"))
    assert request.path == "/api/v1/namespaces/default/events"


@pytest.mark.parametrize(
    ("answers", "methods"),
    [
        ([None, None], ["POST", "PATCH"]),
        ([None, refused(404)], ["POST", "PATCH", "POST"]),
        ([refused(403)], ["POST", "PATCH"]),
        ([UnreachableError("x"), UnreachableError("x")], ["POST", "POST", "POST", "PATCH"]),
    ],
)
def test_two_events_that_are_the_same(answers: list[Any], methods: list[str]) -> None:
    requests, _ = record(answers, about("web"), about("web"))
    assert [request.method for request in requests] == methods


def test_without_an_answer_an_event_is_tried_twelve_times() -> None:
    requests, times = record([UnreachableError("x")] * 12, about("web"))
    assert len(requests) == 12
    assert times[-1] == pytest.approx(5.0 + 10 * 10.0)
