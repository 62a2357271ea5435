"""The versions: of kvstack, written here alone, and of what it is compatible with.

The build reads VERSION from here.
"""

from typing import Final

VERSION: Final = "0.2.0"
KUBERNETES_VERSION: Final = "1.37.1"
ETCD_VERSION: Final = "3.7.1"
