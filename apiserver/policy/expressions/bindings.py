"""What expressions about a request of admission see.

bindings = request_bindings(request, place, new, old, answers)
→ {"object": …, "oldObject": …, "request": …, "authorizer": …, "authorizer.requestResource": …}
"""

from typing import Any, Final

from kvstack.apiserver.cel.library.authorizers import Question
from kvstack.apiserver.policy.admission.request import AdmissionRequest, Obj, Place
from kvstack.apiserver.policy.expressions.answers import Answers
from kvstack.apiserver.schema.resource import Kind

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
    request: AdmissionRequest, place: Place, new: Obj | None, old: Obj | None, answers: Answers
) -> dict[str, Any]:
    """Return the variables; new, old: the objects in the version of the place."""
    own = own_place(request)
    question = Question(
        group=own.group,
        resource=own.resource,
        subresource=request.subresource,
        namespace=request.namespace,
        name=request.name,
    )
    return {
        "object": new,
        "oldObject": old,
        "request": _request(request, place, own),
        "authorizer": answers.value(),
        "authorizer.requestResource": answers.resource_value(question),
        "params": None,
        "namespaceObject": None,
    }


def own_place(request: AdmissionRequest) -> Place:
    """Return the resource as the request names it."""
    if request.versions is not None:
        return request.versions.places[0]
    resource = request.resource
    return Place(resource.group, request.version, resource.resource, request.kind)


def _request(request: AdmissionRequest, place: Place, own: Place) -> Obj:
    below = request.subresource
    found: Obj = {
        "kind": _kind(place.kind),
        "resource": _resource(place),
        "requestKind": _kind(own.kind),
        "requestResource": _resource(own),
        "operation": request.operation,
        "userInfo": request.user.to_object(),
        "options": request.options or None,
        "dryRun": request.is_dry_run,
        # What upstream leaves out of the request when it is empty.
        "uid": "",
    }
    if below:
        found["subResource"] = found["requestSubResource"] = below
    if request.name:
        found["name"] = request.name
    if request.namespace:
        found["namespace"] = request.namespace
    return found


def _kind(kind: Kind) -> Obj:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(place: Place) -> Obj:
    return {"group": place.group, "version": place.version, "resource": place.resource}


def namespace_value(namespace: Obj | None) -> Obj | None:
    """Return what expressions see of a namespace."""
    if namespace is None:
        return None
    metadata = namespace.get("metadata") or {}
    return {
        "metadata": {name: metadata[name] for name in _NAMESPACE_METADATA if name in metadata},
        "spec": namespace.get("spec") or {},
        "status": namespace.get("status") or {},
    }
