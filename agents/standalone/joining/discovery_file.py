"""Discovery files: a kubeconfig with all that a machine needs to join, as kubeadm's.

    write_discovery_file(path, server, authority, token)    0600: whoever reads it can join
    found = read_discovery_file(path)

The file is trusted as it is: no hash is asked for.
"""

import base64
from pathlib import Path
from typing import NamedTuple

import yaml
from cryptography import x509

from kvstack.agents.client.kubeconfig import load
from kvstack.agents.standalone.joining.discovery import key_hash
from kvstack.agents.standalone.joining.tokens import Token, parse
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.certs.cert_files import write_file
from kvstack.component.errors import ConfigError


class DiscoveryFile(NamedTuple):
    """What a file says."""

    server: str
    authority: bytes
    """PEM."""
    hashes: tuple[str, ...]
    """Of the authority's keys."""
    token: Token | None


def read_discovery_file(path: Path) -> DiscoveryFile:
    """Read a file; ConfigError."""
    cluster = load(path)
    try:
        authorities = x509.load_pem_x509_certificates(cluster.ca)
        token = parse(cluster.credentials.token) if cluster.credentials.token else None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    hashes = tuple(map(key_hash, authorities))
    return DiscoveryFile(cluster.server, cluster.ca, hashes, token)


def write_discovery_file(path: Path, server: str, authority: bytes, token: Token) -> None:
    """Write a file."""
    content = bootstrap_kubeconfig(
        {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()},
        token,
    )
    write_file(path, yaml.safe_dump(content, sort_keys=False).encode())


def bootstrap_kubeconfig(cluster: Object, token: Token) -> Object:
    """Return a kubeconfig whose user is a token."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": cluster}],
        "users": [{"name": "token", "user": {"token": str(token)}}],
        "contexts": [{"name": "join", "context": {"cluster": "kubernetes", "user": "token"}}],
        "current-context": "join",
    }
