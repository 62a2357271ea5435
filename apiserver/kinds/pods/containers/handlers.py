"""Validation of probes and lifecycle handlers.

    livenessProbe = {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 10, …}
    lifecycle = {"preStop": {"exec": {"command": ["sync"]}}}

A handler has exactly one action. The first one counts, every further one is an error.
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_http_header_name,
    check_port_name,
    check_port_number,
)
from kvstack.apimachinery.objects.text.go_text import JsonText, quote
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.rules import (
    Errors,
    Rule,
    add_invalid,
    all_of,
    needs,
    not_negative,
    one_of,
)

HTTP_SCHEMES: Final = enum_values("io.k8s.api.core.v1.HTTPGetAction", "scheme")
STOP_SIGNALS: Final = {
    "linux": enum_values("io.k8s.api.core.v1.Lifecycle", "stopSignal"),
    "windows": ("SIGKILL", "SIGTERM"),
}  # fmt: skip
"""Stop signals by operating system, sorted."""

_HTTP_PROTOCOLS: Final = enum_values("io.k8s.api.core.v1.HTTPGetAction", "protocol")
_GRPC_MODES: Final = enum_values("io.k8s.api.core.v1.GRPCAction", "mode")


def check_port(errors: Errors, path: str, port: int | str) -> None:
    """Check a port number or name."""
    wrong = check_port_name(port) if isinstance(port, str) else check_port_number(port)
    add_invalid(errors, path, port, wrong)


def check_probe(scope: SpecScope, container: Object, name: str, path: str) -> None:
    """Check one probe of a container, if present: `livenessProbe` and the like."""
    probe = container.get(name)
    if probe is None:
        return
    errors = scope.errors
    probe_path = child(path, name)
    _check_handler(scope, probe, _PROBE_HANDLERS, probe_path)
    _probe_numbers(probe, probe_path, errors)
    grace_path = child(probe_path, "terminationGracePeriodSeconds")
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        errors.append(invalid(grace_path, grace, "must be greater than 0"))
    if name == "readinessProbe":
        if grace is not None:
            errors.append(invalid(grace_path, grace, "must not be set for readinessProbes"))
    elif probe.get("successThreshold", 0) != 1:
        value = probe.get("successThreshold", 0)
        errors.append(invalid(child(probe_path, "successThreshold"), value, "must be 1"))


def check_lifecycle(scope: SpecScope, container: Object, path: str) -> None:
    """Check the lifecycle handlers of a container, if present."""
    lifecycle = container.get("lifecycle")
    if lifecycle is None:
        return
    lifecycle_path = child(path, "lifecycle")
    for name in ("postStart", "preStop"):
        handler = lifecycle.get(name)
        if handler is not None:
            _check_handler(scope, handler, _LIFECYCLE_HANDLERS, child(lifecycle_path, name))
    signal = lifecycle.get("stopSignal")
    if signal is not None:
        _check_stop_signal(scope, signal, child(lifecycle_path, "stopSignal"))


def _check_stop_signal(scope: SpecScope, signal: str, path: str) -> None:
    if scope.spec.get("os") is None:
        message = "may not be set for containers with empty `spec.os.name`"
        scope.errors.append(forbidden(path, message))
        return
    known = STOP_SIGNALS.get(scope.os)
    if known is not None and signal not in known:
        scope.errors.append(not_supported(path, JsonText(signal), known))


def _check_handler(scope: SpecScope, handler: Object, names: tuple[str, ...], path: str) -> None:
    errors = scope.errors
    given = [each for each in names if handler.get(each) is not None]
    if not given:
        errors.append(required(path, "must specify a handler type"))
        return
    name, *spare = given
    if name == "sleep":
        _check_sleep(scope, handler[name], child(path, name))
    else:
        _ACTIONS[name](handler[name], child(path, name), errors)
    message = "may not specify more than 1 handler type"
    errors.extend(forbidden(child(path, each), message) for each in spare)


def _check_http_get(action: Object, path: str, errors: Errors) -> None:
    _http_path(action, path, errors)
    check_port(errors, child(path, "port"), action.get("port", 0))
    scheme = action.get("scheme", "")
    if scheme not in HTTP_SCHEMES:
        error = not_supported(child(path, "scheme"), JsonText(scheme), HTTP_SCHEMES)
        errors.append(error)
    for header in action.get("httpHeaders") or ():
        name = header.get("name", "")
        wrong = check_http_header_name(name)
        add_invalid(errors, child(path, "httpHeaders"), name, wrong)
    protocol = action.get("protocol")
    if protocol is not None:
        _check_http_protocol(action, protocol, path, errors)


def _check_http_protocol(action: Object, protocol: str, path: str, errors: Errors) -> None:
    protocol_path = child(path, "protocol")
    if protocol not in _HTTP_PROTOCOLS:
        errors.append(not_supported(protocol_path, JsonText(protocol), _HTTP_PROTOCOLS))
    elif protocol == "HTTP2" and action.get("scheme") != "HTTP":
        message = "is only supported with HTTP (H2C)"
        errors.append(invalid(protocol_path, JsonText(protocol), message))
    elif protocol == "HTTP2" and action.get("host"):
        message = f"must be empty when `protocol` is {quote('HTTP2')}"
        errors.append(invalid(child(path, "host"), action["host"], message))


def _check_any_port(action: Object, path: str, errors: Errors) -> None:
    check_port(errors, child(path, "port"), action.get("port", 0))


def _check_sleep(scope: SpecScope, action: Object, path: str) -> None:
    grace = scope.spec.get("terminationGracePeriodSeconds")
    seconds = action.get("seconds", 0)
    if grace is not None and not 0 <= seconds <= grace:
        message = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        scope.errors.append(invalid(path, seconds, message))


_http_path: Final = needs("path")
_probe_numbers: Final = not_negative(
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
    "failureThreshold",
)  # fmt: skip
_PROBE_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_LIFECYCLE_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
_ACTIONS: Final[dict[str, Rule]] = {
    "exec": needs("command"),
    "httpGet": _check_http_get,
    "tcpSocket": _check_any_port,
    "grpc": all_of(_check_any_port, one_of("mode", _GRPC_MODES)),
}
