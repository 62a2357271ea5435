"""The small pages: /version and /debug/vars.

    GET /version      {"etcdserver":"3.7.1","etcdcluster":"3.7.0","storage":"3.7.0"}
    GET /debug/vars   {"cmdline": [...], "file_descriptor_limit": ..., "memstats": {...},
                       "raft.status": {...}}

As in Go's expvar, one variable a line. memstats has those of Go's fields that apply here.
"""

import gc
import json
import resource
import sys
import threading
from collections.abc import Callable
from typing import Final

from kvstore.http.exchange import PageRequest, Responder, method_not_allowed
from kvstore.runtime.local_client import CallRefusedError
from kvstore.server.pages.health import NodeHealth
from kvstore.types import SERVER_VERSION

VERSION_PATH: Final = "/version"
VARS_PATH: Final = "/debug/vars"
_KIB: Final = 1024
_PAGE_BYTES: Final = resource.getpagesize()


class VersionPage:
    """The versions of the server, the cluster and the data."""

    def __init__(self, node: NodeHealth, cluster_version: Callable[[], str]) -> None:
        """cluster_version returns the agreed version; empty while there is none."""
        self._node = node
        self._cluster_version = cluster_version

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        """Answer one request."""
        if request.method != "GET":
            await method_not_allowed(respond, "GET")
            return
        try:
            storage = (await self._node.status()).storageVersion
        except CallRefusedError:
            storage = ""  # the server's version is known even so
        versions = {
            "etcdserver": SERVER_VERSION,
            "etcdcluster": self._cluster_version() or "not_decided",
            "storage": storage or "unknown",
        }
        body = json.dumps(versions, separators=(",", ":")).encode()
        await respond.whole(200, [("Content-Type", "application/json")], body)


class VarsPage:
    """The variables that Go programs publish through expvar."""

    def __init__(self, node: NodeHealth) -> None:
        self._node = node

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        """Answer one request."""
        if request.method != "GET":
            await method_not_allowed(respond, "GET")
            return
        variables: dict[str, object] = {
            "cmdline": sys.argv,
            "file_descriptor_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "memstats": _memory(),
        }
        try:
            variables["raft.status"] = await self._raft()
        except CallRefusedError as refused:
            variables["raft.status"] = {"error": refused.text}
        lines = [f'"{name}": {_compact(value)}' for name, value in variables.items()]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        headers = [("Content-Type", "application/json; charset=utf-8")]
        await respond.whole(200, headers, text.encode())

    async def _raft(self) -> dict[str, object]:
        status = await self._node.status()
        own, leader = f"{status.header.member_id:x}", f"{status.leader:x}"
        return {
            "id": own,
            "term": status.raftTerm,
            "commit": status.raftIndex,
            "lead": leader,
            "raftState": "StateLeader" if own == leader else "StateFollower",
            "applied": status.raftAppliedIndex,
        }


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _memory() -> dict[str, int]:
    with open("/proc/self/statm", encoding="ascii") as statm:
        size, resident = [int(each) * _PAGE_BYTES for each in statm.read().split()[:2]]
    return {
        "Sys": size,
        "HeapInuse": resident,
        "MaxResident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB,
        "HeapObjects": sys.getallocatedblocks(),
        "NumGC": sum(each["collections"] for each in gc.get_stats()),
        "NumThread": threading.active_count(),
    }
