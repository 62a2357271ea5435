"""Collections, their windows, the keys, records and values of the store."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.registry.codec import SHARED_LABELS_MAX, Codec
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import KeyPrefixes
from kvstack.apiserver.registry.record import RECORD_BYTES, Record
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.sorted_keys import SortedKeys
from kvstack.apiserver.registry.window import (
    BYTES_MAX,
    BYTES_MIN,
    CHANGE_BYTES,
    SMALL_BYTES,
    Change,
    ForgottenError,
    Window,
)
from tests.apiserver.support.memory_store import MemoryStore
from tests.apiserver.support.registries import Lines
from tests.apiserver.support.virtual_time import LoopClock

HEAD = b'{"kind":"ConfigMap","apiVersion":"v1",'


def collection(name: str = "configmaps") -> Collection:
    """Return a collection without objects."""
    table = load()
    rows = [each for each in table if each.name == name and "beta" not in each.version]
    registry = Registry(MemoryStore(), table, rows, LoopClock(), Lines())
    return registry.collection(GroupResource(rows[0].group, name))


def record(codec: Codec, key: str, revision: int) -> Record:
    """Return a ConfigMap as it is read from the store."""
    namespace, _, name = key.partition("/")
    obj = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "uid": "u"},
    }
    return codec.read(key, orjson.dumps(obj), revision, 0)


CHANGES = st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=40)


@given(CHANGES, st.integers(0, 45), st.sampled_from(("", "a/c")), st.sampled_from((None, "a/e")))
def test_states_of_the_past(
    changes: list[tuple[str, bool]], back: int, start: str, end: str | None
) -> None:
    """Every state that the window reaches is as it was."""
    found = collection()
    states: list[dict[str, int]] = [{}]
    for revision, (letter, is_put) in enumerate(changes, start=1):
        key = f"a/{letter}"
        state = dict(states[-1])
        if is_put:
            state[key] = revision
        else:
            state.pop(key, None)
        states.append(state)
        one = record(found.codec, key, revision) if is_put else None
        found.apply([(revision, key, one)])
    at = max(len(changes) - back, 0)
    wanted = {
        key: revision
        for key, revision in states[at].items()
        if key >= start and (end is None or key < end)
    }
    extent = found.between_at(at, start, end)
    records = list(extent.records)
    assert {each.key: each.revision for each in records} == wanted
    assert [each.key for each in records] == sorted(wanted)
    assert extent.size == len(wanted)


@given(st.lists(st.tuples(st.text("ab/\0z", max_size=4), st.booleans()), max_size=200))
def test_sorted_keys(steps: list[tuple[str, bool]]) -> None:
    """The keys stay in order, however they come and go."""
    keys, model = SortedKeys(), set[str]()
    for key, adds in steps:
        if adds and key not in model:
            keys.add(key)
            model.add(key)
        elif not adds and key in model:
            keys.remove(key)
            model.remove(key)
    for start, end in (("", None), ("a", "b"), ("a/", None)):
        wanted = sorted(each for each in model if each >= start and (end is None or each < end))
        assert list(keys.between(start, end)) == wanted
        assert keys.count(start, end) == len(wanted)


def test_keys_and_labels_of_one_object_are_held_once() -> None:
    found = collection()
    key = "a/web"
    for revision in (1, 2):
        labels = {"app": "web"}
        body = b'"metadata":{}}'
        again = "".join(list(key))
        found.apply([(revision, again, Record(again, revision, HEAD, body, -1, labels))])
    first, second = found.window.after(0)
    assert first.record is not None
    assert second.record is not None
    assert second.record.labels is first.record.labels
    assert second.record.key is second.key is first.record.key


def test_labels_of_several_objects_are_held_once() -> None:
    codec = collection().codec
    records = []
    for name, version in (("x", "1"), ("y", "1"), ("z", "2")):
        metadata = {"name": name, "uid": name, "labels": {"app": "web", "version": version}}
        value = orjson.dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
        records.append(codec.read(f"a/{name}", value, 1))
    x, y, z = records
    assert x.labels is y.labels
    assert x.labels == {"app": "web", "version": "1"}
    assert z.labels == {"app": "web", "version": "2"}


def test_many_labels_are_not_kept_for_others() -> None:
    codec = collection().codec
    for count, are_shared in ((SHARED_LABELS_MAX, True), (SHARED_LABELS_MAX + 1, False)):
        metadata = {"name": "x", "uid": "x", "labels": {f"l{at}": "v" for at in range(count)}}
        value = orjson.dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
        first, second = codec.read("a/x", value, 1), codec.read("a/x", value, 2)
        assert first.labels == second.labels == metadata["labels"]
        assert (first.labels is second.labels) is are_shared


def test_windows_forget_the_oldest() -> None:
    """Changes of one revision together."""
    window = Window(0, changes_max=3)
    blank = Record("k", 1, HEAD, b"}", -1)
    for revision in (1, 2, 2, 3):
        window.add([Change(revision, f"k{revision}", blank, None)])
    assert window.since == 1
    assert [each.revision for each in window.after(1)] == [2, 2, 3]
    with pytest.raises(ForgottenError):
        window.after(0)
    window.add([Change(4, "k", blank, None)])
    assert (window.since, len(window)) == (2, 2)


def test_windows_are_bounded_in_bytes() -> None:
    """By what only they hold, the objects around the bodies included."""
    window = Window(0, bytes_max=2 * (CHANGE_BYTES + RECORD_BYTES) + 100)
    large = Record("k", 1, HEAD, b"x" * 60, -1)
    window.add([Change(1, "k", None, large)])
    assert window.since == 0
    window.add([Change(2, "k", None, large)])
    assert window.since == 1


def test_windows_forget_what_is_old_but_for_a_little() -> None:
    """Changes of one revision together; whoever asks for what is gone is told so."""
    window, size = Window(0), CHANGE_BYTES + RECORD_BYTES + 1
    for revision in range(1, 1001):
        old = Record("k", revision, HEAD, b"}", -1)
        window.add([Change(revision, "k", None, old), Change(revision, "l", None, old)])
    window.forget(500)
    assert (window.since, len(window)) == (500, 1000)
    window.forget(1000)
    assert 0 < len(window) * size <= SMALL_BYTES < (len(window) + 2) * size
    assert len(window.after(window.since)) == len(window)
    with pytest.raises(ForgottenError):
        window.after(500)
    few = Window(0)
    few.add([Change(1, "k", Record("k", 1, HEAD, b"}", -1), None)])
    few.forget(1)
    assert (few.since, len(few)) == (0, 1)


def test_windows_keep_no_other_forms_of_what_was_replaced() -> None:
    """They are not counted: four forms of each object would be as large as four windows."""
    window = Window(0)
    old, new = Record("k", 1, HEAD, b"}", -1), Record("k", 2, HEAD, b"}", -1)
    old.encodings, new.encodings = {"protobuf": b"1"}, {"protobuf": b"2"}
    window.add([Change(2, "k", new, old)])
    kept: list[object] = [old.encodings, new.encodings]
    assert kept == [None, {"protobuf": b"2"}]


def test_many_small_changes_are_bounded_too() -> None:
    """A body of one byte costs as much as its record does."""
    window = Window(0, changes_max=10**9, bytes_max=1 << 20)
    for revision in range(1, 5001):
        window.add([Change(revision, "k", None, Record("k", revision, HEAD, b"}", -1))])
    assert len(window) == (1 << 20) // (CHANGE_BYTES + RECORD_BYTES + 1)


def test_a_window_holds_as_much_as_the_objects_but_not_much_less() -> None:
    """Objects that change again and again leave no more behind than they take themselves."""
    window, large = Window(0), b"x" * 100_000
    window.fit(0)
    for revision in range(1, 401):
        window.add([Change(revision, "k", None, Record("k", revision, HEAD, large, -1))])
    few = len(window)
    assert few == BYTES_MIN // (CHANGE_BYTES + RECORD_BYTES + len(large))
    window.fit(2 * BYTES_MIN)
    for revision in range(401, 801):
        window.add([Change(revision, "k", None, Record("k", revision, HEAD, large, -1))])
    assert len(window) in {2 * few, 2 * few + 1}
    window.fit(1 << 40)
    for revision in range(801, 1201):
        window.add([Change(revision, "k", None, Record("k", revision, HEAD, large, -1))])
    assert len(window) == BYTES_MAX // (CHANGE_BYTES + RECORD_BYTES + len(large))


def test_the_window_of_a_collection_grows_and_shrinks_with_it() -> None:
    found, body = collection(), b"x" * 100_000
    for revision in range(1, 301):
        key = f"a/{revision}"
        found.apply([(revision, key, Record(key, revision, HEAD, body, -1))])
    assert found._held_bytes == 300 * (RECORD_BYTES + len(body))
    assert found.window._bytes_max == BYTES_MAX
    for revision in range(1, 301):
        found.apply([(300 + revision, f"a/{revision}", None)])
    assert found._held_bytes == 0
    assert found.window._bytes_max == BYTES_MIN
    found.fill([Record("a/b", 700, HEAD, body, -1)], 700)
    assert found._held_bytes == RECORD_BYTES + len(body)


def test_keys_of_resources() -> None:
    """Prefixes of one and two segments; what is of no resource."""
    prefixes = KeyPrefixes("/registry/", ["pods", "services/specs", "services/endpoints"])
    for key, expected in (
        (b"/registry/pods/a/web", ("pods", "a/web")),
        (b"/registry/services/specs/a/web", ("services/specs", "a/web")),
        (b"/registry/services/other/a", None),
        (b"/registry/ranges/serviceips", None),
        (b"/registry/pods/", None),
        (b"/registry/pods/a/\xff", ("pods", "a/\ufffd")),
    ):
        assert prefixes.split(key) == expected
    assert prefixes.key("pods", "a/web") == b"/registry/pods/a/web"
    prefixes.remove("pods")
    assert prefixes.split(b"/registry/pods/a/web") is None


def test_stored_bytes_have_no_version_and_answers_do() -> None:
    """It is put in behind the uid."""
    codec = collection().codec
    obj = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "x", "namespace": "a", "resourceVersion": "7", "uid": "u"},
        "data": {"uid": '"uid":"'},
    }
    body = codec.to_body(obj)
    stored = orjson.loads(codec.value(body))
    assert "resourceVersion" not in stored["metadata"]
    read = codec.read("a/x", codec.value(body), 12, 0)
    assert orjson.loads(read.json)["metadata"]["resourceVersion"] == "12"
    later = read.at_revision(13)
    assert later.parse() == {**read.parse(), "metadata": later.parse()["metadata"]}
    assert later.parse()["metadata"]["resourceVersion"] == "13"


def test_values_of_a_kube_apiserver_are_completed() -> None:
    """JSON that ends in a newline was written by Go: it is decoded, and gets its defaults."""
    codec = collection("pods").codec
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "creationTimestamp": None},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    read = codec.read("a/p", orjson.dumps(pod) + b"\n", 5, 0)
    assert not read.error
    assert read.parse()["spec"]["restartPolicy"] == "Always"
    assert read.fields[codec.field_names.index("spec.restartPolicy")] == "Always"


@pytest.mark.parametrize(
    "value", [b"", b"null", b"[]", b"{", b"k8s\0\xff\xff", b"k8s:enc:aescbc:v1:k:x", b'{"kind":1}']
)
def test_values_that_cannot_be_read(value: bytes) -> None:
    """They are there, with why."""
    read = collection().codec.read("a/x", value, 5, 0)
    assert read.error
    assert read.body == b""
