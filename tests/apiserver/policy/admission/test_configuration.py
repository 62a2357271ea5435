import pytest

from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.policy.admission.configuration import AdmissionSettings, read_configuration
from kvstack.apiserver.policy.admission.plugins.optional.event_rate_limit import EventLimit
from kvstack.apiserver.policy.pod_security.standards import Standard
from kvstack.apiserver.policy.quota.check import charge
from kvstack.apiserver.policy.quota.limited import LimitedResource
from tests.apiserver.policy.admission.requests import admission_request, pod

WHOLE = b"""
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}
    exemptions: {usernames: [u], namespaces: [kube-system], runtimeClasses: [r]}
- name: EventRateLimit
  path: events.yaml
- name: PodTolerationRestriction
  configuration:
    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
    kind: Configuration
    default: [{key: a, operator: Exists, tolerationSeconds: 3}]
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchContains: [requests.cpu]
      matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration}
"""
EVENTS = b"""
apiVersion: eventratelimit.admission.k8s.io/v1alpha1
kind: Configuration
limits: [{type: User, qps: 5, burst: 10, cacheSize: 7}, {type: Server, qps: 1, burst: 2}]
"""


def files(name: str) -> bytes:
    assert name == "events.yaml"
    return EVENTS


def test_every_plugin_gets_its_part() -> None:
    found = read_configuration(WHOLE, files, AdmissionSettings())
    assert found.pod_security.enforce == Standard("baseline", 30)
    assert str(found.pod_security.warn) == "restricted:latest"
    assert found.pod_security_exemptions.users == {"u"}
    assert found.pod_security_exemptions.runtime_classes == {"r"}
    assert found.event_limits == (EventLimit("User", 5, 10, 7), EventLimit("Server", 1, 2))
    assert found.default_tolerations == (
        {"key": "a", "operator": "Exists", "tolerationSeconds": 3},
    )
    (limited,) = found.limited_resources
    assert limited.resource == PODS
    assert limited.match_scopes[0]["values"] == ["high"]
    assert not found.manifest_folders


def test_node_selectors_may_stand_alone() -> None:
    data = b"podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b, ns: c=d}"
    found = read_configuration(data, files, AdmissionSettings())
    assert found.node_selectors == {"clusterDefaultNodeSelector": "a=b", "ns": "c=d"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"enforce: baseline", b"enforce: strict", "must be one of privileged, baseline"),
        (b"v1.30", b"one", 'must be "latest" or "v1.x"'),
        (b"usernames", b"users", 'unknown field "exemptions.users"'),
        (b"resource: pods", b"resource: ''", "limitedResources[0].resource: Required value"),
        (b"path: events.yaml", b"pathh: events.yaml", 'unknown field "plugins[1].pathh"'),
        (b"AdmissionConfiguration", b"Other", 'no kind "Other" is registered for version'),
        (b"[kube-system]", b"7", "exemptions.namespaces must be of type list"),
    ],
)
def test_what_cannot_be_used_is_reported(old: bytes, new: bytes, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_configuration(WHOLE.replace(old, new, 1), files, AdmissionSettings())
    assert message in str(caught.value)


@pytest.mark.parametrize("wrong", [b"qps: 0", b"qps: true", b"burst: -1", b"type: Users"])
def test_limits_of_events_are_checked(wrong: bytes) -> None:
    name = wrong.partition(b":")[0]
    lines = b", ".join(
        wrong if each.startswith(name) else each for each in (b"type: User", b"qps: 5", b"burst: 1")
    )
    data = EVENTS.partition(b"limits")[0] + b"limits: [{" + lines + b"}]"
    with pytest.raises(DocumentError, match=r"configuration of EventRateLimit: limits\[0\]"):
        read_configuration(WHOLE, lambda _name: data, AdmissionSettings())


def quota(hard: dict[str, str], **spec: object) -> dict[str, object]:
    used = dict.fromkeys(hard, "0")
    return {"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}}


def test_what_is_limited_needs_a_quota() -> None:
    given = pod(priorityClassName="high")
    given["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    names = [LimitedResource(PODS, ("requests.cpu",))]
    with pytest.raises(ApiError, match=r"insufficient quota to consume: requests\.cpu"):
        charge([], admission_request(given), 0, names)
    assert charge([], admission_request(pod()), 0, names) == []
    (charged,) = charge([quota({"requests.cpu": "2"})], admission_request(given), 0, names)
    assert charged["status"]["used"] == {"requests.cpu": "1"}
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    scopes = [LimitedResource(PODS, match_scopes=(scope,))]
    with pytest.raises(ApiError) as caught:
        charge([], admission_request(given), 0, scopes)
    told = "insufficient quota to match these scopes: [{PriorityClass In [high]}]"
    assert caught.value.message == f'pods "p" is forbidden: {told}'
    covering = quota({"pods": "2"}, scopeSelector={"matchExpressions": [scope]})
    assert len(charge([covering], admission_request(given), 0, scopes)) == 1
    others = [LimitedResource(GroupResource("", "configmaps"), ("count",))]
    assert others[0].resource != PODS
