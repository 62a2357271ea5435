"""What claims to devices, templates and classes of them may be."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from typing_extensions import override

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.access import AccessRequest, FullAccess
from kvstack.apiserver.kinds.devices.claims import CLAIMS
from kvstack.apiserver.kinds.devices.classes import CLASSES
from kvstack.apiserver.kinds.devices.templates import CLAIM_TEMPLATES
from tests.apiserver.kinds.hooks import (
    cells_of,
    change_refusals,
    changed,
    prepared_object,
    refusals,
)

STATUS = CLAIMS.subresources["status"]
RESULT = {"request": "r", "driver": "d.io", "pool": "p", "device": "x"}
DEVICE = {"driver": "d.io", "pool": "p", "device": "x"}


def claim(exactly: Object | None = None, **devices: Any) -> Object:
    """Return a claim with one request."""
    request = {"name": "r", "exactly": {"deviceClassName": "c", **(exactly or {})}}
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request], **devices}}}


def allocated(*results: Object, **status: Any) -> Object:
    """Return a claim that got devices."""
    allocation = {"devices": {"results": deepcopy(list(results or (RESULT,)))}}
    return {**claim(), "status": {"allocation": allocation, **deepcopy(status)}}


def test_defaults() -> None:
    """One device, by count; tolerations compare values."""
    found = prepared_object(
        CLAIMS, claim({"tolerations": [{"key": "a"}], "derivedAttributes": [{}]})
    )
    assert found["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "c",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "a", "operator": "Equal"}],
    }


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (claim(), []),
        (claim({"deviceClassName": ""}),
         ["spec.devices.requests[0].exactly.deviceClassName: Required value"]),
        (claim({"allocationMode": "All", "count": 1}),
         ["spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified when"
          " allocationMode is 'All'"]),
        (claim({"allocationMode": "x"}),
         ['spec.devices.requests[0].exactly.allocationMode: Unsupported value: "x": supported'
          ' values:'
          ' "All", "ExactCount"']),
        (claim({"count": -1}),
         ["spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero"]),
        (claim({"selectors": [{}] * 33}),
         ["spec.devices.requests[0].exactly.selectors: Too many: 33: must have at most 32 items"]),
        (claim({"selectors": [{}, {"cel": {"expression": "x" * 10241}}]}), [
            "spec.devices.requests[0].exactly.selectors[0].cel: Required value",
            "spec.devices.requests[0].exactly.selectors[1].cel.expression: Too long: may not be"
             " more"
            " than 10240 bytes",
        ]),
        (claim({"tolerations": [{"operator": "Exists", "value": "v", "effect": "x"}]}), [
            "spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: \"v\": must be"
            " empty for operator `Exists`",
            'spec.devices.requests[0].exactly.tolerations[0].effect: Unsupported value: "x":'
            ' supported values: "NoExecute", "NoSchedule", "None"',
        ]),
        (claim(constraints=[{"requests": ["r", "s", "r"], "matchAttribute": "a"}, {}]), [
            "spec.devices.constraints[0].requests[1]: Invalid value: \"s\": must be the name of a"
            " request in the claim or the name of a request and a subrequest separated by '/'",
            'spec.devices.constraints[1]: Required value: exactly one of "matchAttribute" or'
            ' "distinctAttribute" is required, but multiple fields are set',
            'spec.devices.constraints[0].requests[2]: Duplicate value: "r"',
            'spec.devices.constraints[0].matchAttribute: Invalid value: "a": a fully qualified name'
            " must be a domain and a name separated by a slash",
        ]),
        (claim(config=[{"opaque": {"driver": "d.io", "parameters": [1]}}, {}]), [
            'spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a'
            " valid JSON object",
            "spec.devices.config[1].opaque: Required value",
        ]),
    ],
)  # fmt: skip
def test_rules(obj: Object, expected: list[str]) -> None:
    """Of requests, constraints and configuration."""
    assert refusals(CLAIMS, obj) == expected


def test_alternatives() -> None:
    """Either exactly one request, or the first of several."""
    obj = claim()
    request = obj["spec"]["devices"]["requests"][0]
    request["firstAvailable"] = [{"name": "a", "deviceClassName": "c"}] * 2
    assert refusals(CLAIMS, obj) == [
        "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or"
        " `firstAvailable` is required, but multiple fields are set",
        'spec.devices.requests[0].firstAvailable[1]: Duplicate value: {"name":"a",'
        '"deviceClassName":"c","allocationMode":"ExactCount","count":1}',
    ]
    del request["exactly"]
    request["firstAvailable"] = request["firstAvailable"][:1]
    obj["spec"]["devices"]["constraints"] = [{"requests": ["r/a"], "matchAttribute": "d.io/m"}]
    assert refusals(CLAIMS, obj) == []
    del request["firstAvailable"]
    assert refusals(CLAIMS, obj)[0] == (
        "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is"
        " required"
    )


class Cluster(FullAccess):
    """Has a namespace with labels, and allows what a function says."""

    def __init__(
        self, labels: dict[str, str], allows: Callable[[AccessRequest], bool] = lambda _: True
    ) -> None:
        """Take the labels."""
        self.labels = labels
        self.allows = allows

    @override
    def is_allowed(self, request: AccessRequest) -> bool:
        """Return what the function says."""
        return self.allows(request)

    @override
    def find(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the namespace."""
        assert (group, resource, namespace, name) == ("", "namespaces", "", "ns")
        return {"metadata": {"labels": self.labels}}


def test_admin_access() -> None:
    """The namespace must allow it, for claims, templates and results."""
    label = {"resource.kubernetes.io/admin-access": "true"}
    refusal = (
        "adminAccess: Forbidden: admin access to devices requires the"
        " `resource.kubernetes.io/admin-access: true` label on the containing namespace"
    )
    given = claim({"adminAccess": True})
    template = {"metadata": {"name": "t"}, "spec": {"spec": given["spec"]}}
    for strategy, obj in ((CLAIMS, given), (CLAIM_TEMPLATES, template)):
        assert refusals(strategy, obj, access=Cluster(label)) == []
        assert refusals(strategy, obj, access=Cluster({})) == [
            f"spec.devices.requests[0].{refusal}"
        ]
    result = allocated({**RESULT, "adminAccess": True})
    assert change_refusals(STATUS, result, claim(), access=Cluster(label)) == []
    assert change_refusals(STATUS, result, claim(), access=Cluster({})) == [
        f"status.allocation.devices.results[0].{refusal}"
    ]


def test_changes() -> None:
    """What is asked for stays."""
    assert change_refusals(CLAIMS, claim({"count": 2}), claim()) == [
        "spec: Invalid value: null: field is immutable"
    ]
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim()["spec"]}}
    other = {"metadata": {"name": "t"}, "spec": {"spec": claim({"count": 2})["spec"]}}
    (message,) = change_refusals(CLAIM_TEMPLATES, other, template)
    assert message.startswith("spec: Invalid value: {")
    assert message.endswith(": field is immutable")


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (allocated(), claim(), []),
        (allocated({**RESULT, "request": "q"}), claim(),
         ["status.allocation.devices.results[0].request: Invalid value: \"q\": must be the name"
          " of a"
          " request in the claim or the name of a request and a subrequest separated by '/'"]),
        (allocated({**RESULT, "driver": "", "pool": "a//b", "shareID": "x"}), claim(), [
            "status.allocation.devices.results[0].driver: Required value",
            'status.allocation.devices.results[0].pool: Invalid value: "a//b": segment 1: must not'
            " be empty",
            'status.allocation.devices.results[0].shareID: Invalid value: "x": must be a lowercase'
            " UUID in 8-4-4-4-12 format",
        ]),
        (allocated({**RESULT, "device": "y"}), allocated(),
         ["status.allocation: Invalid value: null: field cannot be modified once set"]),
        ({**claim(), "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}},
         claim(),
         ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]),
        (allocated(reservedFor=[{"uid": "u"}]), allocated(), [
            "status.reservedFor[0].resource: Required value",
            "status.reservedFor[0].name: Required value",
        ]),
        (allocated(devices=[{**DEVICE, "device": "y", "data": 1}]), allocated(), [
            'status.devices[0]: Invalid value: {"Driver":"d.io","Pool":"p","Device":"y",'
            '"ShareID":""}: must be an allocated device in the claim',
            'status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object',
        ]),
        (allocated(devices=[{**DEVICE, "networkData": {"interfaceName": "x" * 257, "ips": ["a"]}}]),
         allocated(), [
            'status.devices[0].networkData.ips[0]: Invalid value: "a": must be a valid address in'
            " CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)",
            "status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes",
        ]),
    ],
)  # fmt: skip
def test_statuses(new: Object, old: Object, expected: list[str]) -> None:
    """What was allocated, to whom, and what drivers say of it."""
    assert change_refusals(STATUS, new, old) == expected


def test_claims_that_are_deleted() -> None:
    """They are not reserved any more."""
    new, old = allocated(reservedFor=[{"resource": "pods", "name": "p", "uid": "u"}]), allocated()
    for each in (new, old):
        each["metadata"] = {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert change_refusals(STATUS, new, old) == [
        "status.reservedFor: Forbidden: new entries may not be added while"
        " `deallocationRequested` or `deletionTimestamp` are set"
    ]


def test_devices_that_are_gone() -> None:
    """Nothing is said of them any more."""
    old = allocated(devices=[DEVICE])
    new = {**claim(), "status": {"devices": [DEVICE]}}
    assert changed(STATUS, new, old)["status"] == {}
    kept = allocated(devices=[DEVICE])
    assert changed(STATUS, kept, old)["status"]["devices"] == [DEVICE]


def test_who_allocates() -> None:
    """Who may bind claims."""

    def allows(request: AccessRequest) -> bool:
        return request.subresource != "binding"

    refused = change_refusals(
        STATUS, allocated(), claim(), access=Cluster({}, allows), user="u", verb="patch"
    )
    assert refused == [
        "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires"
        ' resource="resourceclaims/binding", verb="patch" permission:'
        ' resourceclaims.resource.k8s.io is forbidden: User "u" cannot patch resource'
        ' "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope'
    ]
    assert change_refusals(STATUS, allocated(), allocated(), access=Cluster({}, allows)) == []


def test_who_reports() -> None:
    """A driver, on any node or on its own."""
    node = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    new = allocated(devices=[DEVICE])
    new["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [node]}]}
    old = deepcopy(new)
    del old["status"]["devices"]
    asked: list[AccessRequest] = []

    def allows(request: AccessRequest) -> bool:
        asked.append(request)
        return request.verb == "associated-node:update"

    user = {
        "user": "system:serviceaccount:ns:a",
        "extra": {"authentication.kubernetes.io/node-name": ["n1"]},
    }
    assert change_refusals(STATUS, new, old, access=Cluster({}, allows), **user) == []
    assert [(each.subresource, each.namespace, each.name) for each in asked] == [
        ("driver", "ns", "d.io")
    ]
    user["extra"] = {}
    (message,) = change_refusals(STATUS, new, old, access=Cluster({}, allows), **user)
    assert message == (
        "status.devices: Forbidden: changing status.devices requires"
        ' resource="resourceclaims/driver",'
        ' verb="[arbitrary-node:update]" permission: resourceclaims.resource.k8s.io "d.io" is'
        ' forbidden: User "system:serviceaccount:ns:a" cannot arbitrary-node:update resource'
        ' "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "ns"'
    )


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (claim(), "pending"),
        (allocated(), "allocated"),
        (allocated(reservedFor=[{}]), "allocated,reserved"),
    ],
)
def test_cells(obj: Object, expected: str) -> None:
    """How far a claim is."""
    assert cells_of(CLAIMS, obj)[1] == expected
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert cells_of(CLAIMS, obj)[1] == f"deleted,{expected}".removesuffix(",pending")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"extendedResourceName": "e.com/gpu"}, []),
        ({"extendedResourceName": "gpu"},
         ['spec.extendedResourceName: Invalid value: "gpu": a name must be a domain-prefixed path,'
          " such as 'example.com/my-prop'"]),
        ({"selectors": [{}], "config": [{}]}, [
            "spec.selectors[0].cel: Required value",
            "spec.config[0].opaque: Required value",
        ]),
    ],
)  # fmt: skip
def test_classes(spec: dict[str, Any], expected: list[str]) -> None:
    """Selectors and configuration, as in claims."""
    assert refusals(CLASSES, {"metadata": {"name": "c"}, "spec": spec}) == expected


def test_stored_classes() -> None:
    """Expressions and configuration that were taken before may stay; the generation counts."""
    spec = {
        "selectors": [{"cel": {"expression": "x" * 10241}}],
        "config": [{"opaque": {"driver": "d.io", "parameters": {"a": "x" * 10240}}}],
    }
    old = {"metadata": {"name": "c", "generation": 1}, "spec": spec}
    new = {"metadata": {"name": "c"}, "spec": {**spec, "extendedResourceName": "e.com/gpu"}}
    assert len(refusals(CLASSES, old)) == 2
    assert change_refusals(CLASSES, new, old) == []
    assert changed(CLASSES, new, old)["metadata"]["generation"] == 2
