"""Gets a node its first client certificate (TLS bootstrap).

await ensure(bootstrap_kubeconfig, kubeconfig, pki, node, clock)

KUBECONFIG     written, and points to the certificate in PKI
"""

import asyncio
import base64
from pathlib import Path
from typing import Final

import yaml

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.kubeconfig import KubeconfigError, Kubeconfigs, connect, load
from kvstack.agents.kubelet.identity import certificates
from kvstack.agents.kubelet.identity.certificates import CLIENT, CLIENT_USAGES
from kvstack.apimachinery.well_known import KUBELET_CLIENT_SIGNER
from kvstack.component.clock import Clock

_KEY: Final = "kubelet-client.key.tmp"


async def ensure(
    bootstrap_kubeconfig: str, kubeconfig: Path, pki: Path, node: str, clock: Clock
) -> None:
    """Get a client certificate and write the kubeconfig, unless one is good; ConfigError."""
    if await asyncio.to_thread(is_good, kubeconfig, clock.now_s()):
        return
    cluster = load(bootstrap_kubeconfig)
    api = Api(connect(cluster), Options(user_agent="kvstack-kubelet-bootstrap"))
    try:
        key = await asyncio.to_thread(certificates.kept_key, pki / _KEY)
        request = certificates.signing_request(key, node, ())
        name = certificates.request_name(key, node, CLIENT_USAGES)
        found = await certificates.signed(api, name, request, KUBELET_CLIENT_SIGNER, CLIENT_USAGES)
    finally:
        await api.close()
    await asyncio.to_thread(certificates.keep, pki, CLIENT, found, key, clock.now_s())
    text = _kubeconfig(bootstrap_kubeconfig, certificates.current(pki, CLIENT))
    await asyncio.to_thread(certificates.write, kubeconfig, text.encode())
    await asyncio.to_thread((pki / _KEY).unlink)


def is_good(kubeconfig: Path, now_s: float) -> bool:
    """Whether a kubeconfig with a valid client certificate exists."""
    if not kubeconfig.exists():
        return False
    try:
        credentials = load(kubeconfig).credentials
        if credentials.certificate:
            return now_s < certificates.lifetime(credentials.certificate)[1]
    except (KubeconfigError, ValueError):
        return False  # it is made anew
    return bool(credentials.token or credentials.token_file)


def _kubeconfig(bootstrap_kubeconfig: str, current: Path) -> str:
    """Return the kubeconfig of the bootstrap with the node's own certificate as its user."""
    entry = Kubeconfigs([Path(bootstrap_kubeconfig)]).cluster_entry()
    cluster: dict[str, object] = {"server": entry.server}
    if entry.ca.data:
        cluster["certificate-authority-data"] = base64.b64encode(entry.ca.data).decode()
    elif entry.ca.file:
        cluster["certificate-authority"] = str(Path(entry.ca.file).absolute())
    if entry.server_name:
        cluster["tls-server-name"] = entry.server_name
    if entry.is_insecure:
        cluster["insecure-skip-tls-verify"] = True
    files = {"client-certificate": str(current.absolute()), "client-key": str(current.absolute())}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{"name": "default-auth", "user": files}],
        "contexts": [
            {
                "name": "default-context",
                "context": {"cluster": "default-cluster", "user": "default-auth"},
            }
        ],
        "current-context": "default-context",
    }
    text: str = yaml.safe_dump(kubeconfig, sort_keys=False)
    return text
