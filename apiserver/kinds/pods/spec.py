"""Validation of pod specs, in the order of errors.

    check_spec(SpecScope(spec, "spec.template.spec", errors, …))

The parts have modules of their own; this one has their order, and the checks of the whole spec:
hostnames, DNS, host namespaces.
"""

from typing import Final

from kvstack.apimachinery.objects.addresses import validate_legacy_ip
from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    index,
    invalid,
    required,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate_labels
from kvstack.apimachinery.objects.names import (
    check_dns_label,
    check_dns_subdomain,
    check_dns_subdomain_with_underscore,
    length,
    name_is_dns_subdomain,
)
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.schema.load import enum_in_order
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.containers.environment import check_file_key_volumes
from kvstack.apiserver.kinds.pods.containers.validation import (
    check_containers,
    check_ephemeral_containers,
    check_init_containers,
)
from kvstack.apiserver.kinds.pods.resources import check_overhead, check_pod_resources
from kvstack.apiserver.kinds.pods.scheduling import (
    check_affinity,
    check_gates,
    check_resource_claims,
    check_scheduling_group,
    check_spread,
    check_tolerations,
)
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.security.contexts import check_pod_security
from kvstack.apiserver.kinds.pods.security.windows import check_host_process, check_os
from kvstack.apiserver.kinds.pods.volumes import check_volumes
from kvstack.apiserver.kinds.rules import (
    Errors,
    Rule,
    add_invalid,
    all_of,
    formatted,
    in_range,
    needs_one_of,
    one_of,
)

_SPEC: Final = "io.k8s.api.core.v1.PodSpec"
RESTART_POLICIES: Final = enum_in_order(_SPEC, "restartPolicy", "Always", "OnFailure", "Never")
DNS_POLICIES: Final = enum_in_order(
    _SPEC, "dnsPolicy", "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"
)
PREEMPTION_POLICIES: Final = enum_in_order(
    _SPEC, "preemptionPolicy", "PreemptLowerPriority", "Never"
)
NAMESERVERS_MAX: Final = 3
SEARCH_PATHS_MAX: Final = 32
SEARCH_CHARACTERS_MAX: Final = 2048
HOSTNAME_OVERRIDE_MAX: Final = 64
INT32_MAX: Final = 2**31 - 1

_IN_USER_NAMESPACE: Final = "when `hostUsers` is false"


def check_spec(scope: SpecScope) -> None:
    """Check the whole spec."""
    spec, path, errors = scope.spec, scope.path, scope.errors
    if spec.get("terminationGracePeriodSeconds") is None:
        errors.append(required(child(path, "terminationGracePeriodSeconds")))
    check_volumes(scope)
    check_resource_claims(scope)
    check_containers(scope)
    check_init_containers(scope)
    check_ephemeral_containers(scope)
    check_pod_resources(scope)
    _check_host_ports(scope)
    _policies(spec, path, errors)
    selector = spec.get("nodeSelector")
    if selector:
        errors += validate_labels(child(path, "nodeSelector"), selector)
    check_pod_security(scope)
    _check_process_namespace(scope)
    _check_pull_secrets(scope)
    check_affinity(scope)
    _check_dns_config(scope)
    check_gates(scope)
    check_spread(scope)
    check_host_process(scope)
    _check_user_namespace(scope)
    _check_hostname_override(scope)
    _check_service_account(scope)
    _identities(spec, path, errors)
    check_tolerations(scope)
    _check_host_aliases(scope)
    _classes(spec, path, errors)
    check_overhead(scope)
    check_os(scope)
    check_scheduling_group(scope)
    check_file_key_volumes(scope)


def _check_host_ports(scope: SpecScope) -> None:
    spec = scope.spec
    if not spec.get("hostNetwork"):
        return
    list_path = child(scope.path, "containers")
    message = "must match `containerPort` when `hostNetwork` is true"
    for position, container in enumerate(spec.get("containers") or ()):
        ports_path = child(index(list_path, position), "ports")
        for number, port in enumerate(container.get("ports") or ()):
            host_port, container_port = port.get("hostPort", 0), port.get("containerPort", 0)
            # Templates may omit the port; pods get it by default.
            if (scope.is_pod or host_port) and host_port != container_port:
                port_path = child(index(ports_path, number), "hostPort")
                scope.errors.append(invalid(port_path, host_port, message))


def _check_process_namespace(scope: SpecScope) -> None:
    if scope.spec.get("shareProcessNamespace") and scope.spec.get("hostPID"):
        message = "ShareProcessNamespace and HostPID cannot both be enabled"
        path = child(scope.path, "shareProcessNamespace")
        scope.errors.append(invalid(path, True, message))


def _check_pull_secrets(scope: SpecScope) -> None:
    path = child(scope.path, "imagePullSecrets")
    for position, secret in enumerate(scope.spec.get("imagePullSecrets") or ()):
        if secret.keys() - {"name"}:
            shown = internal_value(secret, "io.k8s.api.core.v1.LocalObjectReference")
            scope.errors.append(invalid(index(path, position), shown, "only name may be set"))


def _check_dns_config(scope: SpecScope) -> None:
    config = scope.spec.get("dnsConfig")
    path = child(scope.path, "dnsConfig")
    errors = scope.errors
    if scope.spec.get("dnsPolicy") == "None":
        if config is None:
            message = "must provide `dnsConfig` when `dnsPolicy` is None"
            errors.append(required(path, message))
            return
        if not config.get("nameservers"):
            message = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errors.append(required(child(path, "nameservers"), message))
            return
    if config is None:
        return
    _check_nameservers(errors, config.get("nameservers") or [], child(path, "nameservers"))
    _check_searches(errors, config.get("searches") or [], child(path, "searches"))
    options_path = child(path, "options")
    for position, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(index(options_path, position), "must not be empty"))


def _check_nameservers(errors: Errors, servers: list[str], path: str) -> None:
    if len(servers) > NAMESERVERS_MAX:
        message = f"must not have more than {NAMESERVERS_MAX} nameservers"
        errors.append(invalid(path, servers, message))
    for position, server in enumerate(servers):
        errors += validate_legacy_ip(index(path, position), server)


def _check_searches(errors: Errors, searches: list[str], path: str) -> None:
    if len(searches) > SEARCH_PATHS_MAX:
        message = f"must not have more than {SEARCH_PATHS_MAX} search paths"
        errors.append(invalid(path, searches, message))
    if length(" ".join(searches)) > SEARCH_CHARACTERS_MAX:
        message = (
            f"must not have more than {SEARCH_CHARACTERS_MAX} characters (including spaces) in the"
            " search list"
        )
        errors.append(invalid(path, searches, message))
    for position, search in enumerate(searches):
        if search != ".":
            name = search.removesuffix(".")
            wrong = check_dns_subdomain_with_underscore(name)
            add_invalid(errors, index(path, position), name, wrong)


def _check_user_namespace(scope: SpecScope) -> None:
    if scope.uses_host_users:
        return
    spec, path, errors = scope.spec, scope.path, scope.errors
    tolerances = scope.tolerances
    if spec.get("hostNetwork") and not tolerances.user_namespace_host_network:
        errors.append(forbidden(child(path, "hostNetwork"), _IN_USER_NAMESPACE))
    errors.extend(
        forbidden(child(path, shown), _IN_USER_NAMESPACE)
        for name, shown in (("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
        if spec.get(name)
    )
    if not tolerances.user_namespace_devices:
        errors.extend(
            forbidden(child(container_path, "volumeDevices"), _IN_USER_NAMESPACE)
            for container, container_path in scope.containers()
            if container.get("volumeDevices")
        )


def _check_hostname_override(scope: SpecScope) -> None:
    spec, errors = scope.spec, scope.errors
    name = spec.get("hostnameOverride")
    if name is None:
        return
    path = child(scope.path, "hostnameOverride")
    if spec.get("setHostnameAsFQDN"):
        message = "may not be specified when setHostnameAsFQDN is true"
        errors.append(forbidden(path, message))
    if spec.get("hostNetwork"):
        errors.append(forbidden(path, "may not be specified when hostNetwork is true"))
    if length(name) > HOSTNAME_OVERRIDE_MAX:
        errors.append(too_long(path, HOSTNAME_OVERRIDE_MAX))
    add_invalid(errors, path, name, check_dns_subdomain(name))


def _check_service_account(scope: SpecScope) -> None:
    spec, path, errors = scope.spec, scope.path, scope.errors
    name, older = spec.get("serviceAccountName", ""), spec.get("serviceAccount", "")
    if name:
        wrong = name_is_dns_subdomain(name, False)
        add_invalid(errors, child(path, "serviceAccountName"), name, wrong)
    if older != name:
        message = f"must be the same as serviceAccountName: {quote(name)}"
        errors.append(invalid(child(path, "deprecatedServiceAccount"), older, message))


def _check_host_aliases(scope: SpecScope) -> None:
    path = child(scope.path, "hostAliases")
    for position, alias in enumerate(scope.spec.get("hostAliases") or ()):
        alias_path = index(path, position)
        scope.errors += validate_legacy_ip(child(alias_path, "ip"), alias.get("ip", ""))
        names_path = child(alias_path, "hostnames")
        for number, name in enumerate(alias.get("hostnames") or ()):
            wrong = check_dns_subdomain(name)
            add_invalid(scope.errors, index(names_path, number), name, wrong)


def _check_name(name: str) -> list[str]:
    return name_is_dns_subdomain(name, False)


def _check_runtime_class(spec: Object, path: str, errors: Errors) -> None:
    name = spec.get("runtimeClassName")
    if name is not None:
        add_invalid(errors, child(path, "runtimeClassName"), name, _check_name(name))


def _check_preemption(spec: Object, path: str, errors: Errors) -> None:
    policy = spec.get("preemptionPolicy")
    if policy == "":
        errors.append(required(child(path, "preemptionPolicy")))
    else:
        _preemption(spec, path, errors)


_preemption: Final = one_of("preemptionPolicy", PREEMPTION_POLICIES)
_policies: Final[Rule] = all_of(
    needs_one_of("restartPolicy", RESTART_POLICIES), needs_one_of("dnsPolicy", DNS_POLICIES)
)
_identities: Final[Rule] = all_of(
    formatted("nodeName", _check_name),
    in_range("activeDeadlineSeconds", 1, INT32_MAX),
    formatted("hostname", check_dns_label),
    formatted("subdomain", check_dns_label),
)
_classes: Final[Rule] = all_of(
    formatted("priorityClassName", _check_name), _check_runtime_class, _check_preemption
)
