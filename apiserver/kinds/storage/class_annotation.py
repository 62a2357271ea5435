"""How claims and volumes named their class before there was a field for it."""

from typing import Final

CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
