import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

import pytest

from kvstack.apimachinery.attributes import Attributes
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import NAMESPACES, PODS, SERVICES
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.policy.admission.assembly import ON_BY_DEFAULT, ORDER, Parts, admission_chain
from kvstack.apiserver.policy.admission.configuration import AdmissionSettings
from kvstack.apiserver.policy.admission.metrics import AdmissionMetrics
from kvstack.apiserver.policy.admission.plugins.optional.always_pull_images import AlwaysPullImages
from kvstack.apiserver.policy.admission.plugins.optional.deny_service_external_ips import (
    DenyServiceExternalIPs,
)
from kvstack.apiserver.policy.admission.plugins.optional.event_rate_limit import (
    EventLimit,
    EventRateLimit,
)
from kvstack.apiserver.policy.admission.plugins.optional.extended_resource_toleration import (
    ExtendedResourceToleration,
)
from kvstack.apiserver.policy.admission.plugins.optional.limit_pod_hard_anti_affinity_topology import (  # noqa: E501
    LimitPodHardAntiAffinityTopology,
)
from kvstack.apiserver.policy.admission.plugins.optional.namespaces import (
    NamespaceAutoProvision,
    NamespaceExists,
)
from kvstack.apiserver.policy.admission.plugins.optional.owner_references_permission_enforcement import (  # noqa: E501
    MappedResource,
    OwnerReferencesPermissionEnforcement,
)
from kvstack.apiserver.policy.admission.plugins.optional.pod_node_selector import PodNodeSelector
from kvstack.apiserver.policy.admission.plugins.optional.pod_toleration_restriction import (
    PodTolerationRestriction,
)
from kvstack.apiserver.policy.admission.request import CREATE, DELETE, UPDATE
from kvstack.apiserver.policy.admission.webhooks.metrics import WebhookMetrics
from kvstack.apiserver.policy.admission.webhooks.plugins import WebhookParts
from kvstack.apiserver.policy.expressions.match_conditions import RequestConditions
from kvstack.apiserver.policy.interfaces import Decision
from kvstack.apiserver.webhooks.client import WebhookClient
from kvstack.apiserver.webhooks.outbound import Outbound
from kvstack.apiserver.webhooks.services import Services
from kvstack.component.clock import SystemClock
from tests.apiserver.policy.admission.requests import admission_request, namespace, pod
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.policy.views import FakeView
from tests.support.node.group import ListLog

SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"
DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
ALLOWED = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
EVENTS = GroupResource("", "events")


def done(found: Awaitable[None] | None) -> None:
    async def wait() -> None:
        assert found is not None
        await found

    if inspect.isawaitable(found):
        asyncio.run(wait())


def with_namespace(**annotations: str) -> FakeView:
    view = FakeView()
    view.put(NAMESPACES, namespace(**annotations))
    return view


def refusal(operation: Any) -> str:
    with pytest.raises(ApiError) as caught:
        done(operation())
    return str(caught.value)


# AlwaysPullImages


def test_every_image_is_pulled() -> None:
    given = pod(
        initContainers=[{"name": "i", "image": "x", "imagePullPolicy": "Never"}],
        volumes=[{"name": "v", "image": {"reference": "r"}}, {"name": "e", "emptyDir": {}}],
    )
    shared = given["spec"]["initContainers"]
    request = admission_request(given)
    AlwaysPullImages().mutate(request)
    spec = request.new["spec"]
    assert [spec[each][0]["imagePullPolicy"] for each in ("initContainers", "containers")] == [
        "Always",
        "Always",
    ]
    assert spec["volumes"][0]["image"]["pullPolicy"] == "Always"
    assert shared[0]["imagePullPolicy"] == "Never", "what is shared was changed"
    AlwaysPullImages().validate(request)


def test_a_policy_that_was_changed_later_is_refused() -> None:
    request = admission_request(
        pod(containers=[{"name": "c", "image": "i", "imagePullPolicy": "Never"}])
    )
    assert refusal(lambda: AlwaysPullImages().validate(request)) == (
        'pods "p" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "Never":'
        ' supported values: "Always"'
    )


def test_an_update_without_new_images_passes() -> None:
    AlwaysPullImages().validate(admission_request(pod(), pod()))
    changed = pod(containers=[{"name": "c", "image": "other"}])
    assert refusal(lambda: AlwaysPullImages().validate(admission_request(changed, pod())))


# PodNodeSelector


def test_the_selector_of_the_namespace_is_merged() -> None:
    view = with_namespace(**{SELECTOR: "env=test, zone = a"})
    request = admission_request(pod(nodeSelector={"disk": "ssd"}))
    done(PodNodeSelector(view, view).mutate(request))
    assert request.new["spec"]["nodeSelector"] == {"env": "test", "zone": "a", "disk": "ssd"}


def test_a_selector_against_that_of_the_namespace_is_refused() -> None:
    view = with_namespace(**{SELECTOR: "env=test"})
    request = admission_request(pod(nodeSelector={"env": "live"}))
    assert refusal(lambda: PodNodeSelector(view, view).mutate(request)) == (
        'pods "p" is forbidden: pod node label selector conflicts with its namespace node label'
        " selector"
    )


def test_the_configuration_has_a_default_and_what_is_allowed() -> None:
    view = with_namespace()
    plugin = PodNodeSelector(view, view, {"clusterDefaultNodeSelector": "a=b", "a": "a=b,c=d"})
    request = admission_request(pod(nodeSelector={"c": "d"}))
    done(plugin.mutate(request))
    assert request.new["spec"]["nodeSelector"] == {"a": "b", "c": "d"}
    assert refusal(lambda: plugin.mutate(admission_request(pod(nodeSelector={"x": "y"})))) == (
        'pods "p" is forbidden: pod node label selector labels conflict with its namespace'
        " whitelist"
    )


def test_a_namespace_is_looked_for_in_the_store() -> None:
    view = FakeView()
    view.before_catching_up = lambda: view.put(NAMESPACES, namespace(**{SELECTOR: "a=b"}))
    request = admission_request(pod())
    done(PodNodeSelector(view, view).mutate(request))
    assert request.new["spec"]["nodeSelector"] == {"a": "b"}


def test_a_selector_that_cannot_be_read_is_reported() -> None:
    view = with_namespace(**{SELECTOR: "a=b=c"})
    told = refusal(lambda: PodNodeSelector(view, view).mutate(admission_request(pod())))
    assert told == "invalid selector: [a b c]"


# PodTolerationRestriction


def test_tolerations_of_the_namespace_are_added() -> None:
    view = with_namespace(**{DEFAULTS: '[{"key":"a","operator":"Exists"}]'})
    request = admission_request(pod())
    done(PodTolerationRestriction(view, view).mutate(request))
    assert request.new["spec"]["tolerations"] == [{"key": "a", "operator": "Exists"}]


def test_pods_with_requests_tolerate_memory_pressure() -> None:
    view = with_namespace()
    resources = {"requests": {"cpu": "1"}}
    request = admission_request(
        pod(containers=[{"name": "c", "image": "i", "resources": resources}])
    )
    done(PodTolerationRestriction(view, view).mutate(request))
    keys = [each["key"] for each in request.new["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/memory-pressure"]


@pytest.mark.parametrize(
    ("annotations", "scope"),
    [({ALLOWED: '[{"key":"b","operator":"Exists"}]'}, "namespace"), ({}, "cluster")],
)
def test_tolerations_that_are_not_allowed_are_refused(
    annotations: dict[str, str], scope: str
) -> None:
    view = with_namespace(**annotations)
    plugin = PodTolerationRestriction(view, view, (), [{"key": "b", "operator": "Exists"}])
    request = admission_request(pod(tolerations=[{"key": "a", "operator": "Exists"}]))
    assert refusal(lambda: plugin.validate(request)) == (
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its"
        f" {scope} whitelist"
    )
    fine = [{"key": "b", "operator": "Equal", "value": "x"}]
    done(plugin.validate(admission_request(pod(tolerations=fine))))


# EventRateLimit


def event(name: str, source: str = "k") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "a"},
        "source": {"component": source},
        "involvedObject": {"kind": "Pod", "name": name},
    }


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    clock = FakeClock()
    plugin = EventRateLimit([EventLimit("Namespace", qps=2, burst=3)], clock)
    for _ in range(3):
        plugin.validate(admission_request(event("e"), resource=EVENTS))
    with pytest.raises(ApiError) as caught:
        plugin.validate(admission_request(event("e"), resource=EVENTS))
    assert caught.value.code == 429
    told = "Too many requests: limit reached on type Namespace for key a"
    assert caught.value.message == told
    clock.seconds += 0.5
    plugin.validate(admission_request(event("e"), resource=EVENTS))
    with pytest.raises(ApiError):
        plugin.validate(admission_request(event("e"), resource=EVENTS))
    plugin.validate(admission_request(event("e"), resource=EVENTS, is_dry_run=True))


def test_sources_and_objects_have_buckets_of_their_own() -> None:
    plugin = EventRateLimit([EventLimit("SourceAndObject", 1, 1)], FakeClock())
    for each in (event("e"), event("f"), event("e", "other")):
        plugin.validate(admission_request(each, resource=EVENTS))
    assert refusal(lambda: plugin.validate(admission_request(event("f"), resource=EVENTS)))


def test_only_so_many_buckets_are_remembered() -> None:
    plugin = EventRateLimit([EventLimit("SourceAndObject", 1, 1, cache_size=1)], FakeClock())
    plugin.validate(admission_request(event("e"), resource=EVENTS))
    plugin.validate(admission_request(event("f"), resource=EVENTS))
    plugin.validate(admission_request(event("e"), resource=EVENTS))


# ExtendedResourceToleration


def test_devices_are_tolerated_once_each() -> None:
    resources = {"requests": {"example.com/b": "1", "example.com/a": "1", "cpu": "1"}}
    given = pod(
        containers=[{"name": "c", "resources": resources}],
        tolerations=[{"key": "example.com/b", "operator": "Exists", "effect": "NoSchedule"}],
    )
    request = admission_request(given)
    ExtendedResourceToleration().mutate(request)
    ExtendedResourceToleration().mutate(request)
    keys = [each["key"] for each in request.new["spec"]["tolerations"]]
    assert keys == ["example.com/b", "example.com/a"]


# OwnerReferencesPermissionEnforcement


class Allowing:
    """An authorizer that allows what its list has."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.asked: list[str] = []

    def authorize(self, attributes: Attributes) -> Decision:
        self.asked.append(
            f"{attributes.verb} {attributes.resource}/{attributes.subresource}"
            f" {attributes.namespace} {attributes.name}"
        )
        return Decision(f"{attributes.verb} {attributes.resource}" in self.allowed)


def mapping(group: str, version: str, kind: str) -> list[MappedResource]:
    if (group, version, kind) == ("apps", "v1", "ReplicaSet"):
        return [MappedResource(GroupResource("apps", "replicasets"), "v1", True)]
    return []


def owned(*, blocks: bool = False, kind: str = "ReplicaSet") -> dict[str, Any]:
    owner: dict[str, Any] = {"apiVersion": "apps/v1", "kind": kind, "name": "r", "uid": "u"}
    owner |= {"blockOwnerDeletion": True} if blocks else {}
    found = pod()
    found["metadata"]["ownerReferences"] = [owner]
    return found


def test_an_owner_is_set_by_who_may_delete() -> None:
    authorizer = Allowing()
    plugin = OwnerReferencesPermissionEnforcement(authorizer, mapping)
    done(plugin.validate(admission_request(owned())))
    assert not authorizer.asked, "who creates an object need not have made it"
    assert refusal(lambda: plugin.validate(admission_request(owned(), pod()))) == (
        'pods "p" is forbidden: cannot set an ownerRef on a resource you can\'t delete: , <nil>'
    )
    may = OwnerReferencesPermissionEnforcement(Allowing("delete pods"), mapping)
    done(may.validate(admission_request(owned(), pod())))


def test_an_owner_is_blocked_by_who_may_set_its_finalizers() -> None:
    authorizer = Allowing()
    plugin = OwnerReferencesPermissionEnforcement(authorizer, mapping)
    assert refusal(lambda: plugin.validate(admission_request(owned(blocks=True)))) == (
        'pods "p" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a'
        " resource you can't set finalizers on: , <nil>"
    )
    assert authorizer.asked[-1] == "update replicasets/finalizers a r"
    for allowed in ("update replicasets", "update *"):
        may = OwnerReferencesPermissionEnforcement(Allowing(allowed), mapping)
        done(may.validate(admission_request(owned(blocks=True))))
    unknown = admission_request(owned(blocks=True, kind="Nothing"))
    assert refusal(lambda: plugin.validate(unknown)).endswith(
        "cannot find RESTMapping for APIVersion apps/v1 Kind Nothing: no matches for kind"
        ' "Nothing" in version "apps/v1"'
    )
    done(plugin.validate(admission_request(owned(blocks=True), owned(blocks=True))))


# Namespaces


def test_a_namespace_is_made_for_what_needs_it() -> None:
    view, made = FakeView(), list[str]()

    async def make(name: str) -> None:
        made.append(name)
        if name in made[:-1]:
            raise status.already_exists(NAMESPACES, name)

    plugin = NamespaceAutoProvision(view, make)
    for dry in (True, False, False):
        done(plugin.mutate(admission_request(pod(), is_dry_run=dry)))
    assert made == ["a", "a"]
    view.put(NAMESPACES, namespace())
    assert plugin.mutate(admission_request(pod())) is None
    assert not plugin.handles(CREATE, NAMESPACES, "")


def test_a_refused_namespace_refuses_the_write() -> None:
    async def make(_name: str) -> None:
        raise status.bad_request("no")

    plugin = NamespaceAutoProvision(FakeView(), make)
    assert refusal(lambda: plugin.mutate(admission_request(pod()))) == 'pods "p" is forbidden: no'


def test_a_namespace_must_exist() -> None:
    view = FakeView()
    plugin = NamespaceExists(view, view)
    told = refusal(lambda: plugin.validate(admission_request(pod(), operation=DELETE)))
    assert told == 'namespaces "a" not found'
    view.put(NAMESPACES, namespace())
    assert plugin.validate(admission_request(pod())) is None


# Others


def test_external_addresses_may_stay_and_not_come() -> None:
    def service(*addresses: str) -> dict[str, Any]:
        return {"metadata": {"name": "s"}, "spec": {"externalIPs": list(addresses)}}

    plugin = DenyServiceExternalIPs()
    plugin.validate(admission_request(service("192.0.2.1"), service("192.0.2.1", "192.0.2.2")))
    plugin.validate(admission_request(service(), resource=SERVICES))
    told = refusal(
        lambda: plugin.validate(
            admission_request(service("192.0.2.1"), service(), resource=SERVICES)
        )
    )
    assert told == 'services "s" is forbidden: Use of external IPs is denied by admission control'


def test_pods_keep_others_off_a_host_only() -> None:
    def affinity(key: str) -> dict[str, Any]:
        term = {"topologyKey": key}
        name = "requiredDuringSchedulingIgnoredDuringExecution"
        return pod(affinity={"podAntiAffinity": {name: [term]}})

    plugin = LimitPodHardAntiAffinityTopology()
    plugin.validate(admission_request(affinity("kubernetes.io/hostname")))
    told = refusal(lambda: plugin.validate(admission_request(affinity("zone"))))
    assert told.endswith("TopologyKey zone but only key kubernetes.io/hostname is allowed")


def test_plugins_are_called_in_the_order_of_upstream() -> None:
    view = FakeView()

    async def make(_name: str) -> None:
        return None

    settings = AdmissionSettings(event_limits=(EventLimit("Server", 1, 1),))
    clock, log = FakeClock(), ListLog()
    webhooks = WebhookParts(
        view,
        view,
        WebhookClient(Services(view), Outbound(SystemClock().unix_ms)),
        clock,
        lambda: "uid",
        RequestConditions(Allowing()),
        WebhookMetrics(),
        log,
    )
    parts = Parts(
        view,
        view,
        clock,
        Allowing(),
        lambda prefix: prefix,
        make,
        mapping,
        webhooks,
        lambda _api_version, _kind: None,
        AdmissionMetrics(clock),
        settings,
    )
    wanted = ["AlwaysDeny", "NamespaceExists", "EventRateLimit", "AlwaysPullImages", "AlwaysAdmit"]
    names = [each.name for each in admission_chain(parts, enabled=wanted).plugins]
    assert set(names) == ON_BY_DEFAULT | set(wanted)
    assert names == [each for each in ORDER if each in names]
    chain = admission_chain(parts, enabled=["AlwaysDeny"], disabled=sorted(ON_BY_DEFAULT))
    assert chain.handles(UPDATE, PODS, "status")
    told = refusal(lambda: chain.mutate(admission_request(pod())))
    assert told == 'pods "p" is forbidden: admission control is denying all modifications'
