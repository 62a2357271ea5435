"""The certificates and kubeconfigs of a cluster of several machines, made on one machine.

    DIR/ca, NAME of each member, client                         the store's: its own authority
    DIR/kubernetes/pki/ca                                       the cluster's authority
    DIR/kubernetes/pki/{apiserver,apiserver-kubelet-client,front-proxy-ca,front-proxy-client,sa}
    DIR/kubernetes/{admin,super-admin,controller-manager,scheduler,nodes,dns}.conf
    DIR/machines/ROLE                                           copies: what one machine needs

Valid files are left alone; those that expire soon or are for other names are replaced. A machine
gets the directory of its role and nothing else (`machine_files` has the table). The keys of the
authorities stay on the machine that runs this, except the one with which the controller manager
signs.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvstack.apiserver.allocators.cluster_ips import AddressRange
from kvstack.apiserver.server.certs.machine_files import copy_for_machines
from kvstack.apiserver.server.certs.pki import ADMINISTRATORS, KUBELET_CLIENT
from kvstack.apiserver.server.certs.serving_certificate import serving_hosts
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile
from kvstack.component.certs.kubeconfig import kubeconfig, write_kubeconfig
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError

HOLLOW_NODES: Final = "kvstack:hollow-nodes"
"""The user and the group of hollow nodes; `kvstack bindings` prints its bindings."""
DNS: Final = "kvstack:dns"
"""The user of `kvstack dns`."""
_LOCAL: Final = ("localhost", "127.0.0.1")
_USERS: Final = (
    ("controller-manager", Profile("system:kube-controller-manager")),
    ("scheduler", Profile("system:kube-scheduler")),
    ("nodes", Profile(HOLLOW_NODES, groups=(HOLLOW_NODES,))),
    ("dns", Profile(DNS)),
)
"""The agents' kubeconfigs and their users."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The machines of a cluster."""

    members: tuple[str, ...]
    """Names or addresses of the store's members."""
    api_servers: tuple[str, ...]
    """All names and addresses of the API servers."""
    server: str
    """The URL in the agents' kubeconfigs."""
    admin_server: str
    """The URL in the administrator's kubeconfig."""
    service_ranges: tuple[AddressRange, ...]


def make_cluster_files(directory: Path, plan: ClusterPlan, clock: Clock) -> list[str]:
    """Make what is missing; return the names of what was made. Raises ConfigError."""
    now_s = clock.unix_ms() / 1000
    made = _store_files(CertFiles(directory), plan, now_s)
    made += _kubernetes_files(directory / "kubernetes", plan, now_s)
    copy_for_machines(directory, plan.members)
    return made


def give_to(directory: Path, user: int, group: int) -> None:
    """Make a user the owner of all files; others may read certificates only. Raises ConfigError."""
    try:
        for path in (directory, *sorted(directory.rglob("*"))):
            os.chown(path, user, group)
            if path.is_dir():
                path.chmod(0o755)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error


def _store_files(files: CertFiles, plan: ClusterPlan, now_s: float) -> list[str]:
    names = []
    files.authority("ca", "kvstore-ca", now_s)
    for name in plan.members:
        # Valid for servers and clients: members are each other's clients.
        profile = Profile(name, hosts=(name, *_LOCAL), serves=True, asks=True)
        names += [name] if files.pair(name, "ca", profile, now_s) else []
    names += ["client"] if files.pair("client", "ca", Profile("client"), now_s) else []
    return names


def _kubernetes_files(directory: Path, plan: ClusterPlan, now_s: float) -> list[str]:
    files = CertFiles(directory / "pki")
    authority = files.authority("ca", "kubernetes", now_s)
    files.authority("front-proxy-ca", "front-proxy-ca", now_s)
    files.key("sa")
    hosts = serving_hosts(plan.api_servers, plan.service_ranges)
    pairs = (
        ("apiserver", "ca", Profile("kube-apiserver", hosts=hosts, serves=True)),
        ("apiserver-kubelet-client", "ca", KUBELET_CLIENT),
        ("front-proxy-client", "front-proxy-ca", Profile("front-proxy-client")),
        *((name, "ca", profile) for name, profile in (*ADMINISTRATORS, *_USERS)),
    )
    names = [name for name, signer, profile in pairs if files.pair(name, signer, profile, now_s)]
    configs = (
        ("admin", _name_of("admin"), plan.admin_server),
        ("super-admin", _name_of("super-admin"), plan.server),
        *((name, profile.name, plan.server) for name, profile in _USERS),
    )
    for name, user, server in configs:
        pair = files.read(name)
        assert pair is not None, "it was just made"
        content = kubeconfig(server, authority.cert, user, pair)
        if write_kubeconfig(directory / f"{name}.conf", content):
            names.append(f"{name}.conf")
    return names


def _name_of(administrator: str) -> str:
    return next(profile.name for name, profile in ADMINISTRATORS if name == administrator)
