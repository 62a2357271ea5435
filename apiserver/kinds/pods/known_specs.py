"""Specs of pods that were found to be without fault: a controller creates many that are equal.

    known.check(key_of_spec(spec), errors, lambda: check_spec(scope))

Specs that differ only in the random suffix of the volume that admission adds for the token of the
service account are equal. A spec with faults is checked anew each time.
"""

import re
from collections.abc import Callable, Sized
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.recurring import RecentResults, key_of

TOKEN_VOLUME_PREFIX: Final = "kube-api-access-"
_TOKEN_VOLUME: Final = re.compile(TOKEN_VOLUME_PREFIX + "[a-z0-9]{5}")
_ANY_SUFFIX: Final = b"\xff" * (len(TOKEN_VOLUME_PREFIX) + 5)
"""In place of the volume's name: never a part of a key, since it is not UTF-8."""


class KnownSpecs:
    """The keys of specs without fault."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: Final = RecentResults[bool]()

    def check(self, key: bytes | None, faults: Sized, look: Callable[[], None]) -> None:
        """Have look() add the faults of a spec, unless one with this key had none."""
        if self._known.get(key) is None:
            before = len(faults)
            look()
            if len(faults) == before:
                self._known.put(key, True)


def key_of_spec(spec: Object, *others: object) -> bytes | None:
    """Return the key of a spec and other values that its checks depend on; None: it has none.

    The checks of ephemeral volumes depend on the name of the pod, so their specs have none.
    """
    volumes = spec.get("volumes") or ()
    if any(each.get("ephemeral") is not None for each in volumes):
        return None
    key = key_of((spec, *others))
    name = volumes[-1].get("name", "") if volumes else ""
    if key is None or _TOKEN_VOLUME.fullmatch(name) is None:
        return key
    return key.replace(name.encode(), _ANY_SUFFIX)
