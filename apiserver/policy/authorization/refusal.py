"""The 403 of requests that are not allowed."""

from kvstack.apimachinery.attributes import Attributes
from kvstack.apimachinery.objects import status


def refusal(attributes: Attributes, reason: str = "") -> status.ApiError:
    """Return the 403; reason: of the authorizers."""
    user, verb = attributes.user.name, attributes.verb
    if not attributes.is_resource:
        return status.path_denied(user, verb, attributes.path, reason)
    return status.access_denied(
        user,
        verb,
        attributes.group_resource,
        name=attributes.name,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        reason=reason,
    )
