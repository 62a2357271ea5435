"""A time that a request sends back is the one that was told of that object, at that place."""

from typing import Any

from tests.apiserver.player.object_times import ObjectTimes

RECORDED = "2026-11-22T14:02:18Z"
EARLIER, LATER = "2026-11-23T01:00:00Z", "2026-11-23T01:00:01Z"


def named(name: str, **times: str) -> dict[str, Any]:
    return {"metadata": {"name": name, **times}}


def filled(body: Any, *seen: tuple[Any, Any], chosen: str = "") -> Any:
    times = ObjectTimes()
    for recorded, got in seen:
        times.look(recorded, got)
    return times.fill(body, lambda time: time == chosen)


def deleted(name: str, time: str) -> dict[str, Any]:
    return named(name, deletionTimestamp=time)


def test_the_same_object_is_asked_first() -> None:
    seen = [
        (deleted("a", RECORDED), deleted("a", EARLIER)),
        (deleted("b", RECORDED), deleted("b", LATER)),
    ]
    assert filled(deleted("a", RECORDED), *seen) == deleted("a", EARLIER)
    assert filled(deleted("b", RECORDED), *seen) == deleted("b", LATER)


def test_of_one_object_the_latest_answer_counts() -> None:
    seen = [
        (deleted("a", RECORDED), deleted("a", EARLIER)),  # a dry run
        (deleted("a", RECORDED), deleted("a", LATER)),
    ]
    assert filled(deleted("a", RECORDED), *seen) == deleted("a", LATER)


def test_times_of_one_object_are_distinguished_by_their_path() -> None:
    recorded = named("a", creationTimestamp=RECORDED, deletionTimestamp=RECORDED)
    got = named("a", creationTimestamp=EARLIER, deletionTimestamp=LATER)
    assert filled(recorded, (recorded, got)) == got
    unnamed = {"metadata": {"deletionTimestamp": RECORDED}}
    assert filled(unnamed, (recorded, got)) == {"metadata": {"deletionTimestamp": LATER}}


def test_items_of_lists_and_objects_of_events_are_objects() -> None:
    recorded = {"items": [deleted("a", RECORDED), deleted("b", RECORDED)]}
    got = {"items": [deleted("a", EARLIER), deleted("b", LATER)]}
    assert filled(deleted("a", RECORDED), (recorded, got)) == deleted("a", EARLIER)
    event = {"type": "ADDED", "object": deleted("c", RECORDED)}
    own = {"type": "ADDED", "object": deleted("c", LATER)}
    assert filled(deleted("c", RECORDED), ([event], [own])) == deleted("c", LATER)


def test_entries_of_managed_fields_are_distinguished_by_their_manager() -> None:
    def managed(*entries: tuple[str, str]) -> dict[str, Any]:
        fields = [{"manager": manager, "time": time} for manager, time in entries]
        return {"metadata": {"name": "a", "managedFields": fields}}

    recorded = managed(("x", RECORDED), ("y", RECORDED))
    got = managed(("y", EARLIER), ("x", LATER))
    assert filled(recorded, (recorded, got)) == managed(("x", LATER), ("y", EARLIER))


def test_what_no_answer_had_or_a_request_chose_stays() -> None:
    seen = (deleted("a", RECORDED), deleted("a", LATER))
    assert filled(deleted("a", EARLIER), seen) == deleted("a", EARLIER)
    assert filled(deleted("a", RECORDED), seen, chosen=RECORDED) == deleted("a", RECORDED)
    assert filled(deleted("a", RECORDED), (deleted("a", RECORDED), None)) == deleted("a", RECORDED)
