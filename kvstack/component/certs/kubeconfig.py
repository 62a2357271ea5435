"""Kubeconfig files of clients with certificates."""

import base64
from pathlib import Path
from typing import Final

from kvstack.component.certs.cert_files import write_file
from kvstack.component.certs.certificates import Pair

CLUSTER: Final = "kvstack"
_MEMBERS: Final = ("clusters", "users", "contexts")


def kubeconfig(server: str, authority: bytes, user: str, client: Pair) -> bytes:
    """Return a user's kubeconfig; server: URL, authority: that of the server's certificate."""
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
    """Write a kubeconfig if it differs; return whether it did. Raises ConfigError.

    Other clusters, users and contexts in the file stay, and so does the current context.
    """
    try:
        before = path.read_bytes()
    except OSError:
        before = b""  # it does not exist, or write_file reports the error
    if before == content:
        return False
    merged = _merged(before, content)
    if merged is None:
        return False
    write_file(path, merged)
    return True


def _merged(before: bytes, content: bytes) -> bytes | None:
    """Return a file merged with the entries of another; None if it has them."""
    import yaml  # rarely needed

    try:
        old = yaml.safe_load(before)
    except yaml.YAMLError:
        return content
    if not isinstance(old, dict):
        return content
    new = yaml.safe_load(content)
    merged = {**old}
    for members in _MEMBERS:
        entries = [each for each in old.get(members) or () if isinstance(each, dict)]
        names = {each["name"] for each in new[members]}
        merged[members] = [*new[members], *(e for e in entries if e.get("name") not in names)]
        is_same = sorted(merged[members], key=str) == sorted(entries, key=str)
        merged[members] = entries if is_same else merged[members]
    merged["current-context"] = old.get("current-context") or new["current-context"]
    if merged == old:
        return None
    is_alone = all(len(merged[members]) == len(new[members]) for members in _MEMBERS)
    return content if is_alone else yaml.safe_dump(merged, sort_keys=False).encode()


def _text(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
