"""The variables of expressions on admission requests.

bindings = request_bindings(request, versioned, new, old, answers)
→ {"object": …, "oldObject": …, "request": …, "authorizer": …, "authorizer.requestResource": …}
"""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.expressions.answers import Answers
from kvstack.cel.library.authorizers import Question

_NAMESPACE_METADATA: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
)


def request_bindings(
    request: AdmissionRequest,
    versioned: VersionedResource,
    new: Object | None,
    old: Object | None,
    answers: Answers,
) -> dict[str, Any]:
    """Return the variables; new, old: the objects in that version."""
    request_resource = requested_resource(request)
    question = Question(
        group=request_resource.group,
        resource=request_resource.resource,
        subresource=request.subresource,
        namespace=request.namespace,
        name=request.name,
    )
    return {
        "object": new,
        "oldObject": old,
        "request": _request(request, versioned, request_resource),
        "authorizer": answers.value(),
        "authorizer.requestResource": answers.resource_value(question),
        "params": None,
        "namespaceObject": None,
    }


def requested_resource(request: AdmissionRequest) -> VersionedResource:
    """Return the resource as the request names it."""
    if request.versions is not None:
        return request.versions.served[0]
    resource = request.resource
    return VersionedResource(resource.group, request.version, resource.resource, request.kind)


def _request(
    request: AdmissionRequest, versioned: VersionedResource, request_resource: VersionedResource
) -> Object:
    below = request.subresource
    variables: Object = {
        "kind": _kind(versioned.kind),
        "resource": _resource(versioned),
        "requestKind": _kind(request_resource.kind),
        "requestResource": _resource(request_resource),
        "operation": request.operation,
        "userInfo": request.user.to_object(),
        "options": request.options or None,
        "dryRun": request.is_dry_run,
        # Upstream leaves these out of the request if they are empty.
        "uid": "",
    }
    if below:
        variables["subResource"] = variables["requestSubResource"] = below
    if request.name:
        variables["name"] = request.name
    if request.namespace:
        variables["namespace"] = request.namespace
    return variables


def _kind(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(versioned: VersionedResource) -> Object:
    return {"group": versioned.group, "version": versioned.version, "resource": versioned.resource}


def namespace_value(namespace: Object | None) -> Object | None:
    """Return the variable of a namespace."""
    if namespace is None:
        return None
    metadata = namespace.get("metadata") or {}
    return {
        "metadata": {name: metadata[name] for name in _NAMESPACE_METADATA if name in metadata},
        "spec": namespace.get("spec") or {},
        "status": namespace.get("status") or {},
    }
