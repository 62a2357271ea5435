"""What APIServices may be."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.api_services import API_SERVICES
from tests.apiserver.kinds.hooks import (
    NOW,
    cells_of,
    change_refusals,
    changed,
    prepared_object,
    refusals,
)


def api_service(**spec: Any) -> Object:
    """Return an APIService that this server answers itself."""
    given = {"group": "g.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    return {"metadata": {"name": "v1.g.io"}, "spec": given | spec}


SERVICE = {"namespace": "ns", "name": "s"}


def test_local_ones_are_available() -> None:
    """At once; others when they were asked."""
    (condition,) = prepared_object(API_SERVICES, api_service())["status"]["conditions"]
    assert condition["lastTransitionTime"] == NOW
    assert (condition["status"], condition["reason"]) == ("True", "Local")
    remote = prepared_object(API_SERVICES, api_service(service=SERVICE))
    assert remote["status"] == {}
    assert remote["spec"]["service"]["port"] == 443


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"service": SERVICE, "caBundle": "YQ=="}, []),
        ({"version": "v2"},
         ['metadata.name: Invalid value: "v1.g.io": must be `spec.version+"."+spec.group`:'
          ' "v2.g.io"']),
        ({"groupPriorityMinimum": 20001, "versionPriority": 0}, [
            "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
        ]),
        ({"caBundle": "YWI=", "insecureSkipTLSVerify": True}, [
            'spec.caBundle: Invalid value: "2 bytes": local APIServices may not have a caBundle',
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have"
            " insecureSkipTLSVerify",
        ]),
        ({"service": {"port": 70000}, "caBundle": "YQ==", "insecureSkipTLSVerify": True}, [
            "spec.service.namespace: Required value",
            "spec.service.name: Required value",
            "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and"
            " 65535, inclusive",
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is"
            " present",
        ]),
    ],
)  # fmt: skip
def test_rules(spec: dict[str, Any], expected: list[str]) -> None:
    """Names follow version and group."""
    assert refusals(API_SERVICES, api_service(**spec)) == expected


def test_old_group() -> None:
    """Only v1 may have none."""
    obj = {**api_service(group=""), "metadata": {"name": "v1."}}
    assert refusals(API_SERVICES, obj) == []
    obj = {**api_service(group="", version="v2"), "metadata": {"name": "v2."}}
    assert refusals(API_SERVICES, obj) == [
        "spec.group: Required value: only v1 may have an empty group and it better be legacy kube"
    ]


def test_status() -> None:
    """It changes nothing else."""
    old = prepared_object(API_SERVICES, api_service())
    new = {**api_service(versionPriority=5), "status": {"conditions": [{"status": "x"}]}}
    new["metadata"]["labels"] = {"a": "b"}
    status = API_SERVICES.subresources["status"]
    found = changed(status, new, old)
    assert (found["spec"], found["metadata"]) == (old["spec"], {"name": "v1.g.io"})
    assert change_refusals(status, new, old) == [
        'status.conditions[0].status: Unsupported value: "x": supported values: "True", "False",'
        ' "Unknown"'
    ]
    assert changed(API_SERVICES, new, old)["status"] == old["status"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"type": "Available", "status": "True", "reason": "Passed"}, "True"),
        ({"type": "Available", "status": "False", "reason": "Bad"}, "False (Bad)"),
        ({"type": "Available", "status": "False"}, "False"),
        ({"type": "Other", "status": "True"}, "Unknown"),
    ],
)
def test_cells(condition: dict[str, str], expected: str) -> None:
    """Where it is answered, and whether it is."""
    obj = {**api_service(service=SERVICE), "status": {"conditions": [condition]}}
    assert cells_of(API_SERVICES, obj) == ["v1.g.io", "ns/s", expected, "3m"]
