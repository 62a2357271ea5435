"""StatefulSets, DaemonSets and their ControllerRevisions."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.decode import DecodeError
from kvstack.apiserver.kinds.workloads.controller_revisions import CONTROLLER_REVISIONS
from kvstack.apiserver.kinds.workloads.daemon_sets import (
    DAEMON_SETS,
    TEMPLATE_GENERATION,
    template_generation,
)
from kvstack.apiserver.kinds.workloads.stateful_sets import STATEFUL_SETS
from tests.apiserver.kinds.hooks import (
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)
from tests.apiserver.kinds.workloads.examples import workload

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
MOUNT = {"name": "c", "image": "a:1", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}


def test_new_stateful_sets() -> None:
    spec = prepared_object(STATEFUL_SETS, workload({"volumeClaimTemplates": [CLAIM]}))["spec"]
    assert (spec["podManagementPolicy"], spec["replicas"]) == ("OrderedReady", 1)
    rolling = {"partition": 0, "maxUnavailable": 1}
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    (claim,) = spec["volumeClaimTemplates"]
    assert (claim["kind"], claim["spec"]["volumeMode"]) == ("PersistentVolumeClaim", "Filesystem")
    assert claim["status"] == {"phase": "Pending"}


def test_explicit_rolling_updates_have_no_defaults() -> None:
    """A strategy that names its type and nothing else stays so."""
    named = workload({"updateStrategy": {"type": "RollingUpdate"}})
    assert prepared_object(STATEFUL_SETS, named)["spec"]["updateStrategy"] == {
        "type": "RollingUpdate"
    }


def test_claims_are_volumes_of_the_template() -> None:
    """In place of volumes of the same name."""
    template: dict[str, Any] = {"spec": {"containers": [MOUNT]}}
    assert refusals(STATEFUL_SETS, workload({"template": template})) == [
        'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"'
    ]
    spec = {"template": template, "volumeClaimTemplates": [CLAIM]}
    assert refusals(STATEFUL_SETS, workload(spec)) == []
    template["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": ""}}]
    assert refusals(STATEFUL_SETS, workload(spec)) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"template": {"spec": {"hostname": "A", "subdomain": "B"}}}, []),
        (
            {"podManagementPolicy": "x"},
            ["podManagementPolicy: Invalid value: \"x\": must be 'OrderedReady' or 'Parallel'"],
        ),
        (
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {}}},
            [
                "updateStrategy.rollingUpdate: Invalid value:"
                ' {"Partition":0,"MaxUnavailable":null}:'
                " only allowed for updateStrategy 'RollingUpdate'"
            ],
        ),
        (
            {"updateStrategy": {"type": "Recreate"}},
            [
                'updateStrategy: Invalid value: {"Type":"Recreate","RollingUpdate":null}:'
                " must be 'RollingUpdate' or 'OnDelete'"
            ],
        ),
        (
            {"updateStrategy": {"rollingUpdate": {"partition": -1, "maxUnavailable": "0%"}}},
            [
                "updateStrategy.rollingUpdate.partition: Invalid value: -1:"
                " must be greater than or equal to 0",
                'updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "0%": cannot be 0',
            ],
        ),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "x"}},
            [
                'persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "x":'
                ' supported values: "Retain", "Delete"'
            ],
        ),
        (
            {"ordinals": {"start": -1}},
            ["ordinals.start: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"volumeClaimTemplates": [{"metadata": {"name": "x"}}]},
            [
                "volumeClaimTemplates[0].spec.accessModes: Required value:"
                " at least 1 access mode is required",
                "volumeClaimTemplates[0].spec.resources[storage]: Required value",
            ],
        ),
        (
            {"template": {"spec": {"activeDeadlineSeconds": 1}}},
            [
                "template.spec.activeDeadlineSeconds: Forbidden:"
                " activeDeadlineSeconds in StatefulSet is not Supported"
            ],
        ),
    ],
)
def test_stateful_sets(spec: Object, expected: list[str]) -> None:
    errors = refusals(STATEFUL_SETS, workload(spec))
    assert [each.removeprefix("spec.") for each in errors] == expected


def test_what_stays_of_stateful_sets() -> None:
    old = workload({"volumeClaimTemplates": [CLAIM], "serviceName": "a"})
    claim = patched(CLAIM, {"spec": {"resources": {"requests": {"storage": "1024Mi"}}}})
    same = workload({"volumeClaimTemplates": [claim], "serviceName": "a", "replicas": 3})
    assert change_refusals(STATEFUL_SETS, same, old) == []
    new = workload({"serviceName": "B", "podManagementPolicy": "Parallel"})
    assert change_refusals(STATEFUL_SETS, new, old) == [
        "spec.volumeClaimTemplates: Invalid value: null: field is immutable",
        'spec.serviceName: Invalid value: "B": field is immutable',
        'spec.podManagementPolicy: Invalid value: "Parallel": field is immutable',
    ]
    other = patched(CLAIM, {"metadata": {"name": "x"}})
    (error,) = change_refusals(
        STATEFUL_SETS, workload({"volumeClaimTemplates": [other], "serviceName": "a"}), old
    )
    assert error.startswith('spec.volumeClaimTemplates: Invalid value: [{"name":"x","Spec":{')


def test_stored_templates_with_errors() -> None:
    """They do not stop updates, but labels and annotations are checked."""
    old = workload({"template": {"spec": {"containers": []}}})
    new = patched(old, {"spec": {"replicas": 2}})
    assert change_refusals(STATEFUL_SETS, new, old) == []
    labels = {"metadata": {"labels": {"app": "x", "a": "-"}, "annotations": {"-": "x"}}}
    errors = change_refusals(STATEFUL_SETS, patched(new, {"spec": {"template": labels}}), old)
    assert [each.partition(":")[0] for each in errors] == [
        "spec.template.labels",
        "spec.template.annotations",
    ]


def test_warnings_of_stateful_sets() -> None:
    claim = patched(CLAIM, {"spec": {"resources": {"requests": {"storage": "1500m"}}}})
    new = workload({"volumeClaimTemplates": [claim], "revisionHistoryLimit": -1})
    fraction = 'fractional byte value "1500m" is invalid, must be an integer'
    history = (
        "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >="
        " 0 is recommended"
    )
    path = "spec.volumeClaimTemplates[0]"
    assert warnings_of(STATEFUL_SETS, new) == [
        f"{path}.resources.requests[storage]: {fraction}",
        history,
    ]
    assert warnings_of_change(STATEFUL_SETS, new, new) == [
        f"{path}.Spec.resources.requests[storage]: {fraction}",
        history,
    ]


def test_generations_of_templates() -> None:
    """The server counts; what clients say starts it at most."""
    old = prepared_object(DAEMON_SETS, workload())
    assert old["metadata"]["annotations"] == {TEMPLATE_GENERATION: "1"}
    given = workload(metadata={"annotations": {TEMPLATE_GENERATION: "5"}})
    assert template_generation(prepared_object(DAEMON_SETS, given)) == 5
    given = workload(metadata={"annotations": {TEMPLATE_GENERATION: "-5"}})
    assert template_generation(prepared_object(DAEMON_SETS, given)) == 1
    with pytest.raises(DecodeError, match=r'strconv\.ParseInt: parsing "x": invalid syntax'):
        prepared_object(DAEMON_SETS, workload(metadata={"annotations": {TEMPLATE_GENERATION: "x"}}))
    spec = changed(DAEMON_SETS, patched(old, {"spec": {"minReadySeconds": 1}}), old)
    assert (template_generation(spec), spec["metadata"]["generation"]) == (1, 2)
    new = patched(old, {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})
    new["metadata"]["annotations"] = {TEMPLATE_GENERATION: "7"}
    found = changed(DAEMON_SETS, new, old)
    assert (template_generation(found), found["metadata"]["generation"]) == (2, 2)
    bare = patched(old, {"metadata": {"annotations": None}})
    status = DAEMON_SETS.subresources["status"]
    assert template_generation(changed(status, bare, old)) == 1


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({}, []),
        ({"type": "OnDelete"}, []),
        (
            {"type": "x"},
            [
                ': Unsupported value: {"Type":"x","RollingUpdate":null}:'
                ' supported values: "RollingUpdate", "OnDelete"'
            ],
        ),
        (
            {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            [
                ".rollingUpdate.maxSurge: Invalid value: 1:"
                " may not be set when maxUnavailable is non-zero"
            ],
        ),
        (
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
            [".rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
        ),
        (
            {"rollingUpdate": {"maxSurge": "101%", "maxUnavailable": 0}},
            ['.rollingUpdate.maxSurge: Invalid value: "101%": must not be greater than 100%'],
        ),
    ],
)
def test_strategies_of_daemon_sets(strategy: Object, expected: list[str]) -> None:
    errors = refusals(DAEMON_SETS, workload({"updateStrategy": strategy}))
    assert [each.removeprefix("spec.updateStrategy") for each in errors] == expected


def test_selectors_of_daemon_sets() -> None:
    """Changes are told before what is wrong with the spec; stored errors of values are forgiven."""
    old = workload()
    new = workload({"selector": {"matchLabels": {"app": None, "b": "c"}}})
    assert change_refusals(DAEMON_SETS, new, old) == [
        'spec.selector: Invalid value: {"matchLabels":{"b":"c"}}: field is immutable',
        'spec.template.metadata.labels: Invalid value: {"app":"x"}:'
        " `selector` does not match template `labels`",
    ]
    assert refusals(DAEMON_SETS, workload({"selector": {"matchLabels": None}})) == [
        "spec.selector: Invalid value: {}: empty selector is invalid for daemonset"
    ]
    odd = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["-"]}]}
    old = workload({"selector": odd})
    assert change_refusals(DAEMON_SETS, patched(old, {"spec": {"minReadySeconds": 1}}), old) == []


def test_warnings_of_daemon_sets() -> None:
    """Told when the template changes, not when anything else does."""
    template = {"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}
    old = prepared_object(DAEMON_SETS, workload({"template": template}))
    assert len(warnings_of(DAEMON_SETS, old)) == 1
    assert (
        warnings_of_change(DAEMON_SETS, patched(old, {"spec": {"minReadySeconds": 1}}), old) == []
    )
    new = patched(old, {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})
    assert len(warnings_of_change(DAEMON_SETS, new, old)) == 1


def revision(**members: Any) -> Object:
    """Return a ControllerRevision."""
    return {"metadata": {"name": "r", "namespace": "ns"}, "revision": 1, **members}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"data": {}}, []),
        ({}, ["data: Required value: data is mandatory"]),
        ({"data": [1]}, ["data: Required value: data must be a valid JSON object"]),
        (
            {"data": {}, "revision": -1},
            ["revision: Invalid value: -1: must be greater than or equal to 0"],
        ),
    ],
)
def test_revisions(members: Object, expected: list[str]) -> None:
    assert refusals(CONTROLLER_REVISIONS, revision(**members)) == expected


def test_data_of_revisions_stay() -> None:
    """To the byte: even members in another order are other data."""
    old = revision(data={"a": 1, "b": 2})
    assert (
        change_refusals(CONTROLLER_REVISIONS, revision(data={"a": 1, "b": 2}, revision=2), old)
        == []
    )
    assert change_refusals(CONTROLLER_REVISIONS, revision(data={"b": 2, "a": 1}), old) == [
        'data: Invalid value: {"b":2,"a":1}: field is immutable'
    ]
