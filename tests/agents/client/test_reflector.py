"""What a reflector asks for after each kind of answer, and how long it waits."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from kvstack.agents.client.api import Api, Event
from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.reflector import Reflector
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.scripted import Answered, Request, Scripted, refused
from tests.apiserver.support.virtual_time import run
from tests.sim.stack.timing import SimClock
from tests.support.list_log import ListLog


class Received:
    """What the reflector told."""

    def __init__(self) -> None:
        self.wholes: list[tuple[list[str], str]] = []
        self.changes: list[tuple[str, str]] = []

    def replace(self, objects: list[Object], resource_version: str) -> None:
        self.wholes.append(([each["metadata"]["name"] for each in objects], resource_version))

    def apply(self, events: list[Event]) -> None:
        self.changes += [(each.type, each.object["metadata"].get("name", "")) for each in events]


def pod(name: str, version: int) -> Object:
    meta = {"name": name, "namespace": "default", "resourceVersion": str(version)}
    return {"metadata": {**meta, "managedFields": [{"manager": "x"}]}}


def line(kind: str, obj: Object) -> Object:
    return {"type": kind, "object": obj}


def bookmark(version: int, *, is_end: bool = False) -> Object:
    meta: Object = {"resourceVersion": str(version)}
    if is_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"metadata": meta})


INITIAL = Answered(200, lines=[line("ADDED", pod("a", 3)), bookmark(5, is_end=True)])
WATCH = Answered(200, lines=[line("MODIFIED", pod("a", 7))])
SILENT = Answered(200, lines=[])
LISTED = Answered(200, {"metadata": {"resourceVersion": "6"}, "items": [pod("a", 3)]})
AHEAD = refused(504, cause="ResourceVersionTooLarge")
GONE_LINE = Answered(200, lines=[line("ERROR", {"kind": "Status", "code": 410, "message": "x"})])
BUSY_LINE = Answered(200, lines=[line("ERROR", {"kind": "Status", "code": 500, "message": "x"})])


def kind_of_request(request: Request) -> str:
    """Name what was asked for: the whole by a watch, by a list, or changes since a version."""
    if "watch" not in request.query:
        return "list"
    if "sendInitialEvents" in request.query:
        return "whole"
    return f"since {request.query['resourceVersion']}"


def reflect(*answers: object) -> tuple[list[str], list[float], Received]:
    """Give these answers; return what was asked, when (in seconds), and what was told."""
    told = Received()

    async def story() -> tuple[list[str], list[float]]:
        given = iter(answers)
        done = asyncio.Event()
        times: list[float] = []

        def answer(request: Request) -> Any:
            times.append(round(asyncio.get_running_loop().time(), 3))
            found = next(given, None)
            if found is None:
                done.set()
                return asyncio.Event().wait()  # for ever
            return found

        server = Scripted(answer)
        reflector = Reflector(Api(server), PODS, told, SimClock(), lambda: 0.0, ListLog())
        task = asyncio.create_task(reflector.run())
        await done.wait()
        task.cancel()
        await asyncio.wait((task,))
        return [kind_of_request(each) for each in server.requests], times

    requests, times = run(story())
    return requests, times, told


@pytest.mark.parametrize(
    ("answers", "requests"),
    [
        ([INITIAL], ["whole", "since 5"]),
        ([INITIAL, WATCH], ["whole", "since 5", "since 7"]),
        # What is too old, or ahead of the server, begins from the whole.
        ([INITIAL, refused(410)], ["whole", "since 5", "whole"]),
        ([INITIAL, GONE_LINE], ["whole", "since 5", "whole"]),
        ([INITIAL, AHEAD], ["whole", "since 5", "whole"]),
        # Other failures of a watch go on from where it was.
        ([INITIAL, refused(429)], ["whole", "since 5", "since 5"]),
        ([INITIAL, refused(500)], ["whole", "since 5", "since 5"]),
        ([INITIAL, BUSY_LINE], ["whole", "since 5", "since 5"]),
        ([INITIAL, UnreachableError("x")], ["whole", "since 5", "since 5"]),
        # The whole is listed where a watch does not tell it …
        ([refused(400), LISTED], ["whole", "list", "since 6"]),
        ([refused(422), LISTED], ["whole", "list", "since 6"]),
        ([refused(500), LISTED], ["whole", "list", "since 6"]),
        ([refused(405), LISTED, GONE_LINE], ["whole", "list", "since 6", "whole"]),
        ([WATCH, LISTED], ["whole", "list", "since 6"]),
        ([refused(500), refused(500), LISTED], ["whole", "list", "list", "since 6"]),
        # … but not where the server is only busy, behind, or away.
        ([refused(429), INITIAL], ["whole", "whole", "since 5"]),
        ([AHEAD, INITIAL], ["whole", "whole", "since 5"]),
        ([refused(410), INITIAL], ["whole", "whole", "since 5"]),
        ([UnreachableError("x"), INITIAL], ["whole", "whole", "since 5"]),
    ],
)
def test_what_is_asked_for_next(answers: list[object], requests: list[str]) -> None:
    assert reflect(*answers)[0] == requests


@pytest.mark.parametrize("answers", [[INITIAL], [refused(400), LISTED]])
def test_objects_of_a_whole_are_made_light_as_they_come(
    answers: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the whole is there: until then all of them are held."""
    heard: list[list[list[str]]] = []

    def replace(_self: Informer, objects: list[Object], _version: str) -> None:
        heard.append([sorted(each["metadata"]) for each in objects])

    async def story() -> None:
        given = iter(answers)
        done = asyncio.Event()

        def answer(_request: Request) -> Any:
            found = next(given, None)
            if found is None:
                done.set()
            return asyncio.Event().wait() if found is None else found

        api = Api(Scripted(answer))
        informer = Informer(api, PODS, SimClock(), lambda: 0.0, ListLog())
        task = asyncio.create_task(informer.run())
        await done.wait()
        task.cancel()
        await asyncio.wait((task,))

    monkeypatch.setattr(Informer, "replace", replace)
    run(story())
    assert heard == [[["name", "namespace", "resourceVersion"]]]


def test_failures_wait_longer_each_time_and_at_most_half_a_minute() -> None:
    failures = [UnreachableError("x")] * 8
    _, times, _ = reflect(*failures)
    waits = [round(after - before, 3) for before, after in pairwise(times)]
    assert waits == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@pytest.mark.parametrize(("answer", "waits_s"), [(SILENT, 0.8), (WATCH, 0.0), (GONE_LINE, 0.0)])
def test_a_watch_that_ends_at_once_without_a_word_is_a_failure(
    answer: Answered, waits_s: float
) -> None:
    _, times, _ = reflect(INITIAL, answer)
    assert times[2] - times[1] == pytest.approx(waits_s, abs=0.01)


def test_a_server_that_always_answers_410_is_not_asked_without_pause() -> None:
    _, times, _ = reflect(*[refused(410)] * 3)
    assert times[3] - times[0] == pytest.approx(0.8 + 1.6 + 3.2, abs=0.01)


def test_the_whole_and_changes_are_delivered_in_order() -> None:
    first = Answered(
        200,
        lines=[
            line("ADDED", pod("a", 1)),
            line("ADDED", pod("b", 2)),
            line("DELETED", pod("a", 3)),
            bookmark(5, is_end=True),
            line("ADDED", pod("c", 6)),
        ],
    )
    _, _, told = reflect(first, WATCH)
    assert told.wholes == [(["b"], "5")]
    assert told.changes == [("ADDED", "c"), ("MODIFIED", "a")]
