"""The webhooks of all configurations, compiled, in the order in which they are called.

    hooks = Hooks(view, VALIDATING)
    for hook, place in hooks.concerned(request): …     those whose rules and selectors match

Configurations are ordered by name, webhooks as they stand there. They are compiled when a
configuration changes. Which rules match a kind of request is found out once for its operation,
resource and version.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.apiserver.kinds.admission.resource_rules import EXCLUDED
from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.objects.labels import NOTHING, Selector, SelectorError, from_object
from kvstack.apiserver.policy.admission.manifests import Manifests
from kvstack.apiserver.policy.admission.matching import Rules, is_namespaced
from kvstack.apiserver.policy.admission.request import AdmissionRequest, Obj, Place
from kvstack.apiserver.policy.ports import Change, ObjectView
from kvstack.apiserver.webhooks.admission_reviews import known_version
from kvstack.apiserver.webhooks.places import Place as Address
from kvstack.apiserver.webhooks.places import place_of

GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = GroupResource(GROUP, "mutatingwebhookconfigurations")
VALIDATING: Final = GroupResource(GROUP, "validatingwebhookconfigurations")
_OWN: Final = frozenset(
    GroupResource(GROUP, each)
    for each in (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    )
)
_FOUND_MAX: Final = 4096
_TIMEOUT_S: Final = 10
_SAFE_ON_DRY_RUN: Final = frozenset(("None", "NoneOnDryRun"))


def is_exempt(resource: GroupResource, *, has_static: bool = False) -> bool:
    """Tell whether no webhook is asked about a resource, so that a cluster can always be mended.

    has_static: whether there may be webhooks of files, which are asked about webhooks, too.
    """
    is_own = resource in _OWN and not has_static
    return is_own or (resource.group, resource.resource) in EXCLUDED


class Hook(NamedTuple):
    """One webhook."""

    name: str
    configuration: str
    position: int
    """Among all webhooks of its type."""
    address: Address
    fault: str
    """Why it cannot be called at all; empty: it can."""
    review_version: str
    """Empty: it takes no reviews that we know."""
    timeout_s: int
    ignores_failure: bool
    is_reinvoked: bool
    is_safe_on_dry_run: bool
    rules: Rules
    namespaces: Selector
    objects: Selector
    conditions: tuple[Obj, ...]
    is_static: bool = False
    """Whether it stands in a file."""


class Concerned(NamedTuple):
    """A webhook whose rules match, and the version in which it is shown the object."""

    hook: Hook
    place: Place


class Hooks:
    """All webhooks of one type."""

    def __init__(
        self, view: ObjectView, resource: GroupResource, manifests: Manifests | None = None
    ) -> None:
        """Follow the configurations of the view, and of files, from the first request on."""
        self._view: Final = view
        self._manifests: Final = manifests or Manifests()
        self._resource: Final = resource
        self._hooks: list[Hook] | None = None
        self._found: dict[tuple[object, ...], list[Concerned]] = {}
        self._follows = False

    def concerned(self, request: AdmissionRequest) -> Sequence[Concerned]:
        """Return the webhooks whose rules match a request, in their order."""
        hooks = self._hooks
        if hooks is None:
            hooks = self._compile()
        versions = request.versions
        if not hooks or versions is None:
            return ()
        has_namespace = is_namespaced(request)
        key = (request.operation, versions, request.subresource, has_namespace)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _FOUND_MAX:
                self._found.clear()
            found = []
            is_own = request.resource in _OWN
            for each in hooks:
                if is_own and not each.is_static:
                    continue
                place = each.rules.place(
                    request.operation,
                    versions.places,
                    request.subresource,
                    is_namespaced=has_namespace,
                )
                if place is not None:
                    found.append(Concerned(each, place))
            self._found[key] = found
        return found

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


def _hook(configuration: str, webhook: Obj, position: int) -> Hook:
    address, fault = Address(""), ""
    try:
        address = place_of(webhook.get("clientConfig") or {})
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
        address,
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


def _selector(given: Obj | None) -> Selector:
    try:
        return from_object(given)
    except SelectorError:
        return NOTHING  # validation lets none through; what others stored selects nothing
