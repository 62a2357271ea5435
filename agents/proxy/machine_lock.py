"""Who may write the rules of Services of a network namespace: one process.

with machine_lock(takes_over=True):
    …
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvstack.agents.proxy.iptables import program as iptables
from kvstack.agents.proxy.iptables.layout import NAT, SERVICES
from kvstack.agents.proxy.nftables import program as nftables
from kvstack.component.errors import ConfigError

_STATE: Final = Path("/run/kvstack")


@contextlib.contextmanager
def machine_lock(*, takes_over: bool, state: Path = _STATE) -> Iterator[None]:
    """Hold the right to write this network namespace's rules; raises ConfigError, OSError.

    takes_over: whether rules that another program has left are made ours. Who does not take over
    leaves no rules behind, either.
    """
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    namespace = Path("/proc/thread-self/ns/net").stat().st_ino
    path = state / f"proxy-{namespace}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError("another proxy writes the rules of this machine") from error
        is_ours = bool(os.read(descriptor, 1))
        if not takes_over and not is_ours and (foreign := _rules_of_others()):
            text = f"the rules of kube-proxy on this machine ({foreign}) belong to another program"
            raise ConfigError(text)
        os.pwrite(descriptor, b"1", 0)
        yield
        if not takes_over:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _rules_of_others() -> str:
    """Return the mode whose rules are there; empty: none. ConfigError."""
    try:
        if nftables.is_installed() and nftables.read(4).chains:
            return "nftables"
        if iptables.is_installed(4):
            tables = iptables.read(4, creates=False)
            if NAT in tables and SERVICES in tables[NAT].chains:
                return "iptables"
    except (nftables.NftError, iptables.IptablesError) as error:
        raise ConfigError(str(error)) from error
    return ""
