"""Requests to the kubelet of a pod's node: logs, commands, connections.

    log_request(pod, {"container": "web", "tailLines": 10})
    → NodeRequest("/containerLogs/default/web-0/web", [("tailLines", "10")])

Options are plain dicts of the types PodLogOptions, PodExecOptions and so on. A pod without a node
has no logs, and nothing can be executed in it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.containers import all_containers
from kvstack.apimachinery.objects.field_errors import FieldError, forbidden, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import NEGATIVE

Options = Mapping[str, Any]

_NOT_POSITIVE: Final = "must be greater than 0"
_FLAGS: Final = ("follow", "previous", "timestamps")
_VALUES: Final = ("sinceSeconds", "sinceTime", "tailLines", "limitBytes")
_STREAMS: Final = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))


class NodeRequest(NamedTuple):
    """A request to a kubelet."""

    path: str
    query: list[tuple[str, str]]


def check_log_options(options: Options) -> list[FieldError]:
    """Return the errors of PodLogOptions."""
    errors: list[FieldError] = []
    lines, limit = options.get("tailLines"), options.get("limitBytes")
    seconds = options.get("sinceSeconds")
    if lines is not None and lines < 0:
        errors.append(invalid("tailLines", lines, NEGATIVE))
    if limit is not None and limit < 1:
        errors.append(invalid("limitBytes", limit, _NOT_POSITIVE))
    if seconds is not None and options.get("sinceTime") is not None:
        message = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        errors.append(forbidden("[]", message))
    elif seconds is not None and seconds < 1:
        errors.append(invalid("sinceSeconds", seconds, _NOT_POSITIVE))
    if "stream" in options:
        errors.append(forbidden("stream", "may not be specified"))
    return errors


def container_of(pod: Object, name: str) -> str:
    """Return the container of a request; name: of the request, or "". Raises ApiError."""
    pod_name, spec = pod["metadata"]["name"], pod["spec"]
    names = [each["name"] for each in all_containers(spec)]
    if name:
        if name in names:
            return name
        raise status.bad_request(f"container {name} is not valid for pod {pod_name}")
    containers: list[Object] = spec.get("containers") or []
    if len(containers) == 1:
        only: str = containers[0]["name"]
        return only
    message = f"a container name must be specified for pod {pod_name}"
    if containers:
        message = f"{message}, choose one of: [{' '.join(names)}]"
    raise status.bad_request(message)


def log_request(pod: Object, options: Options) -> NodeRequest | None:
    """Return the request for a log; None: there is none yet. Raises ApiError."""
    container = container_of(pod, options.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return None
    query = [(name, "true") for name in _FLAGS if options.get(name)]
    query += [(name, str(options[name])) for name in _VALUES if options.get(name) is not None]
    return NodeRequest(_path("containerLogs", pod, container), sorted(query))


def exec_request(pod: Object, options: Options) -> NodeRequest:
    """Return the request to execute a command in a container; raises ApiError."""
    request = _stream_request("exec", pod, options)
    query = [*request.query, *(("command", each) for each in options.get("command") or ())]
    return NodeRequest(request.path, sorted(query, key=_by_name))


def attach_request(pod: Object, options: Options) -> NodeRequest:
    """Return the request to attach to a running container; raises ApiError."""
    return _stream_request("attach", pod, options)


def port_forward_request(pod: Object, options: Options) -> NodeRequest:
    """Return the request to forward ports of a pod; raises ApiError."""
    _check_node(pod)
    ports = options.get("ports") or ()
    query = [("port", ",".join(str(each) for each in ports))] if ports else []
    return NodeRequest(_path("portForward", pod), query)


def _stream_request(what: str, pod: Object, options: Options) -> NodeRequest:
    container = container_of(pod, options.get("container", ""))
    _check_node(pod)
    query = [(shown, "1") for name, shown in _STREAMS if options.get(name)]
    return NodeRequest(_path(what, pod, container), sorted(query))


def _check_node(pod: Object) -> None:
    if not pod["spec"].get("nodeName"):
        name = pod["metadata"]["name"]
        raise status.bad_request(f"pod {name} does not have a host assigned")


def _path(what: str, pod: Object, *container: str) -> str:
    metadata = pod["metadata"]
    return "/".join(("", what, metadata["namespace"], metadata["name"], *container))


def _by_name(parameter: tuple[str, str]) -> str:
    return parameter[0]
