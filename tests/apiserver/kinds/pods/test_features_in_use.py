"""Fields of features that are off: dropped from new pods, checked in pods that have them."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.strategy import PODS
from tests.apiserver.kinds.hooks import prepared_object
from tests.apiserver.kinds.pods.examples import container_with, pod_with, refused_change

LINUX: Object = {"os": {"name": "linux"}}
PICTURE = {"name": "v", "image": {"reference": "a:1", "pullPolicy": "Always"}}


def stop(signal: str) -> Object:
    """Return a container that is stopped with a signal."""
    return {"lifecycle": {"stopSignal": signal}}


def probed(**action: Any) -> Object:
    """Return a container with a probe over HTTP."""
    return {"livenessProbe": {"httpGet": {"path": "/", "port": 80, **action}}}


def mounted(*options: str, volume: str = "v") -> Object:
    """Return a container that mounts a volume with options."""
    return {"volumeMounts": [{"name": volume, "mountPath": "/x", "bindMountOptions": [*options]}]}


def tolerant(operator: str, value: str) -> Object:
    """Return a spec with a toleration that compares."""
    return {"tolerations": [{"key": "a", "operator": operator, "value": value}]}


@pytest.mark.parametrize(
    ("container", "spec", "expected"),
    [
        (stop("SIGTERM"), LINUX, []),
        (
            stop("SIGTERM"),
            {},
            [
                "spec.containers[0].lifecycle.stopSignal: Forbidden:"
                " may not be set for containers with empty `spec.os.name`"
            ],
        ),
        (
            stop("SIGHUP"),
            {"os": {"name": "windows"}},
            [
                'spec.containers[0].lifecycle.stopSignal: Unsupported value: "SIGHUP":'
                ' supported values: "SIGKILL", "SIGTERM"'
            ],
        ),
        (probed(protocol="HTTP2"), {}, []),
        (
            probed(protocol="HTTP3"),
            {},
            [
                'spec.containers[0].livenessProbe.httpGet.protocol: Unsupported value: "HTTP3":'
                ' supported values: "HTTP1", "HTTP2"'
            ],
        ),
        (
            probed(protocol="HTTP2", scheme="HTTPS"),
            {},
            [
                'spec.containers[0].livenessProbe.httpGet.protocol: Invalid value: "HTTP2":'
                " is only supported with HTTP (H2C)"
            ],
        ),
        (
            probed(protocol="HTTP2", host="h"),
            {},
            [
                'spec.containers[0].livenessProbe.httpGet.host: Invalid value: "h":'
                ' must be empty when `protocol` is "HTTP2"'
            ],
        ),
        (
            mounted("noexec", "ro", "noexec"),
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            [
                "spec.containers[0].volumeMounts[0].bindMountOptions[1]: Unsupported value:"
                ' "ro": supported values: "nodev", "noexec", "nosuid"',
                'spec.containers[0].volumeMounts[0].bindMountOptions[2]: Duplicate value: "noexec"',
            ],
        ),
        (
            mounted("nodev"),
            {"volumes": [PICTURE]},
            [
                "spec.containers[0].volumeMounts[0].bindMountOptions: Invalid value:"
                ' ["nodev"]: bindMountOptions may not be used with image volumes'
            ],
        ),
        ({}, {"schedulingGroup": {"podGroupName": "a"}}, []),
        (
            {},
            {"schedulingGroup": {}},
            [
                "spec.schedulingGroup.podGroupName: Invalid value: null:"
                " must specify one of: `podGroupName`"
            ],
        ),
        ({}, tolerant("Gt", "5"), []),
        (
            {},
            tolerant("Lt", "99999999999999999999"),
            [
                'spec.tolerations[0].value: Invalid value: "99999999999999999999":'
                ' strconv.ParseInt: parsing "99999999999999999999": value out of range'
            ],
        ),
    ],
)
def test_stored_pods(container: Object, spec: Object, expected: list[str]) -> None:
    """What a stored pod has is neither dropped nor left unchecked."""
    pod = container_with(container, **spec)
    # Tolerations are looked at twice; answers tell an error once.
    assert list(dict.fromkeys(refused_change(pod, pod))) == expected


def test_names_of_groups() -> None:
    """A group of pods has the name of an object."""
    pod = pod_with({"schedulingGroup": {"podGroupName": "A"}})
    (error,) = refused_change(pod, pod)
    assert error.startswith('spec.schedulingGroup.podGroupName: Invalid value: "A": a lowercase')


def test_new_pods() -> None:
    """The fields are dropped, and a lifecycle that is left without any other."""
    container = {**stop("SIGTERM"), **mounted("nodev"), **probed(protocol="HTTP2")}
    spec = {"schedulingGroup": {"podGroupName": "a"}, "volumes": [PICTURE]}
    found = prepared_object(PODS, container_with(container, **spec))["spec"]
    (first,) = found["containers"]
    assert "schedulingGroup" not in found
    assert "lifecycle" not in first
    assert "bindMountOptions" not in first["volumeMounts"][0]
    assert "protocol" not in first["livenessProbe"]["httpGet"]
    other = {"lifecycle": {"stopSignal": "SIGTERM", "preStop": {"sleep": {"seconds": 1}}}}
    (kept,) = prepared_object(PODS, container_with(other))["spec"]["containers"]
    assert kept["lifecycle"] == {"preStop": {"sleep": {"seconds": 1}}}


def test_annotations_of_init_containers() -> None:
    """They held what is a field now."""
    old = {"pod.beta.kubernetes.io/init-containers": "[]"}
    found = prepared_object(PODS, pod_with({}, {"annotations": {**old, "a": "b"}}))
    assert found["metadata"]["annotations"] == {"a": "b"}
    assert (
        "annotations" not in prepared_object(PODS, pod_with({}, {"annotations": old}))["metadata"]
    )
