"""Namespaces: their label, their finalizers, their phase."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.core.namespaces import NAMESPACES
from tests.apiserver.kinds.hooks import (
    NOW,
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
)

STATUS = NAMESPACES.subresources["status"]
FINALIZE = NAMESPACES.subresources["finalize"]
NAMESPACE: dict[str, Any] = {
    "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
    "spec": {"finalizers": ["kubernetes"]},
    "status": {"phase": "Active"},
}


def test_new_namespace() -> None:
    """It has its label and finalizer, and is active."""
    given = {"metadata": {"name": "n"}, "status": {"phase": "Terminating", "x": "y"}}
    assert prepared_object(NAMESPACES, given) == NAMESPACE
    more = {"metadata": {"name": "n"}, "spec": {"finalizers": ["example.com/f"]}}
    assert prepared_object(NAMESPACES, more)["spec"]["finalizers"] == [
        "example.com/f",
        "kubernetes",
    ]


def test_label_is_put_right() -> None:
    """It cannot be taken away nor be another name."""
    new = patched(NAMESPACE, {"metadata": {"labels": {"kubernetes.io/metadata.name": "x"}}})
    found = changed(NAMESPACES, new, NAMESPACE)
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    new = patched(NAMESPACE, {"metadata": {"labels": None}})
    found = changed(NAMESPACES, new, NAMESPACE)
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}


def test_each_endpoint_changes_its_part() -> None:
    """Finalizers are those of /finalize, the status that of /status."""
    new = patched(
        NAMESPACE, {"spec": {"finalizers": ["a.io/b"]}, "status": {"phase": "Terminating"}}
    )
    assert changed(NAMESPACES, new, NAMESPACE) == NAMESPACE
    assert changed(STATUS, new, NAMESPACE)["spec"] == NAMESPACE["spec"]
    assert changed(STATUS, new, NAMESPACE)["status"] == new["status"]
    assert changed(FINALIZE, new, NAMESPACE)["spec"] == new["spec"]
    assert changed(FINALIZE, new, NAMESPACE)["status"] == NAMESPACE["status"]


def test_update_of_a_namespace_without_finalizers() -> None:
    """It gets none back."""
    old = patched(NAMESPACE, {"spec": {"finalizers": None}})
    assert changed(NAMESPACES, NAMESPACE, old)["spec"] == {}


@pytest.mark.parametrize(
    ("finalizer", "expected"),
    [
        ("kubernetes", []),
        ("example.com/f", []),
        (
            "other",
            [
                'Invalid value: "other":'
                " name is neither a standard finalizer name nor is it fully qualified"
            ],
        ),
    ],
)
def test_finalizers(finalizer: str, expected: list[str]) -> None:
    """Those of /finalize are told with their index."""
    given = patched(NAMESPACE, {"spec": {"finalizers": ["kubernetes", finalizer]}})
    assert refusals(NAMESPACES, given) == [f"spec.finalizers: {each}" for each in expected]
    found = change_refusals(FINALIZE, given, NAMESPACE)
    assert found == [f"spec.finalizers[1]: {each}" for each in expected]


@pytest.mark.parametrize(
    ("deleted", "phase", "expected"),
    [
        (None, "Active", []),
        (NOW, "Terminating", []),
        (
            None,
            "Terminating",
            [
                'status.Phase: Invalid value: "Terminating":'
                " may only be 'Active' if `deletionTimestamp` is empty"
            ],
        ),
        (
            NOW,
            "Active",
            [
                'status.Phase: Invalid value: "Active":'
                " may only be 'Terminating' if `deletionTimestamp` is not empty"
            ],
        ),
    ],
)
def test_phase(deleted: str | None, phase: str, expected: list[str]) -> None:
    """It says whether the namespace is being deleted."""
    new = patched(
        NAMESPACE, {"metadata": {"deletionTimestamp": deleted}, "status": {"phase": phase}}
    )
    assert change_refusals(STATUS, new, NAMESPACE) == expected


def test_selectable() -> None:
    """By phase."""
    assert NAMESPACES.selectable is not None
    assert NAMESPACES.selectable(NAMESPACE) == {"status.phase": "Active"}
