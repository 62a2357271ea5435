"""Kubeconfig files as they are read: contexts, clusters and users, and the files that they name.

    file = KubeconfigReader(data, Path("/etc/kubernetes"))
    context = file.context(file.current)
    cluster, user = file.cluster(context.cluster), file.user(context.user)
    cluster.server, cluster.ca, user.token, user.cert

A member of another type than it should have is an error; one that is absent, null or empty is not
given. Relative paths begin at the directory of the kubeconfig. What of all that a program supports,
and when it reads the files, is its own decision: an API server reads them for each connection.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvstack.apimachinery.objects.text import yaml_text
from kvstack.apimachinery.objects.text.config_document import Document, DocumentError
from kvstack.apimachinery.objects.text.value_limit import TooManyValuesError
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError

EXEC: Final = "exec"
"""The member of a user that names a program which gives credentials."""
IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
"""The members of a user that say as whom it sends requests."""
AUTH_PROVIDER: Final = "auth-provider"
_LINE_ENDS: Final = {ord("\r"): None, ord("\n"): None}


@dataclass(frozen=True, slots=True)
class Pem:
    """A PEM text, inline or in a file."""

    data: bytes = b""
    file: str = ""

    def __bool__(self) -> bool:
        """Return whether there is one."""
        return bool(self.data or self.file)

    def read(self) -> bytes:
        """Return the text, empty if there is none; raises OSError."""
        return self.data or (Path(self.file).read_bytes() if self.file else b"")


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """Which cluster, and as which user."""

    cluster: str
    user: str
    namespace: str


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """Where a server is, and what to trust."""

    server: str
    ca: Pem
    """Empty: the system's CAs."""
    server_name: str
    """The expected name in the certificate; empty: the host of the URL."""
    is_insecure: bool
    """Whether the certificate is not verified."""
    proxy_url: str


@dataclass(frozen=True, slots=True)
class UserEntry:
    """Credentials."""

    token: str
    token_file: str
    cert: Pem
    key: Pem
    username: str
    password: str
    plugin: dict[str, Any] | None
    """The member `exec`."""
    members: frozenset[str]
    """The names of all members that are given."""


class KubeconfigReader:
    """The content of one file."""

    def __init__(self, data: bytes, directory: Path) -> None:
        """Read the bytes of a file that is in a directory; raises DocumentError."""
        try:
            # As upstream, of a member that is repeated the last one counts.
            self._document: Final = Document(yaml_text.parse(data).value)
        except (YamlError, TooManyValuesError) as error:
            raise DocumentError(str(error)) from None
        self._directory: Final = directory
        self.current: Final = self._document.text("current-context")
        """The name of the current context; empty: there is none."""
        self.contexts: Final = [each.text("name") for each in self._document.items("contexts")]
        """The names of all contexts."""

    def context(self, name: str) -> ContextEntry | None:
        """Return the context of a name; None: there is none."""
        entry = self._entry("contexts", "context", name)
        if entry is None:
            return None
        return ContextEntry(entry.text("cluster"), entry.text("user"), entry.text("namespace"))

    def cluster(self, name: str) -> ClusterEntry | None:
        """Return the cluster of a name; None: there is none."""
        entry = self._entry("clusters", "cluster", name)
        return None if entry is None else self._cluster(entry)

    def clusters(self) -> Iterator[ClusterEntry]:
        """Yield all clusters, whatever their names."""
        for each in self._document.items("clusters"):
            yield self._cluster(each.item("cluster") or Document({}))

    def user(self, name: str) -> UserEntry | None:
        """Return the user of a name; None: there is none."""
        entry = self._entry("users", "user", name)
        return None if entry is None else self._user(entry)

    def _entry(self, members: str, member: str, name: str) -> Document | None:
        for each in self._document.items(members):
            if each.text("name") == name:
                return each.item(member) or Document({})
        return None

    def _cluster(self, entry: Document) -> ClusterEntry:
        return ClusterEntry(
            entry.text("server"),
            self._pem(entry, "certificate-authority"),
            entry.text("tls-server-name"),
            entry.flag("insecure-skip-tls-verify"),
            entry.text("proxy-url"),
        )

    def _user(self, entry: Document) -> UserEntry:
        plugin = entry.plain(EXEC)
        if plugin is not None and not isinstance(plugin, dict):
            raise DocumentError(f"{entry.at(EXEC)} must be an object")
        return UserEntry(
            entry.text("token"),
            self._path(entry.text("tokenFile")),
            self._pem(entry, "client-certificate"),
            self._pem(entry, "client-key"),
            entry.text("username"),
            entry.text("password"),
            plugin,
            frozenset(name for name in entry.names() if entry.plain(name) not in ("", [], {})),
        )

    def _pem(self, entry: Document, name: str) -> Pem:
        if text := entry.text(f"{name}-data"):
            try:
                return Pem(base64.b64decode(text.translate(_LINE_ENDS), validate=True))
            except binascii.Error as error:
                raise DocumentError(f"{entry.at(name)}-data: {error}") from None
        return Pem(file=self._path(entry.text(name)))

    def _path(self, path: str) -> str:
        return str(self._directory / path) if path else ""
