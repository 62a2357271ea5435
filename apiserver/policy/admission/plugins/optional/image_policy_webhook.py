"""ImagePolicyWebhook: a webhook decides whether the images of a pod may run.

    images, own annotations, namespace ─► answered a while ago? ─► POST ─► status

The configuration says what happens if the webhook fails.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

import orjson

from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.json_text import exact
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import Reviewer
from kvstack.apiserver.policy.remembering import Remembered
from kvstack.apiserver.policy.remote.connection import RemoteError
from kvstack.component.clock import Clock

REMEMBERED_MAX: Final = 1024
REVIEW: Final = "imagepolicy.k8s.io/v1alpha1"
_OWN_ANNOTATIONS: Final = ".image-policy.k8s.io/"
_AUDIT: Final = "imagepolicywebhook.image-policy.k8s.io/"
_FAILED_OPEN: Final = "alpha.image-policy.k8s.io/failed-open"
_EPHEMERAL: Final = "ephemeralcontainers"
_MEMBERS: Final = {"": ("containers", "initContainers"), _EPHEMERAL: ("ephemeralContainers",)}


@dataclass(frozen=True, slots=True)
class ImagePolicySettings:
    """The configuration of ImagePolicyWebhook."""

    kubeconfig: str
    """File of the webhook's connection."""
    allowed_ns: int = 300 * 10**9
    """How long positive answers are cached; 0: not at all."""
    denied_ns: int = 30 * 10**9
    first_pause_s: float = 0.5
    """Delay before the second attempt."""
    allows_by_default: bool = False
    """Whether images are admitted if the webhook fails."""


class ImagePolicyWebhook(Listed):
    """Calls one webhook."""

    name = "ImagePolicyWebhook"
    calls = calls((CREATE, UPDATE), PODS, "", _EPHEMERAL)

    def __init__(self, reviewer: Reviewer, settings: ImagePolicySettings, clock: Clock) -> None:
        self._reviewer: Final = reviewer
        self._settings: Final = settings
        self._answers: Final[Remembered[bytes, Object]] = Remembered(REMEMBERED_MAX, clock)

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Refuse images; raises ApiError."""
        pod = request.new
        spec = pod.get("spec") or {}
        images = [
            {"image": each["image"]} if each.get("image") else {}
            for member in _MEMBERS[request.subresource]
            for each in spec.get(member) or ()
        ]
        annotations = {
            name: value
            for name, value in sorted(
                ((pod.get("metadata") or {}).get("annotations") or {}).items()
            )
            if _OWN_ANNOTATIONS in name
        }
        given = {"containers": images, "annotations": annotations, "namespace": request.namespace}
        asked = {name: value for name, value in given.items() if value}
        key = orjson.dumps(asked)
        known = self._answers.get(key)
        if known is None:
            return self._ask(request, asked, key)
        _judge(request, known)
        return None

    async def _ask(self, request: AdmissionRequest, asked: Object, key: bytes) -> None:
        review = {
            "kind": "ImageReview",
            "apiVersion": REVIEW,
            "metadata": {},
            "spec": asked,
            "status": {"allowed": False},
        }
        settings = self._settings
        try:
            status = await self._reviewer.review(review)
        except RemoteError as error:
            if not settings.allows_by_default:
                raise request.forbidden(str(error)) from error
            request.annotations[f"{_AUDIT}failed-open"] = "true"
            metadata = request.own("metadata")
            metadata["annotations"] = {**(metadata.get("annotations") or {}), _FAILED_OPEN: "true"}
            return
        is_allowed = status.get("allowed") is True
        lasts_ns = settings.allowed_ns if is_allowed else settings.denied_ns
        self._answers.put(exact(key), status, lasts_ns)
        _judge(request, status)


def _judge(request: AdmissionRequest, status: Object) -> None:
    annotations = status.get("auditAnnotations")
    for name, value in annotations.items() if isinstance(annotations, dict) else ():
        request.annotations[f"{_AUDIT}{name}"] = str(value)
    if status.get("allowed") is True:
        return
    reason = status.get("reason")
    if reason and isinstance(reason, str):
        text = f"image policy webhook backend denied one or more images: {reason}"
    else:
        text = "one or more images rejected by webhook backend"
    raise request.forbidden(text)
