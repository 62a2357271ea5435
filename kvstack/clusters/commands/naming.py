"""Resolves a text on a command line to a source.

    default                a fork or a context of this name, or a path
    fork:NAME context:NAME file:PATH      the same, where a name is several of them
    etcd://HOST:PORT,…  etcds://…         an etcd, or our store
    ./k8s  shop.kvs  snapshot.db  default.etcd    files, by what they hold

A text is only resolved here; the contents of a source are not read.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvstack.agents.client.kubeconfig import Cluster, Kubeconfigs
from kvstack.clusters.forks.registry import ForkRegistry
from kvstack.clusters.sources.source import Source, SourceError
from kvstack.component.errors import ConfigError

_ETCD: Final = {"etcd": "http", "etcds": "https"}
_BOLT: Final = b"\xed\xda\x0c\xed"
_BOLT_AT: Final = 16
_HEAD_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """How an etcd is reached."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    user: str = ""

    def check(self) -> None:
        """Raise ConfigError for files that cannot be read, before anything waits for an etcd."""
        files = {
            "etcd-cafile": self.ca_file,
            "etcd-certfile": self.cert_file,
            "etcd-keyfile": self.key_file,
        }
        for flag, path in files.items():
            try:
                if path:
                    Path(path).read_bytes()
            except OSError as error:
                raise ConfigError(f"--{flag} {path}: {error.strerror}") from error
        if bool(self.cert_file) != bool(self.key_file):
            raise ConfigError("--etcd-certfile and --etcd-keyfile need each other")


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source, not opened yet."""

    name: str
    """The name of forks of it."""
    shown: str
    """Its name in messages."""
    open: Callable[[], Source]
    """May run programs that give credentials; raises ConfigError."""


@dataclass(frozen=True, slots=True)
class NamedServer:
    """An API server, and who asks it."""

    shown: str
    """Its name in messages."""
    cluster: Cluster


class Names:
    """Resolves the names of this user."""

    def __init__(
        self,
        registry: ForkRegistry,
        kubeconfigs: Sequence[Path],
        etcd: EtcdAccess,
    ) -> None:
        """kubeconfigs: the files that have contexts; those that are not there have none."""
        self._registry: Final = registry
        self._paths: Final = [each for each in kubeconfigs if each.exists()]
        self._etcd: Final = etcd

    def context(self, name: str = "") -> NamedSource:
        """Return a context, the current one without a name; ConfigError."""
        files, chosen = self._chosen(name)
        return _of_context(files, chosen, chosen)

    def context_server(self, name: str = "") -> NamedServer:
        """Return the server of a context, the current one without a name; ConfigError."""
        files, chosen = self._chosen(name)
        return NamedServer(chosen, files.cluster(chosen, runs_plugins=True))

    def fork_server(self, name: str) -> NamedServer:
        """Return the server of a fork; ConfigError."""
        return NamedServer(name, self._fork_files(name).cluster())

    def _chosen(self, name: str) -> tuple[Kubeconfigs, str]:
        if not self._paths:
            raise ConfigError("no kubeconfig found: set --kubeconfig or KUBECONFIG")
        files = Kubeconfigs(self._paths)
        chosen = name or files.current
        if not chosen:
            raise ConfigError("the kubeconfig has no current context: set --context")
        if chosen not in files.contexts:
            listed = _joined_names(files.contexts)
            raise ConfigError(f"context {chosen!r} does not exist; there are {listed}")
        return files, chosen

    @property
    def current(self) -> str:
        """The name of the current context; empty: there is none."""
        return Kubeconfigs(self._paths).current if self._paths else ""

    def find(self, text: str) -> NamedSource:
        """Return the source that a text names; ConfigError: none, or several."""
        scheme, _, rest = text.partition("://")
        if scheme in _ETCD and rest:
            return self._store(text, _ETCD[scheme], rest)
        word, _, name = text.partition(":")
        ways = {"fork": self._fork, "context": self.context, "file": _path}
        if word in ways and name:
            return ways[word](name)
        openers: dict[str, Callable[[str], NamedSource]] = {}
        if self._registry.find(text) is not None:
            openers["fork"] = self._fork
        elif self._paths and text in Kubeconfigs(self._paths).contexts:
            # A fork's own context means the fork.
            openers["context"] = self.context
        if Path(text).exists():
            openers["file"] = _path
        if not openers:
            raise ConfigError(
                f"{text!r} is not a fork, context, file, directory or etcd:// address"
            )
        if len(openers) > 1:
            words = " or ".join(f"{each}:{text}" for each in openers)
            raise ConfigError(f"{text!r} is ambiguous: use {words}")
        return next(iter(openers.values()))(text)

    def _fork(self, name: str) -> NamedSource:
        return _of_context(self._fork_files(name), "", name)

    def _fork_files(self, name: str) -> Kubeconfigs:
        if self._registry.find(name) is None:
            raise ConfigError(f"fork {name!r} does not exist")
        return Kubeconfigs([self._registry.kubeconfig(name)])

    def _store(self, text: str, scheme: str, rest: str) -> NamedSource:
        endpoints = [f"{scheme}://{each}" for each in rest.split(",") if each]
        access = self._etcd

        def open_() -> Source:
            from kvstack.clusters.sources.etcd import EtcdSource
            from kvstore.client.options import ClientTls

            access.check()
            tls = ClientTls(access.cert_file, access.key_file, access.ca_file)
            return EtcdSource(endpoints, tls, access.user)

        return NamedSource("etcd", text, open_)


def kubeconfig_paths(given: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the files that have contexts, as kubectl finds them."""
    if given:
        if not Path(given).exists():
            raise ConfigError(f"--kubeconfig {given}: file does not exist")
        return [Path(given)]
    named = [Path(each) for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    return named or [Path.home() / ".kube" / "config"]


def kubeconfig_to_write(paths: Sequence[Path]) -> Path:
    """Return the file that new contexts go to: the first that is there, or the last."""
    return next((each for each in paths if each.exists()), paths[-1])


def _of_context(files: Kubeconfigs, context: str, name: str) -> NamedSource:
    def open_() -> Source:
        from kvstack.clusters.sources.api_server import ApiServerSource

        return ApiServerSource(files.cluster(context, runs_plugins=True), name)

    return NamedSource(name, name, open_)


def _path(text: str) -> NamedSource:
    path = Path(text)
    open_ = _opener(path)
    return NamedSource(open_().name, text, open_)


def _opener(path: Path) -> Callable[[], Source]:
    """Return what opens a path, by what it holds; SourceError."""
    if path.is_dir():
        if (path / "member").is_dir():
            return lambda: _state_file(path)
        return lambda: _manifests(path)
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    if not head:
        raise SourceError(f"{path}: the file is empty")
    if head.startswith(b"PK"):
        return lambda: _pack(path)
    if head[_BOLT_AT : _BOLT_AT + len(_BOLT)] == _BOLT:
        return lambda: _state_file(path)
    if b"\0" in head:
        raise SourceError(f"{path}: not a packed file, an etcd database, YAML or JSON")
    return lambda: _manifests(path)


def _state_file(path: Path) -> Source:
    from kvstack.clusters.sources.state_files import StateFileSource

    return StateFileSource(path)


def _pack(path: Path) -> Source:
    from kvstack.clusters.sources.packed import PackSource

    return PackSource(path)


def _manifests(path: Path) -> Source:
    from kvstack.clusters.sources.manifests import ManifestSource

    return ManifestSource([path])


def _joined_names(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (" …" if len(names) > 20 else "") or "none"
