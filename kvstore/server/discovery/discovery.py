"""v3 discovery: members of a new cluster find each other in a registry, which is another etcd.

    /_etcd/registry/<token>/_config/size      "3", written by the operator
    /_etcd/registry/<token>/members/<id>      "name=url,name=url", written by each member

    size ─► full already? ─► register ─► wait until there are <size> members ─► the first <size>

Members count in the order of registration, so surplus ones are refused. If the registry does not
answer, requests are retried with exponential back-off and without end, as in etcd. Invalid content
ends the start.
"""

import posixpath
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.config.initial_cluster import read_members
from kvstore.errors import KvstoreError

PREFIX: Final = "/_etcd/registry"
INVALID_URL: Final = "discovery: invalid peer URL"
BAD_SIZE: Final = "discovery: size key is bad"
SIZE_NOT_FOUND: Final = "discovery: size key not found"
FULL_CLUSTER: Final = "discovery: cluster is full"
_DOUBLINGS_MAX: Final = 8
_SIZE_MAX: Final = 2**63 - 1

T = TypeVar("T")


class RegistryError(KvstoreError):
    """The registry did not answer; the request is retried."""


class DiscoveryError(ConfigError):
    """The content of the registry is invalid, or the cluster is full."""


class Row(NamedTuple):
    """One key of the registry."""

    key: str
    value: str
    created: int  # revision


class Registry(Protocol):
    """The registry; each method raises RegistryError if it does not answer."""

    def get(self, key: str) -> Row | None:
        """Return one key, None if it does not exist."""
        ...

    def list(self, prefix: str) -> tuple[list[Row], int]:
        """Return the keys below prefix, and the revision at which they were read."""
        ...

    def put(self, key: str, value: str) -> None:
        """Write one key."""
        ...

    def watch(self, prefix: str, revision: int, is_last: Callable[[Row], bool]) -> None:
        """Call is_last with each key put below prefix from revision on, until it returns True."""
        ...


class Discovery:
    """Registers one member and waits for the others."""

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
        """Register contents under member_id; return the cluster once it is complete.

        contents and the result are name=url,name=url. DiscoveryError if the cluster is full.
        """
        own_key = f"{self._members}/{member_id:x}"
        self._check(own_key)
        self._retried("register member itself", lambda: self._registry.put(own_key, contents))
        self._logger.info(
            "register member itself successfully", memberKey=own_key, memberInfo=contents
        )
        size, members, revision = self._check(own_key)
        if len(members) < size:
            self._wait(members, size, revision)
        return _cluster(members, size)

    def _check(self, own_key: str) -> tuple[int, list[Row], int]:
        """Return (size, members by age, revision); DiscoveryError if the cluster is full."""
        size = self._retried("cluster status check", self._size)
        rows, revision = self._retried(
            "cluster status check", lambda: self._registry.list(self._members)
        )
        members: list[Row] = []
        for row in rows:
            self._add(members, row)
        position = next((at for at, row in enumerate(members) if row.key == own_key), len(members))
        if position >= size:
            raise DiscoveryError(FULL_CLUSTER)
        return size, members, revision

    def _size(self) -> int:
        row = self._registry.get(self._size_key)
        if row is None:
            raise DiscoveryError(SIZE_NOT_FOUND)
        text = row.value.removeprefix("+")
        if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _SIZE_MAX:
            raise DiscoveryError(BAD_SIZE)
        return int(text)

    def _wait(self, members: list[Row], size: int, revision: int) -> None:
        """Watch until there are size members."""
        counts: dict[str, object] = {"clusterSize": size, "found-peers": len(members)}
        self._logger.info("waiting for peers from discovery service", **counts)

        def add(row: Row) -> bool:
            self._add(members, row)
            return len(members) >= size

        self._retried(
            "wait for peers", lambda: self._registry.watch(self._members, revision + 1, add)
        )
        counts["found-peers"] = len(members)
        self._logger.info("found all needed peers from discovery service", **counts)

    def _add(self, members: list[Row], row: Row) -> None:
        row = Row(row.key.strip(), row.value.strip(), row.created)
        problem = ""
        if not row.key.startswith(self._members):
            problem = "invalid peer registry key"
        elif "=" not in row.value:
            problem = "invalid peer info returned from discovery service"
        elif any(each.key == row.key for each in members):
            problem = "found duplicate peer from discovery service"
        if problem:
            self._logger.warning(problem, memberKey=row.key, memberInfo=row.value)
            return
        members.append(row)
        members.sort(key=lambda each: each.created)
        self._logger.info(
            "found peer from discovery service", memberKey=row.key, memberInfo=row.value
        )

    def _retried(self, step: str, ask: Callable[[], T]) -> T:
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


def _cluster(registered: Sequence[Row], size: int) -> str:
    text = ",".join(row.value for row in registered[:size])
    try:
        members = read_members(text)
    except ConfigError:
        raise DiscoveryError(INVALID_URL) from None
    if not members or "" in members:
        raise DiscoveryError(INVALID_URL)
    return text
