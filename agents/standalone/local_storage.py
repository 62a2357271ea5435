"""--local-storage-limit: how much of the disk pods may use, and how much is left for the store.

    10 % of the file system, and the store's reserve if it is on the same one, stay free
    all pods together use at most the limit, if it is set

When either is violated, the node evicts pods, the one that uses most above its request first
(`kubelet.eviction`). So pods go before the store, which keeps STORE_RESERVE_BYTES back, is short.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.agents.kubelet.eviction.evictions import HARD_THRESHOLDS, LOCAL_STORAGE, amount_of
from kvstack.agents.kubelet.eviction.pressures import EvictionOptions

STORE_RESERVE_BYTES: Final = 256 << 20
"""The store's 64 MiB for its database, and the next three segments of its log."""
_FREE_SHARE: Final = "10%"


class LocalStorage(NamedTuple):
    """Settings of a node."""

    evictions: EvictionOptions
    reserved: dict[str, str]
    """The part of the disk that is not for pods; it is subtracted from the node's allocatable."""


def check(text: str) -> None:
    """Raise ValueError unless a limit is a quantity above 0 or a share of the disk."""
    try:
        amount = amount_of(text, 100 << 20)
    except ValueError:
        amount = 0
    if amount <= 0 or (text.endswith("%") and float(text[:-1]) > 100):
        raise ValueError(f"{text}: a quantity above 0, as 20Gi, or a share of the disk, as 50%")


def local_storage(limit: str, root: Path, store: Path) -> LocalStorage:
    """Return the settings for pods under root beside a store; directories may be missing yet."""
    root, store = _existing(root), _existing(store)
    disk = os.statvfs(root)
    disk_bytes = disk.f_blocks * disk.f_frsize
    kept_bytes = amount_of(_FREE_SHARE, disk_bytes)
    if root.stat().st_dev == store.stat().st_dev:
        kept_bytes += STORE_RESERVE_BYTES
    hard = {**HARD_THRESHOLDS, "nodefs.available": str(kept_bytes)}
    if not limit:
        return LocalStorage(EvictionOptions(hard), {})
    limit_bytes = amount_of(limit, disk_bytes)
    hard[LOCAL_STORAGE] = "1"
    rest_bytes = max(disk_bytes - kept_bytes - limit_bytes, 0)
    return LocalStorage(
        EvictionOptions(hard, local_storage_bytes_max=limit_bytes),
        {"ephemeral-storage": str(rest_bytes)},
    )


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.absolute().parents) if each.is_dir())
