"""AlwaysPullImages: images are pulled for every pod, so that it needs credentials for them.

An update without new images passes.
"""

from collections.abc import Iterator
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.field_errors import not_supported
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest

_ALWAYS: Final = "Always"
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


class AlwaysPullImages(Listed):
    """Sets the pull policy of all containers and image volumes."""

    name = "AlwaysPullImages"
    calls = calls((CREATE, UPDATE), PODS)

    def mutate(self, request: AdmissionRequest) -> None:
        """Set the policies."""
        if not _brings_images(request):
            return
        spec = request.own("spec")
        for kind in _CONTAINERS:
            if spec.get(kind):
                spec[kind] = [{**each, "imagePullPolicy": _ALWAYS} for each in spec[kind]]
        if spec.get("volumes"):
            spec["volumes"] = [_pulled(each) for each in spec["volumes"]]

    def validate(self, request: AdmissionRequest) -> None:
        """Refuse policies that were changed since."""
        if not _brings_images(request):
            return
        messages = [
            request.forbidden(str(not_supported(path, policy, (_ALWAYS,)))).status["message"]
            for path, policy in _policies(request.new.get("spec") or {})
            if policy != _ALWAYS
        ]
        if messages:
            raise status.unknown(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")


def _pulled(volume: Object) -> Object:
    image = volume.get("image")
    return volume if image is None else {**volume, "image": {**image, "pullPolicy": _ALWAYS}}


def _containers(spec: Object) -> Iterator[tuple[str, Any]]:
    for kind in _CONTAINERS:
        for position, each in enumerate(spec.get(kind) or ()):
            yield f"spec.{kind}[{position}]", each


def _policies(spec: Object) -> Iterator[tuple[str, str]]:
    for path, container in _containers(spec):
        yield f"{path}.imagePullPolicy", container.get("imagePullPolicy", "")
    for position, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("image") is not None:
            path = f"spec.volumes[{position}].image.pullPolicy"
            yield path, volume["image"].get("pullPolicy", "")


def _brings_images(request: AdmissionRequest) -> bool:
    if request.operation != UPDATE:
        return True
    old = {each.get("image") for _, each in _containers((request.old or {}).get("spec") or {})}
    new = {each.get("image") for _, each in _containers(request.new.get("spec") or {})}
    return not new <= old
