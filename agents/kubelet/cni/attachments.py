"""Connected containers, recorded in files: each call of the plugin is a process of its own.

with Attachments(Path("/run/kvstack/cni"), "kvstack") as known:     locked against other processes
    known.all()["3f…"].addresses
    known.add("3f…", Attachment(("10.244.1.2",)))
"""

import fcntl
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kvstack.agents.kubelet.runtime.runtime import Port

NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}", re.ASCII)
"""The syntax of names of networks and containers."""
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Attachment:
    """The addresses and ports of a container."""

    addresses: tuple[str, ...]
    ports: tuple[Port, ...] = ()
    """Ports of the node that are forwarded to it."""


class Attachments:
    """The attachments of one network; OSError."""

    def __init__(self, directory: Path, network: str) -> None:
        """Lock nothing yet."""
        self._directory = directory / network
        self._lock = -1

    def __enter__(self) -> Self:
        """Wait for the lock."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the lock."""
        os.close(self._lock)

    def all(self) -> dict[str, Attachment]:
        """Return them by their container."""
        attachments = {}
        for file in self._directory.glob(f"*{_SUFFIX}"):
            record = json.loads(file.read_text())
            ports = tuple(Port(**each) for each in record["ports"])
            # Plugins before this one kept one address.
            addresses = tuple(record.get("addresses") or (record["address"],))
            attachments[file.name.removesuffix(_SUFFIX)] = Attachment(addresses, ports)
        return attachments

    def add(self, container: str, attachment: Attachment) -> None:
        """Write an attachment, atomically."""
        file = self._directory / f"{container}{_SUFFIX}"
        waiting = file.with_name(f"{file.name}.new")
        waiting.write_text(json.dumps(asdict(attachment)))
        waiting.replace(file)

    def remove(self, container: str) -> None:
        """Forget one, if it is there."""
        (self._directory / f"{container}{_SUFFIX}").unlink(missing_ok=True)
