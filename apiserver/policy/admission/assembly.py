"""The admission plugins, their order, and which are enabled.

    admission_chain(parts, enabled=["NodeRestriction"], disabled=["LimitRanger"])

The order is upstream's and fixed. Plugins in the order that are not implemented here are unknown to
`admission_chain`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from kvstack.apiserver.policy.admission.chain import AdmissionChain
from kvstack.apiserver.policy.admission.configuration import AdmissionSettings
from kvstack.apiserver.policy.admission.metrics import AdmissionMetrics
from kvstack.apiserver.policy.admission.plugin import Plugin
from kvstack.apiserver.policy.admission.plugins import certificates, default_class
from kvstack.apiserver.policy.admission.plugins.default_toleration_seconds import (
    DefaultTolerationSeconds,
)
from kvstack.apiserver.policy.admission.plugins.limit_ranger import LimitRanger
from kvstack.apiserver.policy.admission.plugins.namespace_lifecycle import NamespaceLifecycle
from kvstack.apiserver.policy.admission.plugins.node_declared_feature_validator import (
    NodeDeclaredFeatureValidator,
)
from kvstack.apiserver.policy.admission.plugins.node_restriction.plugin import NodeRestriction
from kvstack.apiserver.policy.admission.plugins.optional.always import AlwaysAdmit, AlwaysDeny
from kvstack.apiserver.policy.admission.plugins.optional.always_pull_images import AlwaysPullImages
from kvstack.apiserver.policy.admission.plugins.optional.deny_service_external_ips import (
    DenyServiceExternalIPs,
)
from kvstack.apiserver.policy.admission.plugins.optional.event_rate_limit import EventRateLimit
from kvstack.apiserver.policy.admission.plugins.optional.extended_resource_toleration import (
    ExtendedResourceToleration,
)
from kvstack.apiserver.policy.admission.plugins.optional.image_policy_webhook import (
    ImagePolicyWebhook,
)
from kvstack.apiserver.policy.admission.plugins.optional.limit_pod_hard_anti_affinity_topology import (  # noqa: E501
    LimitPodHardAntiAffinityTopology,
)
from kvstack.apiserver.policy.admission.plugins.optional.namespaces import (
    MakeNamespace,
    NamespaceAutoProvision,
    NamespaceExists,
)
from kvstack.apiserver.policy.admission.plugins.optional.owner_references_permission_enforcement import (  # noqa: E501
    KindMapping,
    OwnerReferencesPermissionEnforcement,
)
from kvstack.apiserver.policy.admission.plugins.optional.pod_node_selector import PodNodeSelector
from kvstack.apiserver.policy.admission.plugins.optional.pod_toleration_restriction import (
    PodTolerationRestriction,
)
from kvstack.apiserver.policy.admission.plugins.persistent_volume_claim_resize import (
    PersistentVolumeClaimResize,
)
from kvstack.apiserver.policy.admission.plugins.pod_resize_validator import PodResizeValidator
from kvstack.apiserver.policy.admission.plugins.pod_security import PodSecurity
from kvstack.apiserver.policy.admission.plugins.pod_topology_labels import PodTopologyLabels
from kvstack.apiserver.policy.admission.plugins.priority import Priority
from kvstack.apiserver.policy.admission.plugins.resource_quota import ResourceQuota
from kvstack.apiserver.policy.admission.plugins.runtime_class import RuntimeClass
from kvstack.apiserver.policy.admission.plugins.service_account import ServiceAccount
from kvstack.apiserver.policy.admission.plugins.storage_object_in_use_protection import (
    StorageObjectInUseProtection,
)
from kvstack.apiserver.policy.admission.plugins.taint_nodes_by_condition import (
    TaintNodesByCondition,
)
from kvstack.apiserver.policy.admission.policies.mutating import MutatingAdmissionPolicy
from kvstack.apiserver.policy.admission.policies.parameters import FindKind
from kvstack.apiserver.policy.admission.policies.validating import ValidatingAdmissionPolicy
from kvstack.apiserver.policy.admission.webhooks.plugins import (
    MutatingAdmissionWebhook,
    ValidatingAdmissionWebhook,
    WebhookParts,
)
from kvstack.apiserver.policy.interfaces import Authorizer, LiveObjects, ObjectView, Reviewer
from kvstack.component.clock import Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """What plugins need."""

    view: ObjectView
    live: LiveObjects
    clock: Clock
    authorizer: Authorizer
    new_name: Callable[[str], str]
    """Returns a prefix with a random suffix, as for generated names."""
    make_namespace: MakeNamespace
    resources_of: KindMapping
    """Returns the served resources of a kind."""
    webhooks: WebhookParts
    find_kind: FindKind
    """Returns the resource of a kind, for parameters of policies."""
    metrics: AdmissionMetrics
    settings: AdmissionSettings = field(default_factory=AdmissionSettings)
    image_reviewer: Reviewer | None = None
    """The reviewer of ImagePolicyWebhook; None: the plugin cannot be enabled."""


ORDER: Final = (
    "AlwaysAdmit",
    "NamespaceAutoProvision",
    "NamespaceLifecycle",
    "NamespaceExists",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "AlwaysPullImages",
    "ImagePolicyWebhook",
    "PodSecurity",
    "PodNodeSelector",
    "Priority",
    "DefaultTolerationSeconds",
    "PodTolerationRestriction",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PodGroupProtection",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    "PodTopologyLabels",
    "NodeDeclaredFeatureValidator",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
    "AlwaysDeny",
)
"""All plugins that flags may name."""

_DEFAULT: Final[Mapping[str, Callable[[Parts], Plugin]]] = {
    "NamespaceLifecycle": lambda parts: NamespaceLifecycle(
        parts.view, parts.live, parts.clock, parts.settings.immortal_namespaces
    ),
    "LimitRanger": lambda parts: LimitRanger(parts.view, parts.live, parts.clock),
    "ServiceAccount": lambda parts: ServiceAccount(parts.view, parts.live, parts.new_name),
    "TaintNodesByCondition": lambda _parts: TaintNodesByCondition(),
    "PodSecurity": lambda parts: PodSecurity(
        parts.view,
        parts.clock,
        parts.settings.pod_security,
        parts.settings.pod_security_exemptions,
    ),
    "Priority": lambda parts: Priority(parts.view),
    "DefaultTolerationSeconds": lambda parts: DefaultTolerationSeconds(
        parts.settings.not_ready_seconds, parts.settings.unreachable_seconds
    ),
    "DefaultStorageClass": lambda parts: default_class.DefaultStorageClass(parts.view),
    "StorageObjectInUseProtection": lambda _parts: StorageObjectInUseProtection(),
    "PersistentVolumeClaimResize": lambda parts: PersistentVolumeClaimResize(parts.view),
    "RuntimeClass": lambda parts: RuntimeClass(parts.view, parts.live),
    "CertificateApproval": lambda parts: certificates.CertificateApproval(parts.authorizer),
    "CertificateSigning": lambda parts: certificates.CertificateSigning(parts.authorizer),
    "ClusterTrustBundleAttest": lambda parts: certificates.ClusterTrustBundleAttest(
        parts.authorizer
    ),
    "CertificateSubjectRestriction": lambda _parts: certificates.CertificateSubjectRestriction(),
    "DefaultIngressClass": lambda parts: default_class.DefaultIngressClass(parts.view),
    "PodTopologyLabels": lambda parts: PodTopologyLabels(parts.view),
    "NodeDeclaredFeatureValidator": lambda parts: NodeDeclaredFeatureValidator(parts.view),
    "PodResizeValidator": lambda parts: PodResizeValidator(parts.view),
    "ResourceQuota": lambda parts: ResourceQuota(
        parts.view, parts.live, parts.clock, parts.settings.limited_resources
    ),
    "MutatingAdmissionPolicy": lambda parts: MutatingAdmissionPolicy(
        parts.view,
        parts.live,
        parts.authorizer,
        parts.find_kind,
        parts.metrics.mutating,
        parts.webhooks.manifests,
    ),
    "ValidatingAdmissionPolicy": lambda parts: ValidatingAdmissionPolicy(
        parts.view,
        parts.live,
        parts.authorizer,
        parts.find_kind,
        parts.metrics.validating,
        parts.webhooks.manifests,
    ),
    "MutatingAdmissionWebhook": lambda parts: MutatingAdmissionWebhook(parts.webhooks),
    "ValidatingAdmissionWebhook": lambda parts: ValidatingAdmissionWebhook(parts.webhooks),
}


def _image_policy(parts: Parts) -> ImagePolicyWebhook:
    settings = parts.settings.image_policy
    if settings is None or parts.image_reviewer is None:
        raise ValueError("ImagePolicyWebhook: no config specified")
    return ImagePolicyWebhook(parts.image_reviewer, settings, parts.clock)


_OPTIONAL: Final[Mapping[str, Callable[[Parts], Plugin]]] = {
    "AlwaysAdmit": lambda _parts: AlwaysAdmit(),
    "NamespaceAutoProvision": lambda parts: NamespaceAutoProvision(
        parts.view, parts.make_namespace
    ),
    "NamespaceExists": lambda parts: NamespaceExists(parts.view, parts.live),
    "LimitPodHardAntiAffinityTopology": lambda _parts: LimitPodHardAntiAffinityTopology(),
    "NodeRestriction": lambda parts: NodeRestriction(parts.view, parts.authorizer),
    "AlwaysPullImages": lambda _parts: AlwaysPullImages(),
    "ImagePolicyWebhook": _image_policy,
    "PodNodeSelector": lambda parts: PodNodeSelector(
        parts.view, parts.live, parts.settings.node_selectors
    ),
    "PodTolerationRestriction": lambda parts: PodTolerationRestriction(
        parts.view,
        parts.live,
        parts.settings.default_tolerations,
        parts.settings.allowed_tolerations,
    ),
    "EventRateLimit": lambda parts: EventRateLimit(parts.settings.event_limits, parts.clock),
    "ExtendedResourceToleration": lambda _parts: ExtendedResourceToleration(),
    "OwnerReferencesPermissionEnforcement": lambda parts: OwnerReferencesPermissionEnforcement(
        parts.authorizer, parts.resources_of
    ),
    "DenyServiceExternalIPs": lambda _parts: DenyServiceExternalIPs(),
    "AlwaysDeny": lambda _parts: AlwaysDeny(),
}
_MAKERS: Final = {**_DEFAULT, **_OPTIONAL}
BUILT: Final = frozenset(_MAKERS)
"""The implemented plugins."""
ON_BY_DEFAULT: Final = frozenset(_DEFAULT)
"""Plugins that are enabled by default."""


def admission_chain(
    parts: Parts,
    enabled: Collection[str] = (),
    disabled: Collection[str] = (),
    after_mutation: Collection[Plugin] = (),
) -> AdmissionChain:
    """Return the enabled plugins; ValueError: one is unknown, or both enabled and disabled.

    after_mutation: called after all mutating plugins.
    """
    for name in (*enabled, *disabled):
        if name not in _MAKERS:
            flag = "enable" if name in enabled else "disable"
            raise ValueError(f'{flag}-admission-plugins plugin "{name}" is unknown')
    both = [name for name in enabled if name in disabled]
    if both:
        raise ValueError(
            f"[{' '.join(both)}] in enable-admission-plugins and"
            " disable-admission-plugins overlapped"
        )
    wanted = (ON_BY_DEFAULT | set(enabled)) - set(disabled)
    plugins = [_MAKERS[name](parts) for name in ORDER if name in wanted]
    return AdmissionChain([*plugins, *after_mutation])
