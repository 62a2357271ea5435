"""Names of files: in the directory of plugins, and in that of a pod."""

from typing import Final

SOCKET: Final = "kubelet.sock"
"""Where plugins register."""
GRPC_SOCKET: Final = ".grpc.sock"
"""Where gRPC answers them; no plugin can have this name."""
FILE: Final = "devices.json"
"""Which devices a pod has."""
