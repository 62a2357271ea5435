"""The version of Kubernetes that the programs are compatible with."""

from typing import Final

KUBERNETES_VERSION: Final = "1.37.1"
