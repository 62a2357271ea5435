"""Metadata: what the server sets and keeps, and what it refuses."""

from typing import Any

import pytest

from kvstack.apimachinery.objects import metadata
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from kvstack.apimachinery.objects.status import ApiError

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}


def errors(meta: dict[str, Any], *, is_namespaced: bool = True) -> list[str]:
    found = metadata.validate(meta, name_is_dns_subdomain, is_namespaced=is_namespaced)
    return [str(each) for each in found]


def changes(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    base = {"name": "a", "resourceVersion": "1"}
    return [str(each) for each in metadata.validate_update(base | new, base | old)]


def test_a_new_object_loses_what_only_the_server_sets() -> None:
    meta = {"name": "a", "uid": "u", "creationTimestamp": "x", "deletionTimestamp": "y",
            "deletionGracePeriodSeconds": 3, "selfLink": "/z", "generation": 5}  # fmt: skip
    metadata.wipe_system_fields(meta)
    assert meta == {"name": "a", "generation": 5}
    metadata.fill_system_fields(meta, "1234", "2024-01-01T00:00:00Z")
    assert meta["uid"] == "1234"
    assert meta["creationTimestamp"] == "2024-01-01T00:00:00Z"


def test_namespaces() -> None:
    meta: dict[str, Any] = {}
    metadata.match_namespace(meta, "n")
    assert meta == {"namespace": "n"}
    metadata.match_namespace(meta, "")
    assert meta == {}
    with pytest.raises(ApiError, match="does not match the namespace sent on the request"):
        metadata.match_namespace({"namespace": "m"}, "n")


def test_the_name_must_be_that_of_the_url() -> None:
    metadata.check_url_name({"name": "a"}, "a")
    with pytest.raises(ApiError) as caught:
        metadata.check_url_name({"name": "a"}, "b")
    assert caught.value.code == 400
    assert str(caught.value) == (
        "the name of the object (a) does not match the name on the URL (b)"
    )
    with pytest.raises(ApiError, match=r"\(b based on URL\) was undeterminable"):
        metadata.check_url_name({}, "b")


def test_generated_names_are_cut() -> None:
    assert metadata.generated_name("web-", "x2z4b") == "web-x2z4b"
    assert len(metadata.generated_name("w" * 100, "x2z4b")) == 63
    assert metadata.generated_name("é" * 40, "x2z4b").endswith("x2z4b")


def test_an_update_cannot_change_what_the_server_set() -> None:
    old = {"uid": "u", "creationTimestamp": "t", "generation": 4, "deletionTimestamp": "d",
           "deletionGracePeriodSeconds": 30}  # fmt: skip
    meta: dict[str, Any] = {"creationTimestamp": "other", "generation": 9}
    metadata.keep_system_fields(meta, old)
    assert meta == old
    meta = {"generation": 9, "uid": "mine", "deletionGracePeriodSeconds": 0}
    metadata.keep_system_fields(meta, {"uid": "u"})
    assert meta == {"uid": "mine", "deletionGracePeriodSeconds": 0}


def test_owners_that_stand_twice_are_dropped() -> None:
    other = {**OWNER, "uid": "v"}
    meta = {"ownerReferences": [OWNER, other, dict(OWNER), {**OWNER, "controller": True}]}
    (warning,) = metadata.drop_duplicate_owners(meta)
    assert warning.startswith(".metadata.ownerReferences contains duplicate entries; API server")
    assert warning.endswith("duplicate UID(s) observed: u")
    assert meta["ownerReferences"] == [OWNER, other, {**OWNER, "controller": True}]
    assert metadata.drop_duplicate_owners(meta) == []
    meta = {"ownerReferences": [OWNER, OWNER]}
    (warning,) = metadata.drop_duplicate_owners(meta, is_after_admission=True)
    assert "contains duplicate entries after mutating admission happens;" in warning


def test_a_name_is_needed() -> None:
    assert errors({"namespace": "n"}) == [
        "metadata.name: Required value: name or generateName is required"
    ]
    found = errors({"namespace": "n", "name": "a", "generateName": "A"})
    assert found[0].startswith('metadata.generateName: Invalid value: "A": a lowercase RFC 1123')


def test_namespaces_by_scope() -> None:
    assert errors({"name": "a"}) == ["metadata.namespace: Required value"]
    assert errors({"name": "a", "namespace": "n"}, is_namespaced=False) == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


def test_annotations_have_a_size_in_all() -> None:
    meta = {"name": "a", "namespace": "n", "annotations": {"Any/Case": "x" * 262_136}}
    assert errors(meta) == []
    meta["annotations"] = {"Any/Case": "x" * 262_137}
    assert errors(meta) == ["metadata.annotations: Too long: may not be more than 262144 bytes"]


def test_one_controller() -> None:
    owners = [{**OWNER, "controller": True}, {**OWNER, "name": "q", "controller": True}]
    (found,) = errors({"name": "a", "namespace": "n", "ownerReferences": owners})
    assert found.startswith('metadata.ownerReferences: Invalid value: [{"apiVersion":"v1",')
    assert found.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for Pod/p'
        " and Pod/q"
    )


def test_many_controllers_do_not_make_a_large_answer() -> None:
    owners = [{**OWNER, "controller": True}] * 1000
    assert len(metadata.validate_owner_references("o", owners)) == 16


def test_finalizers() -> None:
    (found,) = errors(
        {"name": "a", "namespace": "n", "finalizers": ["orphan", "foregroundDeletion"]}
    )
    assert found == (
        'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and'
        " foregroundDeletion cannot be both set"
    )
    (error,) = metadata.validate_finalizer_names("f", ["kubernetes", "a/b", "x"])
    assert str(error) == (
        'f[2]: Invalid value: "x": name is neither a standard finalizer name nor is it fully'
        " qualified"
    )


def test_no_finalizer_may_be_added_to_what_is_being_deleted() -> None:
    deleting = {"deletionTimestamp": "2024-01-01T00:00:00Z"}
    found = changes({**deleting, "finalizers": ["b/y", "a/x"]}, {**deleting, "finalizers": ["b/y"]})
    assert found == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being"
        ' deleted, found new finalizers []string{"a/x"}'
    ]
    assert changes({"finalizers": ["a/x"]}, {}) == []


@pytest.mark.parametrize(
    ("new", "old", "text"),
    [
        ({"name": "b"}, {}, 'metadata.name: Invalid value: "b": field is immutable'),
        ({"uid": ""}, {"uid": "u"}, 'metadata.uid: Invalid value: "": field is immutable'),
        (
            {},
            {"deletionTimestamp": "2024-01-01T00:00:00Z"},
            "metadata.deletionTimestamp: Invalid value: null: field is immutable",
        ),
        (
            {"deletionTimestamp": "2024-01-01T00:00:00Z"},
            {},
            'metadata.deletionTimestamp: Invalid value: "2024-01-01T00:00:00Z": field is immutable',
        ),
        ({"resourceVersion": ""}, {}, 'resourceVersion: Invalid value: "": must be specified'),
        ({"generation": 1}, {"generation": 2}, "Invalid value: 1: must not be decremented"),
    ],
)
def test_changes_that_are_refused(new: dict[str, Any], old: dict[str, Any], text: str) -> None:
    (found,) = changes(new, old)
    assert text in found


def test_managers_are_printable() -> None:
    found = metadata.validate_field_manager("m", "é\n\ta")
    assert [str(each) for each in found] == [
        'm: Invalid value: "é\\n\\ta": invalid character U+000A (at position 2)',
        'm: Invalid value: "é\\n\\ta": invalid character U+0009 (at position 3)',
    ]
