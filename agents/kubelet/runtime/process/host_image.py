"""The image `host`, the machine's own files: its user, and hidden paths.

    rules = HostImage(allowed_namespaces=("kube-system",), hidden=("/var/lib/data",), …)

    its pod has a user namespace       any id, of the pod's own: none is one of the machine
    the pod's namespace is allowed     what the pod says; where it says nothing, 65534
    else                               65534, or another id that is unused on the machine

Who runs without a user namespace and is not allowed more has no capabilities, and programs that
are setuid give it none. A pod is given a user namespace of its own unless it shares a namespace
with the machine, says `hostUsers: true`, or is allowed to be root and asks for it.
"""

import grp
import os
import pwd
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.images import is_host
from kvstack.agents.kubelet.runtime.process.user_ids import FIRST
from kvstack.agents.kubelet.runtime.runtime import Sandbox, Security, StartError

NOBODY: Final = 65_534

_SECRETS: Final = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd"),
    *("/etc/kubernetes", "/etc/rancher", "/etc/ssl/private", "/etc/krb5.keytab", "/root"),
    *("/run", "/var/run", "/var/lib/kubelet", "/var/lib/etcd", "/var/lib/rancher"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers"),
)
_HOST_KEYS: Final = ("/etc/ssh", "ssh_host_", "_key")
_OF_HOMES: Final = (
    *(".ssh", ".kube", ".docker", ".gnupg", ".aws", ".azure", ".netrc", ".git-credentials"),
    *(".config/gcloud", ".config/containers", ".local/share/containers", ".pgpass", ".vault-token"),
)


@dataclass(frozen=True, slots=True)
class HostImage:
    """The rules of one node."""

    allowed_namespaces: Sequence[str] = ()
    """Namespaces whose pods may be root of the machine, if they request it."""
    hidden: Sequence[Path] = ()
    """Hidden paths of the node and its cluster: data, keys, credentials."""
    has_user_namespaces: bool = False
    """Whether user namespaces are available."""
    is_there: bool = True
    """Whether the node has the image."""
    nobody: int = NOBODY
    """The default user of containers; 0: a node without root has no other id."""

    def wants_users(self, sandbox: Sandbox) -> bool:
        """Whether a pod gets a user namespace of its own."""
        if sandbox.host_users is not None:
            return not sandbox.host_users
        shares = sandbox.has_host_network or sandbox.has_host_pids or sandbox.has_host_ipc
        is_of_host = self.is_there and any(map(is_host, sandbox.images))
        if shares or not self.has_user_namespaces or not is_of_host:
            return False
        return not (sandbox.asks_for_root and sandbox.namespace in self.allowed_namespaces)

    def limited(self, security: Security, sandbox: Sandbox) -> Security:
        """Return the rights of a container whose pod has no user namespace; raises StartError."""
        is_allowed = sandbox.namespace in self.allowed_namespaces
        is_explicit = security.user is not None or security.is_privileged
        if is_allowed and (is_explicit or sandbox.host_users):
            return security
        for problem in _problems(security):
            raise StartError(
                "CreateContainerConfigError",
                f"image host: {problem} in namespace {sandbox.namespace}, which "
                "--host-root-namespaces does not name",
            )
        return replace(
            security,
            user=self.nobody if security.user is None else security.user,
            group=self.nobody if security.group is None else security.group,
            is_strict=True,  # the machine's /etc/group adds no groups
            added=(),
            dropped=("ALL",),
            no_new_privileges=True,
        )

    def secrets(self) -> list[str]:
        """Return what a container does not see of the machine, whether it is there or not."""
        return [
            *_SECRETS,
            *(str(each.absolute()) for each in self.hidden),
            *_host_keys(),
            *self._of_homes(),
        ]

    def _of_homes(self) -> Iterator[str]:
        """Give what is hidden of homes: the whole of people's from who is the user of the node."""
        own = os.path.expanduser("~")
        for home in sorted({*_homes(), own}):
            is_persons = home.startswith("/home/") or home in ("/root", own)
            if self.nobody == 0 and is_persons and home != "/":
                yield home
            else:
                yield from (f"{home}/{name}" for name in _OF_HOMES)


def _problems(security: Security) -> Iterator[str]:
    """Give what a pod asks for that only pods of allowed namespaces get."""
    if security.is_privileged:
        yield "privileged is not allowed"
    if security.user == 0:
        yield "runAsUser 0 is not allowed"
    if security.user is not None and _is_known(security.user, pwd.getpwuid):
        yield f"runAsUser {security.user} is a user of this machine, and not allowed"
    for group in (security.group, *security.groups):
        if group is not None and _is_known(group, grp.getgrgid):
            yield f"group {group} is a group of this machine, and not allowed"


def _is_known(number: int, look_up: Callable[[int], object]) -> bool:
    """Whether an id may own files of the machine: it has a name, or it is another pod's."""
    if number == NOBODY:
        return False
    if number >= FIRST:
        return True
    try:
        look_up(number)
    except KeyError:
        return False
    return True


def _host_keys() -> Iterator[str]:
    directory, start, end = _HOST_KEYS
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        if name.startswith(start) and name.endswith(end):
            yield f"{directory}/{name}"


def _homes() -> set[str]:
    """Return the homes of the machine's users, by its /etc/passwd and /home."""
    try:
        lines = Path("/etc/passwd").read_text(errors="replace").splitlines()
    except OSError:
        lines = []  # a machine without users
    found = {row[5] for line in lines if len(row := line.split(":")) > 6 and row[5] != "/"}
    if os.path.isdir("/home"):
        found |= {f"/home/{name}" for name in os.listdir("/home")}
    return found
