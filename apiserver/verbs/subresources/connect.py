"""Subresources that are streams: the target of a client's request.

    pods       log            GET         → its text, from the kubelet
               exec, attach   GET, POST   → an upgraded connection to the kubelet
               portforward    GET, POST   → the same
    nodes, pods, services
               proxy          any method  → whatever answers there

All streams except logs and proxies require the verb create, also for GET.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupKind
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.subresources import node_requests
from kvstack.apiserver.kinds.pods.subresources.node_requests import NodeRequest
from kvstack.apiserver.policy.admission.request import CONNECT
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.permission import check_may
from kvstack.apiserver.verbs.reading import get_and_list
from kvstack.apiserver.verbs.results import Connecting, Proxying
from kvstack.apiserver.verbs.subresources import node_addresses, proxy, stream_options
from kvstack.apiserver.verbs.writing import admission

_LOG: Final = "PodLogOptions"
_REQUESTS: Final[Mapping[str, Callable[[Object, Mapping[str, Any]], NodeRequest]]] = {
    "exec": node_requests.exec_request,
    "attach": node_requests.attach_request,
    "portforward": node_requests.port_forward_request,
}


async def connect(call: Call) -> Connecting | Proxying:
    """Return the target of a stream; raises ApiError."""
    kind = call.endpoint.subresource
    if kind == "log":
        return await _log(call)
    if "dryRun" in call.query:
        raise status.bad_request("dryRun is not supported")
    options = stream_options.read(call.endpoint.kind.kind, call.query)
    if kind == "proxy":
        options["path"] = proxy.path_of(call)
    options = await _admit(call, options)
    if kind == "proxy":
        return await proxy.target(call)
    if call.info.verb != "create":
        await check_may(call, "create")
    pod = await _pod(call)
    return await _at_kubelet(call, pod, _REQUESTS[kind](pod, options), is_log=False)


async def _admit(call: Call, options: Object) -> Object:
    """Return the options after admission; raises ApiError."""
    kind = call.endpoint.kind
    asked = admission.admission_of(call, CONNECT, {}, kind=kind)
    if asked is None:
        return options
    wanted: Object = {"kind": kind.kind, "apiVersion": kind.api_version, **options}
    await admission.mutate(call, asked, wanted, None)
    await admission.validate(call, asked, wanted, None)
    return wanted


async def _log(call: Call) -> Connecting:
    options = stream_options.read(_LOG, call.query)
    errors = node_requests.check_log_options(options)
    if errors:
        raise status.invalid(GroupKind("", _LOG), call.info.name, errors)
    pod = await _pod(call)
    request = node_requests.log_request(pod, options)
    if request is None:
        return Connecting("", 0, "", is_log=True)
    return await _at_kubelet(call, pod, request, is_log=True)


async def _pod(call: Call) -> Object:
    """Return the pod."""
    plain = Call(
        call.env, call.endpoint, call.info, call.user, {}, call.now, at_revision=call.at_revision
    )
    return (await get_and_list.get(plain)).record.parse()


async def _at_kubelet(call: Call, pod: Object, request: NodeRequest, *, is_log: bool) -> Connecting:
    address = await node_addresses.kubelet_of(call, pod["spec"]["nodeName"])
    query = urlencode(request.query)
    target = quote(request.path) + (f"?{query}" if query else "")
    return Connecting(address.host, address.port, target, is_log, address.takes_websockets)
