"""A spec that is known to be without fault is found so, and no other."""

from copy import deepcopy
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods import validation
from kvstack.apiserver.kinds.pods.known_specs import KnownSpecs, key_of_spec
from kvstack.apiserver.kinds.pods.spec import check_spec
from kvstack.apiserver.kinds.pods.strategy import PODS
from kvstack.apiserver.kinds.strategy import Context
from kvstack.apiserver.policy.admission.plugins.service_account import MOUNT_PATH, token_volume
from tests.apiserver.kinds.pods.examples import container_with, pod_with, refused, warned


def with_token(name: str, *volumes: Object) -> Object:
    """Return the smallest pod with the volume that admission adds."""
    mount = {"name": name, "mountPath": MOUNT_PATH, "readOnly": True}
    return container_with({"volumeMounts": [mount]}, volumes=[*volumes, token_volume(name)])


def errors_of(pod: Object, **context: Any) -> list[str]:
    found = deepcopy(pod)
    PODS.default(found)
    return [each.field for each in PODS.validate(found, Context(now="", **context))]


@pytest.fixture
def faultless(monkeypatch: pytest.MonkeyPatch) -> KnownSpecs:
    own = KnownSpecs()
    monkeypatch.setattr(validation, "_KNOWN", own)
    return own


@pytest.fixture
def checks(faultless: KnownSpecs, monkeypatch: pytest.MonkeyPatch) -> list[Object]:
    """Return the specs that were checked whole."""
    assert faultless is not None
    checked: list[Object] = []

    def note(scope: Any) -> None:
        checked.append(scope.spec)
        check_spec(scope)

    monkeypatch.setattr(validation, "check_spec", note)
    return checked


def test_pods_of_one_template_are_checked_once(checks: list[Object]) -> None:
    for suffix in ("abcde", "b2c3d", "zzzzz"):
        assert not errors_of(with_token(f"kube-api-access-{suffix}"))
    assert len(checks) == 1


def test_a_spec_with_a_fault_is_checked_each_time(checks: list[Object]) -> None:
    for _ in range(2):
        assert errors_of(container_with({"name": "A"})) == ["spec.containers[0].name"]
    assert len(checks) == 2


@pytest.mark.parametrize(
    "name",
    [
        "kube-api-access-ABCDE",
        "kube-api-access-ab_de",
        "kube-api-access-abcd-",
        "kube-api-access-abc.e",
    ],
)
def test_a_name_of_the_user_is_checked(checks: list[Object], name: str) -> None:
    assert not errors_of(with_token("kube-api-access-abcde"))
    assert "spec.volumes[0].name" in errors_of(with_token(name))
    assert len(checks) == 2


def test_a_name_with_any_bytes_is_not_taken_for_the_random_one(checks: list[Object]) -> None:
    assert not errors_of(with_token("kube-api-access-abcde"))
    for character in ("\x00", "\xff", "\ud8ff"):
        assert "spec.volumes[0].name" in errors_of(with_token(character * 21))
    assert len(checks) == 4


def test_a_volume_of_the_same_name_is_a_duplicate(checks: list[Object]) -> None:
    other: Object = {"name": "kube-api-access-abcde", "emptyDir": {}}
    assert not errors_of(with_token("kube-api-access-b2c3d", other))
    assert errors_of(with_token("kube-api-access-abcde", other)) == ["spec.volumes[1].name"]
    assert not errors_of(with_token("kube-api-access-zzzzz", other))
    assert len(checks) == 2


def test_claims_of_ephemeral_volumes_depend_on_the_name(checks: list[Object]) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    pod = pod_with({"volumes": [volume]})
    assert not errors_of(pod)
    pod["metadata"]["name"] = "x" * 253
    assert errors_of(pod) == ["spec.volumes[0].name"]
    assert len(checks) == 2
    assert key_of_spec(pod["spec"]) is None


def test_privileges_are_those_of_the_server(checks: list[Object]) -> None:
    pod = container_with({"securityContext": {"privileged": True}})
    assert not errors_of(pod, allow_privileged=True)
    assert errors_of(pod, allow_privileged=False)
    assert len(checks) == 2


def test_annotations_are_checked_beside_a_known_spec(faultless: KnownSpecs) -> None:
    cost = "controller.kubernetes.io/pod-deletion-cost"
    assert faultless is not None
    assert not refused({})
    assert refused({}, {"annotations": {cost: "x"}})


def test_warnings_are_given_each_time() -> None:
    spec: Object = {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}
    assert not warned({})
    for _ in range(2):
        assert warned(spec) == ['spec.imagePullSecrets[1].name: duplicate name "a"']
    assert not warned({}, {"annotations": {"a": "b"}})
    deprecated = {"scheduler.alpha.kubernetes.io/critical-pod": ""}
    for _ in range(2):
        assert len(warned({}, {"annotations": deprecated})) == 1
