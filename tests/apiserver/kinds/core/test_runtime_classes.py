"""What RuntimeClasses may be."""

from typing import Any

from kvstack.apiserver.kinds.core.runtime_classes import RUNTIME_CLASSES
from tests.apiserver.kinds.hooks import (
    change_refusals,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)


def runtime_class(handler: str = "runsc", **members: Any) -> dict[str, Any]:
    """Return a RuntimeClass."""
    return {"metadata": {"name": "r"}, "handler": handler, **members}


def test_handler_is_a_label_that_stays() -> None:
    """It is told last."""
    assert refusals(RUNTIME_CLASSES, runtime_class("")) == ["handler: Required value"]
    (found,) = refusals(RUNTIME_CLASSES, runtime_class("A"))
    assert found.startswith('handler: Invalid value: "A": a lowercase RFC 1123 label must')
    assert change_refusals(RUNTIME_CLASSES, runtime_class("kata"), runtime_class()) == [
        "handler: Invalid value: null: field is immutable"
    ]


def test_overhead_has_amounts() -> None:
    """Rounded up to thousandths, not negative."""
    given = runtime_class(overhead={"podFixed": {"cpu": "1u"}})
    assert prepared_object(RUNTIME_CLASSES, given)["overhead"]["podFixed"] == {"cpu": "1m"}
    (found,) = refusals(RUNTIME_CLASSES, runtime_class(overhead={"podFixed": {"cpu": "-1"}}))
    assert found == (
        'overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'
    )


def test_scheduling() -> None:
    """Labels of nodes, and tolerations that are each there once."""
    toleration = {"key": "a", "operator": "Exists"}
    scheduling = {"nodeSelector": {"/a": "b"}, "tolerations": [toleration, toleration]}
    assert refusals(RUNTIME_CLASSES, runtime_class(scheduling=scheduling)) == [
        'scheduling.nodeSelector: Invalid value: "/a": prefix part must be non-empty',
        'scheduling.tolerations[1]: Duplicate value: {"Key":"a","Operator":"Exists","Value":"",'
        '"Effect":"","TolerationSeconds":null}',
    ]


def test_warning_of_deprecated_labels() -> None:
    """On creation and on change."""
    given = runtime_class(scheduling={"nodeSelector": {"beta.kubernetes.io/os": "linux"}})
    expected = ['scheduling.nodeSelector: deprecated since v1.14; use "kubernetes.io/os" instead']
    assert warnings_of(RUNTIME_CLASSES, given) == expected
    assert warnings_of_change(RUNTIME_CLASSES, given, given) == expected
