"""Founding by a registry (v3 discovery): members that do not know each other meet in another etcd.

    /_etcd/registry/<token>/_config/size      "3", put there by the operator
    /_etcd/registry/<token>/members/<id>      "name=url,name=url", put there by each member

    size ─► am I too late? ─► register ─► wait until there are as many ─► the first <size> of them

Who was registered first counts, so that of too many the last ones are turned away. A registry that
does not answer is asked again, later and later, without end, as etcd does; what it holds and cannot
be meant ends the founding.
"""

import posixpath
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from kvstore.config.initial_cluster import read_members
from kvstore.config.model import Config
from kvstore.errors import ConfigError, KvstoreError
from kvstore.logger import Logger

PREFIX: Final = "/_etcd/registry"
INVALID_URL: Final = "discovery: invalid peer URL"
BAD_SIZE: Final = "discovery: size key is bad"
SIZE_NOT_FOUND: Final = "discovery: size key not found"
FULL_CLUSTER: Final = "discovery: cluster is full"
_DOUBLINGS_MAX: Final = 8
_SIZE_MAX: Final = 2**63 - 1

T = TypeVar("T")


class RegistryError(KvstoreError):
    """The registry did not answer; it may later."""


class DiscoveryError(ConfigError):
    """What the registry holds makes no cluster with this member."""


class Row(NamedTuple):
    """One key of the registry."""

    key: str
    value: str
    created: int  # revision


class Registry(Protocol):
    """The other etcd; each method raises RegistryError if it does not answer."""

    def get(self, key: str) -> Row | None:
        """Return one key, if it is there."""
        ...

    def list(self, prefix: str) -> tuple[list[Row], int]:
        """Return the keys below prefix, and the revision at which they were read."""
        ...

    def put(self, key: str, value: str) -> None:
        """Write one key."""
        ...

    def watch(self, prefix: str, revision: int, found: Callable[[Row], bool]) -> None:
        """Give found every key that is put below prefix from revision on, until it is content."""
        ...


class Discovery:
    """One member's way into the registry and out of it with a cluster."""

    def __init__(
        self,
        registry: Registry,
        token: str,
        logger: Logger,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._registry = registry
        self._logger = logger
        self._sleep = sleep
        root = posixpath.join(PREFIX, token)
        self._size_key: Final = f"{root}/_config/size"
        self._members: Final = f"{root}/members"
        self._retries = 0

    def join(self, member_id: int, contents: str) -> str:
        """Register contents under member_id; return the whole cluster once it is there.

        contents and what is returned are name=url,name=url; DiscoveryError if it cannot be.
        """
        own_key = f"{self._members}/{member_id:x}"
        self._check(own_key)
        self._patiently("register member itself", lambda: self._registry.put(own_key, contents))
        self._logger.info(
            "register member itself successfully", memberKey=own_key, memberInfo=contents
        )
        size, found, revision = self._check(own_key)
        if len(found) < size:
            self._wait(found, size, revision)
        return _cluster(found, size)

    def _check(self, own_key: str) -> tuple[int, list[Row], int]:
        """Return size, members by age, and the revision; DiscoveryError if there is no room."""
        size = self._patiently("cluster status check", self._size)
        rows, revision = self._patiently(
            "cluster status check", lambda: self._registry.list(self._members)
        )
        found: list[Row] = []
        for row in rows:
            self._add(found, row)
        place = next((at for at, row in enumerate(found) if row.key == own_key), len(found))
        if place >= size:
            raise DiscoveryError(FULL_CLUSTER)
        return size, found, revision

    def _size(self) -> int:
        row = self._registry.get(self._size_key)
        if row is None:
            raise DiscoveryError(SIZE_NOT_FOUND)
        text = row.value.removeprefix("+")
        if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _SIZE_MAX:
            raise DiscoveryError(BAD_SIZE)
        return int(text)

    def _wait(self, found: list[Row], size: int, revision: int) -> None:
        """Watch until there are as many members as there must be."""
        counts: dict[str, object] = {"clusterSize": size, "found-peers": len(found)}
        self._logger.info("waiting for peers from discovery service", **counts)

        def add(row: Row) -> bool:
            self._add(found, row)
            return len(found) >= size

        self._patiently(
            "wait for peers", lambda: self._registry.watch(self._members, revision + 1, add)
        )
        counts["found-peers"] = len(found)
        self._logger.info("found all needed peers from discovery service", **counts)

    def _add(self, found: list[Row], row: Row) -> None:
        row = Row(row.key.strip(), row.value.strip(), row.created)
        fault = ""
        if not row.key.startswith(self._members):
            fault = "invalid peer registry key"
        elif "=" not in row.value:
            fault = "invalid peer info returned from discovery service"
        elif any(each.key == row.key for each in found):
            fault = "found duplicate peer from discovery service"
        if fault:
            self._logger.warning(fault, memberKey=row.key, memberInfo=row.value)
            return
        found.append(row)
        found.sort(key=lambda each: each.created)
        self._logger.info(
            "found peer from discovery service", memberKey=row.key, memberInfo=row.value
        )

    def _patiently(self, step: str, ask: Callable[[], T]) -> T:
        while True:
            try:
                answer = ask()
            except RegistryError as error:
                self._retries += 1
                pause_s = 1 << min(self._retries, _DOUBLINGS_MAX)
                self._logger.warning(
                    "retry connecting to discovery service",
                    reason=step,
                    backoff=f"{pause_s}s",
                    error=str(error),
                )
                self._sleep(pause_s)
            else:
                self._retries = 0
                return answer


def _cluster(found: Sequence[Row], size: int) -> str:
    text = ",".join(row.value for row in found[:size])
    try:
        members = read_members(text)
    except ConfigError:
        raise DiscoveryError(INVALID_URL) from None
    if not members or "" in members:
        raise DiscoveryError(INVALID_URL)
    return text


def discoverer(config: Config, logger: Logger) -> Callable[[int, str], str] | None:
    """Return what joins the cluster of --discovery-token, given an id and name=url; None without.

    It raises ConfigError if there is no place in that cluster.
    """
    endpoints = config.values["discovery-endpoints"]
    assert isinstance(endpoints, tuple)
    if not endpoints:
        return None
    token = str(config.values["discovery-token"])
    fields: dict[str, object] = {
        "discovery-token": token,
        "discovery-endpoints": ",".join(endpoints),
    }

    def join(member_id: int, contents: str) -> str:
        from kvstore.server.discovery.registry import open_registry

        logger.info("Bootstrapping cluster using v3 discovery.")
        with open_registry(config) as registry:
            try:
                cluster = Discovery(registry, token, logger).join(member_id, contents)
            except (DiscoveryError, RegistryError) as error:
                logger.error("discovery failed to join cluster", **fields, error=str(error))
                logger.warning("failed to bootstrap; discovery token was already used", **fields)
                logger.warning(
                    "do not reuse discovery token; generate a new one to bootstrap a cluster"
                )
                raise ConfigError(f"failed to join discovery cluster ({error})") from None
        logger.info("discovery joined cluster successfully", **fields, cluster=cluster)
        return cluster

    return join
