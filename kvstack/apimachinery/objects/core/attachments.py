"""The names of attached volumes of CSI drivers.

attachment_name("d.example.com", "vol-1", "node-a")    "csi-<64 hexadecimal digits>"
unique_name("d.example.com", "vol-1")                  "kubernetes.io/csi/d.example.com^vol-1"
"""

import hashlib


def attachment_name(driver: str, handle: str, node: str) -> str:
    """Return the name of the VolumeAttachment of a volume to a node."""
    return f"csi-{hashlib.sha256(f'{handle}{driver}{node}'.encode()).hexdigest()}"


def unique_name(driver: str, handle: str) -> str:
    """Return the name of a volume in `volumesAttached` and `volumesInUse` of nodes."""
    return f"kubernetes.io/csi/{driver}^{handle}"
