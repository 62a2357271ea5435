"""Finds a cluster by its address, a token and the hash of its authority's key, as kubeadm does.

1. cluster-info is read from whatever server answers: nothing of it is trusted yet
2. the token's secret is in its signature: it is from who gave the token
3. the authority in it has the hash that was given: another holder of the token made it not
4. it is read again, over TLS that this authority vouches for: it has to say the same
"""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import CONFIG_MAPS
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.over_http import Credentials
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.cluster.bootstrap_tokens import signature
from kvstack.agents.standalone.joining.access import CLUSTER_INFO, PUBLIC
from kvstack.agents.standalone.joining.tokens import Token
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.component.certs.kubeconfig_reader import KubeconfigReader
from kvstack.component.errors import ConfigError

_AGENT: Final = "kvstack-join"
_KUBECONFIG: Final = "kubeconfig"
_AGAIN_S: Final = 0.5
_ASK_S: Final = 10.0
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


class DiscoveredCluster(NamedTuple):
    """A cluster whose identity is verified."""

    server: str
    authority: bytes
    """PEM."""


def parse_hash(text: str) -> str:
    """Return the hash of a flag as it is compared; ValueError."""
    lowered = text.strip().lower()
    if not _HASH.fullmatch(lowered):
        raise ValueError(f"{text}: sha256: and 64 hexadecimal digits")
    return lowered


def key_hash(certificate: x509.Certificate) -> str:
    """Return the hash of a certificate's public key."""
    public = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{hashlib.sha256(public).hexdigest()}"


async def discover(
    server: str, token: Token, hashes: Sequence[str], within_s: float
) -> DiscoveredCluster:
    """Return the cluster at a URL; ConfigError.

    hashes: its authority must have one of them; none: the token alone is trusted. within_s: how
    long a server that is starting, and a signature that is being made, are waited for.
    """
    deadline = asyncio.get_running_loop().time() + within_s
    content = ""
    while not content:
        try:
            content = _verify(await _read(server, None), token)
        except _NotYetError as error:
            if asyncio.get_running_loop().time() + _AGAIN_S >= deadline:
                raise ConfigError(f"{server}: {error}") from error
            await asyncio.sleep(_AGAIN_S)
    cluster = _cluster_in(content)
    _check_hashes(cluster.authority, hashes)
    try:
        again = await _read(server, cluster.authority)
    except _NotYetError as error:
        raise ConfigError(f"{server}: {error}") from error
    if again.get(_KUBECONFIG) != content:
        raise ConfigError(f"{server}: {CLUSTER_INFO} is another where its certificate is checked")
    return cluster


class _NotYetError(Exception):
    """The answer may still change: try again."""


async def _read(server: str, authority: bytes | None) -> dict[str, str]:
    """Return the data of cluster-info, without credentials; authority: None: not verified."""
    place = Cluster(server, Credentials(), authority or b"", insecure=authority is None)
    api = Api(connect(place), Options(user_agent=_AGENT, timeout_s=_ASK_S))
    try:
        config_map = await api.get(CONFIG_MAPS, PUBLIC, CLUSTER_INFO)
    except ApiError as error:
        raise _NotYetError(f"cannot read {PUBLIC}/{CLUSTER_INFO}: {error.message}") from error
    except UnreachableError as error:
        raise _NotYetError(f"it is not reached: {error}") from error
    finally:
        await api.close()
    data = config_map.get("data")
    return data if isinstance(data, dict) else {}


def _verify(data: dict[str, str], token: Token) -> str:
    """Return the kubeconfig that a token signed; ConfigError, _NotYetError."""
    content, given = data.get(_KUBECONFIG), data.get(f"jws-kubeconfig-{token.id}")
    if not isinstance(content, str) or not content or not isinstance(given, str):
        text = f"{CLUSTER_INFO} is not signed with the token {token.id}: it is unknown or has ended"
        raise _NotYetError(text)
    wanted = signature(content, token.id, token.secret)
    if not hmac.compare_digest(given.encode(), wanted.encode()):
        raise ConfigError(f"{CLUSTER_INFO} is signed with another secret than that of {token.id}")
    return content


def _cluster_in(content: str) -> DiscoveredCluster:
    """Return the cluster of a kubeconfig that has one, without a name; ConfigError."""
    try:
        clusters = list(KubeconfigReader(content.encode(), Path()).clusters())
    except DocumentError as error:
        raise ConfigError(f"{CLUSTER_INFO} has no kubeconfig of a cluster: {error}") from error
    if len(clusters) != 1:
        raise ConfigError(f"{CLUSTER_INFO} has no kubeconfig of one cluster: of {len(clusters)}")
    [cluster] = clusters
    if not cluster.server.startswith("https://"):
        raise ConfigError(f"{CLUSTER_INFO} names no server: {cluster.server!r}")
    if not cluster.ca.data:  # a file of this machine is none of the cluster
        raise ConfigError(f"{CLUSTER_INFO} has no certificate-authority-data")
    return DiscoveredCluster(cluster.server, cluster.ca.data)


def _check_hashes(authority: bytes, hashes: Sequence[str]) -> None:
    """Check that an authority has one of the hashes, if there are any; ConfigError."""
    if not hashes:
        return
    try:
        found = [key_hash(each) for each in x509.load_pem_x509_certificates(authority)]
    except ValueError as error:
        raise ConfigError(f"{CLUSTER_INFO} has no CA certificate") from error
    # Of several, each is believed later on: all have to be known.
    unknown = [each for each in found if each not in hashes]
    if unknown:
        raise ConfigError(
            f"the cluster's authority has the hash {unknown[0]}, which is not in "
            "--discovery-token-ca-cert-hash: this is another cluster, or a man in the middle"
        )
