"""Kubeconfig files of clients with certificates."""

import base64
from pathlib import Path
from typing import Final

from kvstack.component.certs.cert_files import write_file
from kvstack.component.certs.certificates import Pair

CLUSTER: Final = "kvstack"


def kubeconfig(server: str, authority: bytes, user: str, client: Pair) -> bytes:
    """Return the file of a user; server: URL, authority: of the server's certificate."""
    context = f"{user}@{CLUSTER}"
    return f"""\
apiVersion: v1
kind: Config
clusters:
- name: {CLUSTER}
  cluster:
    server: {server}
    certificate-authority-data: {_text(authority)}
users:
- name: {user}
  user:
    client-certificate-data: {_text(client.cert)}
    client-key-data: {_text(client.key)}
contexts:
- name: {context}
  context:
    cluster: {CLUSTER}
    user: {user}
current-context: {context}
""".encode()


def write_kubeconfig(path: Path, content: bytes) -> bool:
    """Put a file in place if it has another content; tell whether it had. ConfigError."""
    try:
        if path.read_bytes() == content:
            return False
    except OSError:
        pass  # it is not there, or write_file says what is wrong
    write_file(path, content)
    return True


def _text(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
