"""The claims that pods use: by name, or made for them from a template in the pod."""

from collections.abc import Iterable
from typing import Final

from kvstack.agents.controllers.ownership import controller_of
from kvstack.apimachinery.objects.json_object import Object

CLAIMS_INDEX: Final = "persistent volume claims"


def ephemeral_name(pod: Object, volume: Object) -> str:
    """Return the name of the claim that is made for a volume of a pod."""
    return f"{pod['metadata']['name']}-{volume['name']}"


def claim_names(pod: Object) -> Iterable[tuple[str, bool]]:
    """Give the names of a pod's claims, and whether each is made for it."""
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield volume["persistentVolumeClaim"]["claimName"], False
        elif volume.get("ephemeral"):
            yield ephemeral_name(pod, volume), True


def claims_of_pod(pod: Object) -> tuple[str, ...]:
    """Return the keys of a pod's claims, for the index."""
    namespace = pod["metadata"]["namespace"]
    return tuple(f"{namespace}/{name}" for name, _ in claim_names(pod))


def is_made_for(claim: Object, pod: Object) -> bool:
    """Whether a claim was made for a pod."""
    owner = controller_of(claim)
    return owner is not None and owner["uid"] == pod["metadata"]["uid"]
