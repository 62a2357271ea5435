"""What the real controller manager and scheduler ask of an API server is served as recorded.

Played are the reads, as their user and with their Accept: discovery, objects, watches that begin
with what there is. The bodies of writes were not recorded.
"""

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

from kvstack.agents.client.built_in import CONFIG_MAPS, LEASES
from kvstack.agents.client.in_process import InProcess
from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.cluster import TestCluster

RECORDED = Path(__file__).parent / "recorded" / "informers.jsonl.gz"
READS = 137
"""How many of the recorded requests are reads."""
GROUPS = {"admin": ("system:masters",)}
ACCOUNT_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
THERE = (
    # What is there in a cluster with client certificates and leaders.
    (CONFIG_MAPS, "extension-apiserver-authentication"),
    (LEASES, "kube-controller-manager"),
)
PROTOBUF = "application/vnd.kubernetes.protobuf"
FIRST_S = 20.0


def requests() -> Iterator[Object]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield from json.loads(line)["requests"]


def target(request: Object) -> str:
    query = [
        (name, "300" if name == "timeoutSeconds" else text)
        for name, text in request["query"]
        if name != "timeout"
    ]
    return f"{request['path']}?{urlencode(query)}" if query else request["path"]


async def served(cluster: TestCluster, request: Object) -> str:
    """Return what is wrong with an answer; empty: nothing."""
    [user] = request["user"]
    groups = (*GROUPS.get(user, ACCOUNT_GROUPS), "system:authenticated")
    local = cluster.server.local
    transport = InProcess(local.transport, local.token_for(User(user, groups=groups)))
    headers = [("Accept", request["accept"]), ("User-Agent", request["user-agent"])]
    response = await transport.request("GET", target(request), headers, b"", FIRST_S)
    try:
        if response.status not in request["status"]:
            return f"{response.status} instead of {request['status']}: {await response.read()!r}"
        wanted, got = request["accept"].partition(",")[0], response.header("content-type")
        is_object = request["path"].startswith(("/api/", "/apis/"))
        if is_object and wanted.startswith(PROTOBUF) and not got.startswith(PROTOBUF):
            return f"answered in {got}"
        if request["verb"] == "watch":
            async with asyncio.timeout(FIRST_S):
                await anext(aiter(response.pieces()))
    finally:
        response.close()
    return ""


def test_every_read_is_answered_as_recorded(tmp_path: Path) -> None:
    async def play() -> list[str]:
        wrong = []
        async with TestCluster(tmp_path) as cluster:
            for resource, name in THERE:
                made: Object = {"apiVersion": resource.api_version, "kind": resource.kind}
                made["metadata"] = {"name": name, "namespace": "kube-system"}
                await cluster.admin.create(resource, "kube-system", made)
            for request in reads:
                fault = await served(cluster, request)
                if fault:
                    wrong.append(f"{request['user']} {target(request)}: {fault}")
        return wrong

    reads = [each for each in requests() if each["method"] == "GET"]
    assert len(reads) == READS
    wrong = asyncio.run(play())
    assert not wrong, wrong
