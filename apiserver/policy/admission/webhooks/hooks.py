"""The webhooks of all configurations, compiled, in the order of calls.

    hooks = Hooks(view, VALIDATING)
    for hook, versioned in hooks.concerned(request): …     those whose rules and selectors match

Configurations are ordered by name, webhooks as listed. They are compiled when a configuration
changes. Which rules match is computed once per operation, resource and version.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import NOTHING, Selector, SelectorError, from_object
from kvstack.apiserver.policy.admission.exemption import CONFIGURATIONS, GROUP
from kvstack.apiserver.policy.admission.manifests import Manifests
from kvstack.apiserver.policy.admission.matching import Rules, is_namespaced
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.interfaces import Change, ObjectView
from kvstack.apiserver.webhooks.admission_reviews import known_version
from kvstack.apiserver.webhooks.client_config import ClientConfig, read_client_config
from kvstack.component.certs.ca_bundles import certificates_of

MUTATING: Final = GroupResource(GROUP, "mutatingwebhookconfigurations")
VALIDATING: Final = GroupResource(GROUP, "validatingwebhookconfigurations")
_FOUND_MAX: Final = 4096
_TIMEOUT_S: Final = 10
_SAFE_ON_DRY_RUN: Final = frozenset(("None", "NoneOnDryRun"))


class Hook(NamedTuple):
    """One webhook."""

    name: str
    configuration: str
    position: int
    """Index among all webhooks of its type."""
    client_config: ClientConfig
    fault: str
    """Why it cannot be called at all; empty: it can."""
    review_version: str
    """Empty: it supports no known version of reviews."""
    timeout_s: int
    ignores_failure: bool
    is_reinvoked: bool
    is_safe_on_dry_run: bool
    rules: Rules
    namespaces: Selector
    objects: Selector
    conditions: tuple[Object, ...]
    is_static: bool = False
    """Whether it is from a manifest file."""


class Concerned(NamedTuple):
    """A webhook whose rules match, and the version in which it sees the object."""

    hook: Hook
    versioned: VersionedResource


class Hooks:
    """All webhooks of one type."""

    def __init__(
        self, view: ObjectView, resource: GroupResource, manifests: Manifests | None = None
    ) -> None:
        self._view: Final = view
        self._manifests: Final = manifests or Manifests()
        self._resource: Final = resource
        self._hooks: list[Hook] | None = None
        self._found: dict[tuple[object, ...], list[Concerned]] = {}
        self._follows = False

    def concerned(self, request: AdmissionRequest) -> Sequence[Concerned]:
        """Return the webhooks whose rules match a request, in order."""
        hooks = self._hooks
        if hooks is None:
            hooks = self._compile()
        versions = request.versions
        if not hooks or versions is None:
            return ()
        has_namespace = is_namespaced(request)
        key = (request.operation, versions, request.subresource, has_namespace)
        matching = self._found.get(key)
        if matching is None:
            if len(self._found) >= _FOUND_MAX:
                self._found.clear()
            matching = []
            is_own = request.resource in CONFIGURATIONS
            for each in hooks:
                if is_own and not each.is_static:
                    continue
                versioned = each.rules.resource_for(
                    request.operation,
                    versions.served,
                    request.subresource,
                    is_namespaced=has_namespace,
                )
                if versioned is not None:
                    matching.append(Concerned(each, versioned))
            self._found[key] = matching
        return matching

    def _compile(self) -> list[Hook]:
        if not self._follows:
            self._follows = True
            self._view.subscribe(self._resource, self._changed)
            self._manifests.subscribe(self._resource, self._changed)
        self._found.clear()
        hooks: list[Hook] = []
        for configurations, is_static in (
            (self._manifests.list(self._resource), True),
            (self._view.list(self._resource), False),
        ):
            for configuration in configurations:
                name = configuration["metadata"]["name"]
                for each in configuration.get("webhooks") or ():
                    hook = _hook(name, each, len(hooks))
                    hooks.append(hook._replace(is_static=is_static))
        self._hooks = hooks
        return hooks

    def _changed(self, _changes: Sequence[Change] = ()) -> None:
        self._hooks = None


def _hook(configuration: str, webhook: Object, position: int) -> Hook:
    client_config, fault = ClientConfig(""), ""
    try:
        client_config = read_client_config(webhook.get("clientConfig") or {})
        if client_config.ca:
            certificates_of(client_config.ca)
    except ValueError as error:
        fault = f"could not get REST client: {error}"
    review_version = known_version(webhook.get("admissionReviewVersions") or ())
    if not review_version:
        fault = (
            "could not create admission objects: webhook does not accept known AdmissionReview"
            " versions (v1, v1beta1)"
        )
    return Hook(
        webhook.get("name", ""),
        configuration,
        position,
        client_config,
        fault,
        review_version,
        webhook.get("timeoutSeconds") or _TIMEOUT_S,
        webhook.get("failurePolicy") == "Ignore",
        webhook.get("reinvocationPolicy") == "IfNeeded",
        webhook.get("sideEffects") in _SAFE_ON_DRY_RUN,
        Rules(webhook.get("rules") or (), webhook.get("matchPolicy") or ""),
        _selector(webhook.get("namespaceSelector")),
        _selector(webhook.get("objectSelector")),
        tuple(webhook.get("matchConditions") or ()),
    )


def _selector(given: Object | None) -> Selector:
    try:
        return from_object(given)
    except SelectorError:
        return NOTHING  # validation admits none; one that was stored otherwise selects nothing
