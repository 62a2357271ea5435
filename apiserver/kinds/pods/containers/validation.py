"""Validation of containers: common parts, and regular, init and ephemeral containers.

    initContainers   one after the other; with restartPolicy Always a sidecar that keeps running
    containers       all at once
    ephemeralContainers   added to a running pod to look into it

Names are unique over all three lists. Host ports are unique among the regular containers, and
within each init container.
"""

from typing import Final

from kvstack.apimachinery.objects.core.pod_resources import COMPUTE, is_sidecar
from kvstack.apimachinery.objects.field_errors import (
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_dns_label,
    check_port_name,
    check_port_number,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_in_order, enum_values
from kvstack.apiserver.kinds.pods.containers.environment import check_env, check_env_from
from kvstack.apiserver.kinds.pods.containers.handlers import check_lifecycle, check_probe
from kvstack.apiserver.kinds.pods.containers.mounts import check_devices, check_mounts
from kvstack.apiserver.kinds.pods.resources import check_container_requirements
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.security.contexts import check_container_security
from kvstack.apiserver.kinds.pods.volumes import PULL_POLICIES
from kvstack.apiserver.kinds.rules import (
    Errors,
    add_invalid,
    all_of,
    each,
    needs,
    needs_formatted,
    needs_one_of,
    wrong_choice,
)

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
PROTOCOLS: Final = enum_values("io.k8s.api.core.v1.ContainerPort", "protocol")
RESTART_POLICIES: Final = enum_values("io.k8s.api.core.v1.PodSpec", "restartPolicy")
MESSAGE_POLICIES: Final = enum_in_order(
    "io.k8s.api.core.v1.Container",
    "terminationMessagePolicy",
    "File",
    "FallbackToLogsOnError",
)
EXIT_CODE_OPERATORS: Final = ("In", "NotIn")
RESTART_ACTIONS: Final = ("Restart", "RestartAllContainers")
RESTART_RULES_MAX: Final = 20
EXIT_CODES_MAX: Final = 255

_RESIZE_POLICIES: Final = ("NotRequired", "RestartContainer")
_NOT_FOR_EPHEMERAL: Final = "cannot be set for an Ephemeral Container"
_NOT_EPHEMERAL: Final = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
    "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip
"""Fields that ephemeral containers must not have, in the order of errors."""
_NEEDS_POLICY: Final = "must specify restartPolicy when restart rules are used"
_ONLY_FOR_SIDECARS: Final = "may not be set for init containers without restartPolicy=Always"


def check_containers(scope: SpecScope) -> None:
    """Check the regular containers."""
    containers = scope.spec.get("containers")
    list_path = child(scope.path, "containers")
    if not containers:
        scope.errors.append(required(list_path))
        return
    names: set[str] = set()
    for position, container in enumerate(containers):
        path = index(list_path, position)
        _check_common(scope, container, path)
        _check_unique_name(scope.errors, container, names, path)
        _check_running(scope, container, path)
        _check_restart(scope.errors, container, path)
    _check_host_ports(scope.errors, containers, list_path)


def check_init_containers(scope: SpecScope) -> None:
    """Check the init containers and sidecars."""
    containers = scope.spec.get("initContainers")
    if not containers:
        return
    errors = scope.errors
    list_path = child(scope.path, "initContainers")
    names = {each.get("name", "") for each in scope.spec.get("containers") or ()}
    for position, container in enumerate(containers):
        path = index(list_path, position)
        _check_common(scope, container, path)
        if container.get("restartPolicy") is None and container.get("restartPolicyRules"):
            errors.append(required(child(path, "restartPolicy"), _NEEDS_POLICY))
        else:
            _check_restart(errors, container, path)
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(child(path, "name"), name))
        elif name:
            names.add(name)
        # Upstream reports a conflict within one container at the first of the list.
        _check_host_ports(errors, [container], list_path)
        if is_sidecar(container):
            _check_running(scope, container, path)
        else:
            for field in ("lifecycle", *PROBES):
                if container.get(field) is not None:
                    errors.append(forbidden(child(path, field), _ONLY_FOR_SIDECARS))
            _check_init_resize(scope, container, path)


def check_ephemeral_containers(scope: SpecScope) -> None:
    """Check the ephemeral containers."""
    containers = scope.spec.get("ephemeralContainers")
    if not containers:
        return
    errors = scope.errors
    list_path = child(scope.path, "ephemeralContainers")
    lists = ("containers", "initContainers")
    others = {each.get("name", "") for field in lists for each in scope.spec.get(field) or ()}
    names = set(others)
    for position, container in enumerate(containers):
        path = index(list_path, position)
        _check_common(scope, container, path)
        check_image_spaces(errors, container, path)
        _check_unique_name(errors, container, names, path)
        target = container.get("targetContainerName")
        if target and target not in others:
            errors.append(not_found(child(path, "targetContainerName"), target))
        errors.extend(
            forbidden(child(path, field), _NOT_FOR_EPHEMERAL)
            for field in _NOT_EPHEMERAL
            if container.get(field)
        )
        mounts_path = child(path, "volumeMounts")
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            errors.extend(
                forbidden(child(index(mounts_path, number), field), _NOT_FOR_EPHEMERAL)
                for field in ("subPath", "subPathExpr")
                if mount.get(field)
            )


def check_image_spaces(errors: Errors, container: Object, path: str) -> None:
    """Check for spaces around an image, which only pods refuse and templates tolerate."""
    image: str = container.get("image", "")
    if image != image.strip():
        message = "must not have leading or trailing whitespace"
        errors.append(invalid(child(path, "image"), image, message))


def _check_common(scope: SpecScope, container: Object, path: str) -> None:
    errors = scope.errors
    _identity(container, path, errors)
    _check_ports(errors, container, path)
    _env(container, path, errors)
    sources = container.get("envFrom")
    if sources:
        check_env_from(sources, child(path, "envFrom"), errors)
    check_mounts(scope, container, path)
    check_devices(scope, container, path)
    _pull_policy(container, path, errors)
    resources = container.get("resources")
    if resources:
        check_container_requirements(scope, resources, child(path, "resources"))
    if container.get("resizePolicy"):
        _check_resize(scope, container, child(path, "resizePolicy"))
    check_container_security(scope, container, path)


def _check_running(scope: SpecScope, container: Object, path: str) -> None:
    check_lifecycle(scope, container, path)
    for probe in PROBES:
        check_probe(scope, container, probe, path)


def _check_unique_name(errors: Errors, container: Object, names: set[str], path: str) -> None:
    name = container.get("name", "")
    if name in names:
        errors.append(duplicate(child(path, "name"), name))
    names.add(name)


def _check_ports(errors: Errors, container: Object, path: str) -> None:
    ports = container.get("ports")
    if not ports:
        return
    list_path = child(path, "ports")
    names: set[str] = set()
    for position, port in enumerate(ports):
        item_path = index(list_path, position)
        name = port.get("name")
        if name:
            wrong = check_port_name(name)
            if wrong:
                add_invalid(errors, child(item_path, "name"), name, wrong)
            elif name in names:
                errors.append(duplicate(child(item_path, "name"), name))
            else:
                names.add(name)
        _check_port_number(errors, port, "containerPort", item_path, is_required=True)
        _check_port_number(errors, port, "hostPort", item_path, is_required=False)
        protocol = port.get("protocol")
        if protocol not in PROTOCOLS:
            errors.append(wrong_choice(child(item_path, "protocol"), protocol, PROTOCOLS))


def _check_port_number(
    errors: Errors, port: Object, field: str, path: str, *, is_required: bool
) -> None:
    number = port.get(field, 0)
    if number:
        if wrong := check_port_number(number):
            add_invalid(errors, child(path, field), number, wrong)
    elif is_required:
        errors.append(required(child(path, field)))


def _check_host_ports(errors: Errors, containers: list[Object], list_path: str) -> None:
    taken: set[str] = set()
    for position, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            binding_text = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if binding_text in taken:
                port_path = index(child(index(list_path, position), "ports"), number)
                errors.append(duplicate(child(port_path, "hostPort"), binding_text))
            taken.add(binding_text)


def _check_resize(scope: SpecScope, container: Object, path: str) -> None:
    errors = scope.errors
    names: set[str] = set()
    is_never = scope.spec.get("restartPolicy") == "Never"
    for position, policy in enumerate(container["resizePolicy"]):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in names:
            errors.append(duplicate(index(path, position), JsonText(name)))
        names.add(name)
        if name not in COMPUTE:
            errors.append(wrong_choice(path, name, COMPUTE))
        if restart not in _RESIZE_POLICIES:
            errors.append(wrong_choice(path, restart, _RESIZE_POLICIES))
        if is_never and restart != "NotRequired":
            message = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid(path, JsonText(restart), message))


def _check_init_resize(scope: SpecScope, container: Object, path: str) -> None:
    if scope.tolerances.restarting_init_resize:
        return
    list_path = child(path, "resizePolicy")
    message = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    for position, policy in enumerate(container.get("resizePolicy") or ()):
        if policy.get("restartPolicy") == "RestartContainer":
            policy_path = child(index(list_path, position), "restartPolicy")
            scope.errors.append(invalid(policy_path, JsonText("RestartContainer"), message))


def _check_restart(errors: Errors, container: Object, path: str) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None and not rules:
        return
    policy_path = child(path, "restartPolicy")
    if policy is None:
        errors.append(required(policy_path, _NEEDS_POLICY))
    elif policy not in RESTART_POLICIES:
        errors.append(not_supported(policy_path, JsonText(policy), RESTART_POLICIES))
    rules_path = child(path, "restartPolicyRules")
    if len(rules) > RESTART_RULES_MAX:
        errors.append(too_many(rules_path, len(rules), RESTART_RULES_MAX))
    for position, rule in enumerate(rules):
        _check_restart_rule(errors, rule, index(rules_path, position))


def _check_restart_rule(errors: Errors, rule: Object, path: str) -> None:
    action = rule.get("action", "")
    if action not in RESTART_ACTIONS:
        errors.append(not_supported(child(path, "action"), JsonText(action), RESTART_ACTIONS))
    codes_path = child(path, "exitCodes")
    codes = rule.get("exitCodes")
    if codes is None:
        errors.append(required(codes_path, "must be specified"))
        return
    operator = codes.get("operator", "")
    if operator not in EXIT_CODE_OPERATORS:
        operator_path = child(codes_path, "operator")
        errors.append(not_supported(operator_path, JsonText(operator), EXIT_CODE_OPERATORS))
    count = len(codes.get("values") or ())
    if count > EXIT_CODES_MAX:
        errors.append(too_many(child(codes_path, "values"), count, EXIT_CODES_MAX))


_identity: Final = all_of(
    needs_formatted("name", check_dns_label),
    needs("image"),
    needs_one_of("terminationMessagePolicy", MESSAGE_POLICIES),
)
_env: Final = each("env", check_env)
_pull_policy: Final = needs_one_of("imagePullPolicy", PULL_POLICIES)
