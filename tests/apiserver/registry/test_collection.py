"""Collections, their windows, the keys, records and values of the store."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.registry.codec import Codec
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import KeyPlaces
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.sorted_keys import SortedKeys
from kvstack.apiserver.registry.window import Change, ForgottenError, Window
from kvstack.apiserver.schema.load import load
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
    """By what only they hold."""
    window = Window(0, bytes_max=100)
    large = Record("k", 1, HEAD, b"x" * 60, -1)
    window.add([Change(1, "k", None, large)])
    assert window.since == 0
    window.add([Change(2, "k", None, large)])
    assert window.since == 1


def test_keys_of_resources() -> None:
    """Prefixes of one and two segments; what is of no resource."""
    places = KeyPlaces("/registry/", ["pods", "services/specs", "services/endpoints"])
    for key, expected in (
        (b"/registry/pods/a/web", ("pods", "a/web")),
        (b"/registry/services/specs/a/web", ("services/specs", "a/web")),
        (b"/registry/services/other/a", None),
        (b"/registry/ranges/serviceips", None),
        (b"/registry/pods/", None),
        (b"/registry/pods/a/\xff", ("pods", "a/\ufffd")),
    ):
        assert places.split(key) == expected
    assert places.key("pods", "a/web") == b"/registry/pods/a/web"
    places.remove("pods")
    assert places.split(b"/registry/pods/a/web") is None


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
