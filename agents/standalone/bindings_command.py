"""The command `kvstack bindings`: binds roles to the users of `kvstack certs`.

    kvstack bindings --kubeconfig certs/kubernetes/super-admin.conf

    kubeadm:cluster-admins    admin.conf ─► cluster-admin
    kvstack:kubelet-clients   API servers towards kubelets ─► system:kubelet-api-admin
    kvstack:hollow-nodes      nodes.conf ─► system:node

Once per cluster, by a member of system:masters, as kubeadm does it. A binding that is there is left
alone, whatever it says. An API server that is not reachable yet is retried for REACHED_S.
`kvstack up` needs no such step.

    … --join-server https://api:6443 --join-file join.conf --cluster-cidr 10.244.0.0/16

also lets machines join: roles and ConfigMaps under kubeadm's names, and a file with a new token for
`kvstack join --discovery-file`.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import CLUSTER_ROLES, SECRETS
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.process.flag_rows import CLIENT
from kvstack.agents.process.settings import cluster_of
from kvstack.agents.standalone import network_policy_access
from kvstack.agents.standalone.joining import access as joining_access
from kvstack.agents.standalone.joining.access import SYSTEM
from kvstack.agents.standalone.joining.cluster_facts import ClusterFacts, keep_map
from kvstack.agents.standalone.joining.discovery_file import write_discovery_file
from kvstack.agents.standalone.joining.join_command import server_of
from kvstack.agents.standalone.joining.tokens import new_token, secret_of
from kvstack.agents.standalone.rbac import ADMINISTRATORS, KUBELET_CLIENTS, cluster_role_binding
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.server.certs.cluster_files import HOLLOW_NODES
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.flags.flag_table import Effect, Flag, FlagTable, Kind
from kvstack.component.process.command import Command, run_command

COMMAND: Final = "kvstack bindings"
ABOUT: Final = "Grant the users of `kvstack certs` their roles; once per cluster."
FAILED: Final = 1
_JOINING: Final = "Joining"


def _flag(name: str, default: str, meaning: str, kind: Kind = Kind.TEXT) -> Flag:
    return Flag(name, _JOINING, kind, default, Effect.LIVE, meaning)


TABLE: Final = FlagTable(
    (
        *CLIENT,
        _flag("join-server", "", "URL of the API for machines that join; empty: none may join"),
        _flag("join-file", "", "file with a new token, for `kvstack join --discovery-file`"),
        _flag("join-token-ttl", "24h", "how long that token is valid", Kind.DURATION),
        _flag("cluster-cidr", "", "ranges of pod addresses, as the controller manager has them"),
        _flag("cluster-dns", "", "DNS server of pods; empty: that of their node"),
        _flag("service-cluster-ip-range", "10.96.0.0/16", "ranges of cluster IPs"),
        Flag("help", "Global", Kind.BOOL, "false", Effect.LIVE, "show this text"),
    ),
    {"h": "help"},
)
BINDINGS: Final = (
    ADMINISTRATORS,
    KUBELET_CLIENTS,
    cluster_role_binding(HOLLOW_NODES, "system:node", HOLLOW_NODES),
)

_FOR_NODES: Final = (*joining_access.OBJECTS, *network_policy_access.OBJECTS)
"""So that machines join, route, and enforce NetworkPolicies."""
_RBAC: Final = "rbac.authorization.k8s.io"
_TYPES: Final = {
    "Role": ResourceType(_RBAC, "v1", "roles", "Role"),
    "RoleBinding": ResourceType(_RBAC, "v1", "rolebindings", "RoleBinding"),
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": ResourceType(
        _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", is_namespaced=False
    ),
}
REACHED_S: Final = 60.0
_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Joining:
    """What machines need that join."""

    facts: ClusterFacts
    file: str
    """For a new token; empty: none is made."""
    ttl_s: float


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _make)


def _make(given: CommandLine) -> None:
    reader = FlagReader(given, [])
    cluster = cluster_of(reader.text("kubeconfig"), reader.text("master"))
    try:
        asyncio.run(_bind(cluster, _joining(reader, cluster)))
    except (ApiError, UnreachableError) as error:
        raise ConfigError(str(error)) from error


def _joining(reader: FlagReader, cluster: Cluster) -> Joining | None:
    server, file = reader.text("join-server"), reader.text("join-file")
    if not server:
        if file:
            raise ConfigError("--join-file needs --join-server")
        return None
    if not cluster.ca:
        raise ConfigError("--join-server: the kubeconfig has no CA that machines could trust")
    ttl_s = reader.seconds("join-token-ttl")
    if ttl_s <= 0:
        raise ConfigError("--join-token-ttl: must be above 0, since the token is in a file")
    facts = ClusterFacts(
        server_of(server),
        cluster.ca,
        dns=reader.text("cluster-dns"),
        pods=reader.text("cluster-cidr"),
        services=reader.text("service-cluster-ip-range"),
    )
    return Joining(facts, file, ttl_s)


async def _bind(cluster: Cluster, joining: Joining | None) -> None:
    api = Api(connect(cluster), Options(user_agent="kvstack-bindings"))
    try:
        deadline = asyncio.get_running_loop().time() + REACHED_S
        for each in (*BINDINGS, *(_FOR_NODES if joining else ())):
            how = await _create(api, each, deadline)
            sys.stdout.write(f"{each['kind'].lower()} {each['metadata']['name']} {how}\n")
        if joining is not None:
            await _let_join(api, joining)
    finally:
        await api.close()


async def _let_join(api: Api, joining: Joining) -> None:
    for (namespace, name), data in joining.facts.maps().items():
        await keep_map(api, namespace, name, data)
        sys.stdout.write(f"configmap {namespace}/{name} written\n")
    if joining.file:
        token = new_token()
        until = format_time(SystemClock().now_s() + joining.ttl_s)
        await api.create(SECRETS, SYSTEM, secret_of(token, "of kvstack bindings", until))
        write_discovery_file(
            Path(joining.file), joining.facts.server, joining.facts.authority, token
        )
        sys.stdout.write(f"a token that is valid until {until} is in {joining.file}\n")


async def _create(api: Api, obj: Mapping[str, Any], deadline: float) -> str:
    namespace = obj["metadata"].get("namespace", "")
    while True:
        try:
            await api.create(_TYPES[obj["kind"]], namespace, dict(obj))
        except ApiError as error:
            if error.is_conflict:
                return "exists"
            raise
        except UnreachableError:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            await asyncio.sleep(_AGAIN_S)
        else:
            return "created"
