"""`--admission-control-config-file`: the configuration of admission plugins.

    kind: AdmissionConfiguration
    plugins:
    - {name: PodSecurity, configuration: {kind: PodSecurityConfiguration, defaults: …}}
    - {name: EventRateLimit, path: eventconfig.yaml}

    read_configuration(data, read_file) → AdmissionSettings with the parts that were given

The caller reads files that the configuration names; nothing is read here. The unversioned
configuration file of PodNodeSelector is accepted too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.text import config_document
from kvstack.apimachinery.objects.text.config_document import Document, DocumentError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.admission.plugins.default_toleration_seconds import SECONDS
from kvstack.apiserver.policy.admission.plugins.namespace_lifecycle import IMMORTAL
from kvstack.apiserver.policy.admission.plugins.optional.event_rate_limit import (
    CACHE_SIZE,
    LIMIT_TYPES,
    EventLimit,
)
from kvstack.apiserver.policy.admission.plugins.optional.image_policy_webhook import (
    ImagePolicySettings,
)
from kvstack.apiserver.policy.admission.plugins.pod_security import NO_EXEMPTIONS, Exemptions
from kvstack.apiserver.policy.pod_security.standards import (
    DEFAULT_POLICY,
    LEVELS,
    PRIVILEGED,
    Policy,
    Standard,
    minor_of,
)
from kvstack.apiserver.policy.quota.limited import LimitedResource
from kvstack.component.units import MILLISECOND_NS, SECOND_NS

ReadFile: TypeAlias = Callable[[str], bytes]
"""Returns the contents of a file that the configuration names; raises DocumentError."""

_CONFIGURATION: Final = {
    (f"apiserver.config.k8s.io/{version}", "AdmissionConfiguration") for version in ("v1",)
} | {("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration")}
_SELECTORS: Final = "podNodeSelectorPluginConfig"


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Admission settings of flags and configuration files."""

    not_ready_seconds: int = SECONDS
    unreachable_seconds: int = SECONDS
    immortal_namespaces: frozenset[str] = IMMORTAL
    pod_security: Policy = DEFAULT_POLICY
    pod_security_exemptions: Exemptions = NO_EXEMPTIONS
    node_selectors: Mapping[str, str] = field(default_factory=dict)
    """Node selectors by namespace; see PodNodeSelector."""
    default_tolerations: tuple[dict[str, Any], ...] = ()
    allowed_tolerations: tuple[dict[str, Any], ...] = ()
    event_limits: tuple[EventLimit, ...] = ()
    limited_resources: tuple[LimitedResource, ...] = ()
    image_policy: ImagePolicySettings | None = None
    """None: the plugin ImagePolicyWebhook cannot be used."""
    manifest_folders: Mapping[str, str] = field(default_factory=dict)
    """Manifest directories of webhooks and policies, by plugin."""


def read_configuration(
    data: bytes, read_file: ReadFile, settings: AdmissionSettings
) -> AdmissionSettings:
    """Return settings with what a configuration says; raises DocumentError."""
    document = config_document.plain(data)
    if _SELECTORS in document:
        return _with_node_selectors(settings, document)
    config_document.checked(document, _CONFIGURATION)
    seen: set[str] = set()
    for entry in document.items("plugins"):
        name = entry.text("name")
        configuration = _own(entry, read_file)
        entry.close()
        if configuration is None or name in seen:  # the first one counts
            continue
        seen.add(name)
        reader = _READERS.get(name)
        if reader is None:
            continue  # configurations of other plugins are ignored, as upstream
        try:
            settings = reader(settings, configuration)
            configuration.close()
        except DocumentError as error:
            raise DocumentError(f"configuration of {name}: {error}") from None
    document.close()
    return settings


def _own(entry: Document, read_file: ReadFile) -> Document | None:
    """Return the configuration of one plugin; None: it has none."""
    path, value = entry.text("path"), entry.plain("configuration")
    if value is not None:
        return Document(value)
    return config_document.plain(read_file(path)) if path else None


def _with_node_selectors(settings: AdmissionSettings, document: Document) -> AdmissionSettings:
    own = document.item(_SELECTORS)
    selectors = {} if own is None else {name: own.text(name) for name in own.names()}
    return replace(settings, node_selectors=selectors)


def _with_pod_security(settings: AdmissionSettings, document: Document) -> AdmissionSettings:
    versions = ("v1", "v1beta1", "v1alpha1")
    group = "pod-security.admission.config.k8s.io"
    config_document.checked(
        document, {(f"{group}/{version}", "PodSecurityConfiguration") for version in versions}
    )
    policy, exemptions = settings.pod_security, settings.pod_security_exemptions
    defaults = document.item("defaults")
    if defaults is not None:
        policy = Policy(*(_standard(defaults, mode) for mode in Policy._fields))
        defaults.close()
    exempt = document.item("exemptions")
    if exempt is not None:
        exemptions = Exemptions(
            frozenset(exempt.texts("namespaces")),
            frozenset(exempt.texts("usernames")),
            frozenset(exempt.texts("runtimeClasses")),
        )
        exempt.close()
    return replace(settings, pod_security=policy, pod_security_exemptions=exemptions)


def _standard(defaults: Document, mode: str) -> Standard:
    level = defaults.text(mode) or PRIVILEGED
    if level not in LEVELS:
        raise DocumentError(
            f"{defaults.at(mode)}: Invalid value: {quote(level)}: must be one of"
            f" {', '.join(LEVELS)}"
        )
    name = f"{mode}-version"
    version = defaults.text(name) or "latest"
    minor = minor_of(version)
    if minor is None:
        raise DocumentError(
            f'{defaults.at(name)}: Invalid value: {quote(version)}: must be "latest" or "v1.x"'
        )
    return Standard(level, minor)


def _with_event_limits(settings: AdmissionSettings, document: Document) -> AdmissionSettings:
    kind = ("eventratelimit.admission.k8s.io/v1alpha1", "Configuration")
    config_document.checked(document, {kind})
    limits = tuple(map(_event_limit, document.items("limits")))
    if not limits:
        raise DocumentError("limits: Invalid value: null: must not be empty")
    return replace(settings, event_limits=limits)


def _event_limit(item: Document) -> EventLimit:
    limit = EventLimit(
        item.text("type"),
        item.whole("qps"),
        item.whole("burst"),
        item.whole("cacheSize") or CACHE_SIZE,
    )
    item.close()
    if limit.type not in LIMIT_TYPES:
        supported = ", ".join(quote(each) for each in sorted(LIMIT_TYPES))
        raise DocumentError(
            f"{item.at('type')}: Unsupported value: {quote(limit.type)}: supported values:"
            f" {supported}"
        )
    for name, value in (("burst", limit.burst), ("qps", limit.qps)):
        if value <= 0:
            raise DocumentError(f"{item.at(name)}: Invalid value: {value}: must be positive")
    if limit.type != "Server" and limit.cache_size < 0:
        path = item.at("cacheSize")
        raise DocumentError(f"{path}: Invalid value: {limit.cache_size}: must not be negative")
    return limit


def _with_tolerations(settings: AdmissionSettings, document: Document) -> AdmissionSettings:
    kind = ("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration")
    config_document.checked(document, {kind})
    return replace(
        settings,
        default_tolerations=tuple(map(_toleration, document.items("default"))),
        allowed_tolerations=tuple(map(_toleration, document.items("whitelist"))),
    )


def _toleration(item: Document) -> dict[str, Any]:
    toleration: dict[str, Any] = {}
    for name in ("key", "operator", "value", "effect"):
        if name in item:
            toleration[name] = item.text(name)
    if "tolerationSeconds" in item:
        toleration["tolerationSeconds"] = item.whole("tolerationSeconds")
    item.close()
    return toleration


def _with_limited_resources(settings: AdmissionSettings, document: Document) -> AdmissionSettings:
    kinds = {("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration")} | {
        (f"resourcequota.admission.k8s.io/{version}", "Configuration")
        for version in ("v1alpha1", "v1beta1")
    }
    config_document.checked(document, kinds)
    limited = tuple(map(_limited_resource, document.items("limitedResources")))
    return replace(settings, limited_resources=limited)


def _limited_resource(item: Document) -> LimitedResource:
    if not item.text("resource"):
        raise DocumentError(f"{item.at('resource')}: Required value")
    limited_resource = LimitedResource(
        GroupResource(item.text("apiGroup"), item.text("resource")),
        item.texts("matchContains"),
        tuple(map(_scope, item.items("matchScopes"))),
    )
    item.close()
    return limited_resource


def _scope(item: Document) -> dict[str, Any]:
    scope = {
        "scopeName": item.text("scopeName"),
        "operator": item.text("operator"),
        "values": list(item.texts("values")),
    }
    item.close()
    return scope


def _with_image_policy(settings: AdmissionSettings, document: Document) -> AdmissionSettings:
    policy_document = document.item("imagePolicy") or Document({}, "imagePolicy")
    policy = ImagePolicySettings(
        policy_document.text("kubeConfigFile"),
        _span_ns(policy_document, "allowTTL", SECOND_NS, SECOND_NS, 300 * SECOND_NS),
        _span_ns(policy_document, "denyTTL", SECOND_NS, SECOND_NS, 30 * SECOND_NS),
        _span_ns(policy_document, "retryBackoff", MILLISECOND_NS, 1, SECOND_NS // 2) / SECOND_NS,
        policy_document.flag("defaultAllow"),
    )
    policy_document.close()
    if not policy.kubeconfig:
        raise DocumentError(f"{policy_document.at('kubeConfigFile')}: Required value")
    return replace(settings, image_policy=policy)


def _with_folder(
    plugin: str, kinds: frozenset[tuple[str, str]]
) -> Callable[[AdmissionSettings, Document], AdmissionSettings]:
    """Return a reader of a plugin's manifest directory."""

    def read(settings: AdmissionSettings, document: Document) -> AdmissionSettings:
        config_document.checked(document, kinds)
        if document.text("kubeConfigFile"):
            raise DocumentError("kubeConfigFile: credentials for webhooks are not supported")
        folder = document.text("staticManifestsDir")
        if not folder:
            return settings
        if not folder.startswith("/"):
            raise DocumentError(
                f"staticManifestsDir: Invalid value: {quote(folder)}: must be an absolute file path"
            )
        folders = {**settings.manifest_folders, plugin: folder}
        return replace(settings, manifest_folders=folders)

    return read


_WEBHOOKS: Final = frozenset(
    {
        ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"),
        ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"),
    }
)


def _span_ns(item: Document, name: str, unit_ns: int, least_ns: int, default_ns: int) -> int:
    """Return a duration in nanoseconds; -1 is none, and 0 the default."""
    number = item.whole(name)
    if number in (0, -1):
        return 0 if number else default_ns
    most_ns = (1800 if unit_ns == SECOND_NS else 300) * SECOND_NS
    if not least_ns <= number * unit_ns <= most_ns:
        raise DocumentError(
            f"{item.at(name)}: Invalid value: {number}: must be -1, 0,"
            f" or up to {most_ns // unit_ns}"
        )
    return number * unit_ns


_READERS: Final[Mapping[str, Callable[[AdmissionSettings, Document], AdmissionSettings]]] = {
    "EventRateLimit": _with_event_limits,
    "ImagePolicyWebhook": _with_image_policy,
    "MutatingAdmissionPolicy": _with_folder(
        "MutatingAdmissionPolicy",
        frozenset({("apiserver.config.k8s.io/v1", "MutatingAdmissionPolicyConfiguration")}),
    ),
    "ValidatingAdmissionPolicy": _with_folder(
        "ValidatingAdmissionPolicy",
        frozenset({("apiserver.config.k8s.io/v1", "ValidatingAdmissionPolicyConfiguration")}),
    ),
    "MutatingAdmissionWebhook": _with_folder("MutatingAdmissionWebhook", _WEBHOOKS),
    "ValidatingAdmissionWebhook": _with_folder("ValidatingAdmissionWebhook", _WEBHOOKS),
    "PodNodeSelector": _with_node_selectors,
    "PodSecurity": _with_pod_security,
    "PodTolerationRestriction": _with_tolerations,
    "ResourceQuota": _with_limited_resources,
}
