"""Requests of admission as tests need them."""

from typing import Any

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest

ALICE = User("alice", groups=("system:authenticated",))


def admission_request(
    obj: Object | None,
    old: Object | None = None,
    *,
    resource: GroupResource = PODS,
    operation: str = "",
    subresource: str = "",
    is_dry_run: bool = False,
    user: User = ALICE,
) -> AdmissionRequest:
    """Return a request in namespace `a`: a create, or an update if there is an old object."""
    name = ((obj or old or {}).get("metadata") or {}).get("name", "")
    return AdmissionRequest(
        operation or (CREATE if old is None else UPDATE),
        user,
        resource,
        Kind("", "v1", "Pod"),
        subresource=subresource,
        namespace="a",
        name=name,
        object=obj,
        old=old,
        is_dry_run=is_dry_run,
    )


def pod(**spec: Any) -> Object:
    """Return a pod `p` with a container `c`."""
    return {
        "metadata": {"name": "p", "namespace": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def namespace(**annotations: str) -> Object:
    """Return the namespace `a`."""
    return {"metadata": {"name": "a", "annotations": annotations}}
