"""The command `kvstack bindings`: binds roles to the users of `kvstack certs`.

    kvstack bindings --kubeconfig certs/kubernetes/super-admin.conf

    kubeadm:cluster-admins    admin.conf ─► cluster-admin
    kvstack:kubelet-clients   API servers towards kubelets ─► system:kubelet-api-admin
    kvstack:hollow-nodes      nodes.conf ─► system:node

Once per cluster, by a member of system:masters, as kubeadm does it. A binding that is there is left
alone, whatever it says. An API server that is not reachable yet is retried for REACHED_S.
`kvstack up` needs no such step.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.process.flag_rows import CLIENT
from kvstack.agents.process.settings import cluster_of
from kvstack.agents.standalone.rbac import ADMINISTRATORS, KUBELET_CLIENTS, cluster_role_binding
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.server.certs.cluster_files import HOLLOW_NODES
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.flags.flag_table import Effect, Flag, FlagTable, Kind
from kvstack.component.process.command import Command, run_command

COMMAND: Final = "kvstack bindings"
ABOUT: Final = "Grant the users of `kvstack certs` their roles; once per cluster."
FAILED: Final = 1
TABLE: Final = FlagTable(
    (*CLIENT, Flag("help", "Global", Kind.BOOL, "false", Effect.LIVE, "show this text")),
    {"h": "help"},
)
BINDINGS: Final = (
    ADMINISTRATORS,
    KUBELET_CLIENTS,
    cluster_role_binding(HOLLOW_NODES, "system:node", HOLLOW_NODES),
)

_TYPE: Final = ResourceType(
    "rbac.authorization.k8s.io",
    "v1",
    "clusterrolebindings",
    "ClusterRoleBinding",
    is_namespaced=False,
)
REACHED_S: Final = 60.0
_AGAIN_S: Final = 0.5


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _make)


def _make(given: CommandLine) -> None:
    reader = FlagReader(given, [])
    cluster = cluster_of(reader.text("kubeconfig"), reader.text("master"))
    try:
        asyncio.run(_bind(cluster))
    except (ApiError, UnreachableError) as error:
        raise ConfigError(str(error)) from error


async def _bind(cluster: Cluster) -> None:
    api = Api(connect(cluster), Options(user_agent="kvstack-bindings"))
    try:
        deadline = asyncio.get_running_loop().time() + REACHED_S
        for each in BINDINGS:
            how = await _create(api, each, deadline)
            sys.stdout.write(f"clusterrolebinding {each['metadata']['name']} {how}\n")
    finally:
        await api.close()


async def _create(api: Api, binding: dict[str, Any], deadline: float) -> str:
    while True:
        try:
            await api.create(_TYPE, "", binding)
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
