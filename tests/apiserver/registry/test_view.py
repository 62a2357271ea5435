"""The copy as policy reads it."""

from typing import Any

import orjson
import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.view import CHANGES_PER_CALL, Change, View
from tests.apiserver.registry.test_collection import collection

PODS = GroupResource("", "pods")


def test_a_listener_of_a_field_is_notified_of_objects_that_have_it() -> None:
    pods = collection("pods")
    view = View(lambda _resource: pods)
    told: list[tuple[str, str]] = []
    calls = 0

    def node(obj: dict[str, Any] | None) -> str:
        return "" if obj is None else obj["spec"]["nodeName"]

    def note(changes: Any) -> None:
        nonlocal calls
        calls += 1
        told.extend((node(each.object), node(each.previous)) for each in changes)

    def put(name: str, revision: int, **spec: Any) -> None:
        obj = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "a", "uid": "u"},
            "spec": spec,
        }
        record = pods.codec.read(f"a/{name}", orjson.dumps(obj), revision)
        pods.apply([(revision, f"a/{name}", record)])

    put("there", 1, nodeName="n1")
    put("waits", 2)
    view.subscribe(PODS, note, field="spec.nodeName")
    assert (told, calls) == ([("n1", "")], 1)
    put("new", 3)
    assert calls == 1
    put("new", 4, nodeName="n2")
    put("there", 5, nodeName="n3")
    pods.apply([(6, "a/waits", None)])
    pods.apply([(7, "a/new", None)])
    assert told[1:] == [("n2", ""), ("n3", "n1"), ("", "n2")]

    everything: list[Change] = []
    view.subscribe(PODS, everything.extend)
    assert [each.previous for each in everything] == [None]


def test_what_was_before_is_parsed_only_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most changes are of pods, and what concerns them is known from how they are."""
    pods = collection("pods")
    view = View(lambda _resource: pods)
    parsed: list[int] = []
    parse = Record.parse

    def noting(record: Record) -> dict[str, Any]:
        parsed.append(record.revision)
        return parse(record)

    monkeypatch.setattr(Record, "parse", noting)
    told: list[Change] = []
    view.subscribe(PODS, told.extend)
    for revision in (1, 2):
        body = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"u"}}'
        pods.apply([(revision, "a/x", pods.codec.read("a/x", body, revision))])
    assert parsed == [1, 2]
    assert told[1].previous is told[1].previous
    now, before = told[1]
    assert parsed == [1, 2, 1]
    assert now is not None
    assert before is not None
    assert (now["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]) == ("2", "1")


def test_many_changes_are_delivered_in_several_calls() -> None:
    """They are parsed, so that all at once take several times the memory of the store."""
    pods = collection("pods")
    view = View(lambda _resource: pods)
    sizes: list[int] = []

    def records(revision: int) -> list[tuple[int, str, Record | None]]:
        body = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"u"}}'
        keys = [f"a/p{number:04}" for number in range(2 * CHANGES_PER_CALL + 1)]
        return [(revision, key, pods.codec.read(key, body, revision)) for key in keys]

    pods.apply(records(1))
    view.subscribe(PODS, lambda changes: sizes.append(len(changes)))
    assert sizes == [CHANGES_PER_CALL, CHANGES_PER_CALL, 1]
    pods.apply(records(2))
    assert sizes[3:] == [CHANGES_PER_CALL, CHANGES_PER_CALL, 1]
