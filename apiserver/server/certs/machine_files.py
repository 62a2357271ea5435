"""Which certificates and kubeconfigs each machine of a cluster gets.

    DIR/machines/kvstore1/{ca.crt,kvstore1.crt,kvstore1.key}        a member of the store
    DIR/machines/apiserver/…                                        and so on, see `ROLES`

A file has the same path below its machine's directory as below DIR. Copies are updated at every
run; other files are not touched.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kvstack.component.certs.cert_files import write_file
from kvstack.component.errors import ConfigError

MACHINES: Final = "machines"

_PKI: Final = "kubernetes/pki"
_SECRETS: Final = frozenset((".key", ".conf"))


def _pair(path: str) -> tuple[str, str]:
    return f"{path}.crt", f"{path}.key"


ROLES: Final[dict[str, tuple[str, ...]]] = {
    "apiserver": (
        "ca.crt",
        *_pair("client"),
        f"{_PKI}/ca.crt",
        f"{_PKI}/front-proxy-ca.crt",
        *_pair(f"{_PKI}/apiserver"),
        *_pair(f"{_PKI}/apiserver-kubelet-client"),
        *_pair(f"{_PKI}/front-proxy-client"),
        f"{_PKI}/sa.pub",
        f"{_PKI}/sa.key",
    ),
    "controller-manager": (
        "kubernetes/controller-manager.conf",
        *_pair(f"{_PKI}/ca"),
        f"{_PKI}/sa.key",
    ),
    "scheduler": ("kubernetes/scheduler.conf", f"{_PKI}/ca.crt"),
    "nodes": ("kubernetes/nodes.conf",),
    "dns": ("kubernetes/dns.conf",),
    "bindings": ("kubernetes/super-admin.conf",),
}
"""The files of each role, by path below the directory of the cluster."""


def files_of_member(name: str) -> tuple[str, ...]:
    """Return the files of a store member."""
    return ("ca.crt", *_pair(name))


def copy_for_machines(directory: Path, members: Iterable[str]) -> None:
    """Copy the files of each role; raises ConfigError."""
    wanted = {**ROLES, **{name: files_of_member(name) for name in members}}
    for role, files in wanted.items():
        _copy(directory, directory / MACHINES / role, files)


def _copy(source: Path, target: Path, files: Sequence[str]) -> None:
    for name in files:
        try:
            content = (source / name).read_bytes()
            if (target / name).exists() and (target / name).read_bytes() == content:
                continue
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror}") from error
        mode = 0o600 if Path(name).suffix in _SECRETS else 0o644
        write_file(target / name, content, mode)
