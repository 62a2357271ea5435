"""Nodes of tests take pods however full the disk of this machine is."""

from typing import Final

EVICTION_HARD: Final = (
    "--eviction-hard=memory.available<100Mi,nodefs.available<2%,imagefs.available<2%"
)
