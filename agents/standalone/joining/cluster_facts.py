"""ConfigMaps that joining machines read, under kubeadm's names.

    kube-public/cluster-info    data.kubeconfig: where the API server is, and its authority (public)
    kube-system/kubelet-config  data.kubelet: the configuration of kubelets: DNS, certificates
    kube-system/kubeadm-config  data.ClusterConfiguration: the ranges of pods and Services

Signatures beside the kubeconfig are the bootstrap signer's; other keys are left as they are.
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CONFIG_MAPS
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.standalone.joining.access import (
    CLUSTER_CONFIG,
    CLUSTER_INFO,
    KUBELET_CONFIG,
    PUBLIC,
    SYSTEM,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.logger import Logger
from kvstack.component.version import KUBERNETES_VERSION

_RETRY_S: Final = 1.0
_RETRY_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What joining machines read of a cluster."""

    server: str
    """URL at which other machines reach the API server."""
    authority: bytes
    """The authority of its certificate and of clients' certificates, as PEM."""
    domain: str = "cluster.local"
    dns: str = ""
    """Address that pods ask for names; empty: as their node does."""
    pods: str = ""
    """Range; empty: pods share their nodes' addresses."""
    services: str = ""

    def maps(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the data of ConfigMaps, by namespace and name."""
        return {
            (PUBLIC, CLUSTER_INFO): {"kubeconfig": _text(self._kubeconfig())},
            (SYSTEM, KUBELET_CONFIG): {"kubelet": _text(self._kubelet())},
            (SYSTEM, CLUSTER_CONFIG): {"ClusterConfiguration": _text(self._cluster())},
        }

    def _kubeconfig(self) -> Object:
        authority = base64.b64encode(self.authority).decode()
        cluster = {"certificate-authority-data": authority, "server": self.server}
        return {
            "apiVersion": "v1",
            "clusters": [{"cluster": cluster, "name": ""}],
            "contexts": None,
            "current-context": "",
            "kind": "Config",
            "preferences": {},
            "users": None,
        }

    def _kubelet(self) -> Object:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [self.dns] if self.dns else [],
            "clusterDomain": self.domain,
            "rotateCertificates": True,
        }

    def _cluster(self) -> Object:
        networking = {"dnsDomain": self.domain}
        networking |= {"podSubnet": self.pods} if self.pods else {}
        networking |= {"serviceSubnet": self.services} if self.services else {}
        return {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": f"v{KUBERNETES_VERSION}",
            "networking": networking,
        }


class FactsKeeper:
    """Writes them once, as soon as it can."""

    def __init__(self, api: Api, facts: ClusterFacts, logger: Logger) -> None:
        """api: as the user of `access`."""
        self._api = api
        self._facts = facts
        self._logger = logger
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to write."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="cluster-info")

    async def stop(self) -> None:
        """Stop writing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        wait_s = _RETRY_S
        waiting = dict(self._facts.maps())
        while waiting:
            try:
                for (namespace, name), data in list(waiting.items()):
                    await keep_map(self._api, namespace, name, data)
                    del waiting[namespace, name]
            except (ApiError, UnreachableError) as error:
                self._logger.warning(
                    "failed to write the ConfigMaps for joining nodes", reason=str(error)
                )
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _RETRY_S_MAX)


async def keep_map(api: Api, namespace: str, name: str, data: Mapping[str, str]) -> None:
    """Create a ConfigMap, or change what differs; ApiError, UnreachableError."""
    try:
        config_map = await api.get(CONFIG_MAPS, namespace, name)
    except ApiError as error:
        if not error.is_not_found:
            raise
        meta = {"name": name, "namespace": namespace}
        fresh = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}
        await api.create(CONFIG_MAPS, namespace, fresh)
        return
    known = config_map.get("data") or {}
    if any(known.get(key) != text for key, text in data.items()):
        kept = {key: text for key, text in known.items() if not key.startswith("jws-")}
        await api.update(CONFIG_MAPS, {**config_map, "data": {**kept, **data}})


def _text(obj: Object) -> str:
    text: str = yaml.safe_dump(obj, sort_keys=False)
    return text
