"""The members as the JSON of etcd's version 2 store, which older etcds read from a snapshot.

    /0/members/<id>/raftAttributes   {"peerURLs":[…]}          and isLearner
    /0/members/<id>/attributes       {"name":…,"clientURLs":[…]}  once they are known
    /0/removed_members/<id>          ""
    /0/version                       3.7.0
    /1                               empty

etcd 3.7 writes this text and never reads it. 3.6 and older read it and stop at a bad one. So it is
only written here, from the current members.
"""

from collections.abc import Iterable
from typing import Final

from kvstore.types import MemberId
from kvstore.wire.members import Member, go_json

_NEVER: Final = "0001-01-01T00:00:00Z"
_EVENTS_CAPACITY: Final = 1000  # of the watch history: always that many slots, here all empty
_COUNTERS: Final = (
    "getsSuccess",
    "getsFail",
    "setsSuccess",
    "setsFail",
    "deleteSuccess",
    "deleteFail",
    "updateSuccess",
    "updateFail",
    "createSuccess",
    "createFail",
    "compareAndSwapSuccess",
    "compareAndSwapFail",
    "compareAndDeleteSuccess",
    "compareAndDeleteFail",
    "expireCount",
    "watchers",
)

_Node = dict[str, object]


def encode_v2_store(
    members: Iterable[Member], removed: Iterable[MemberId], cluster_version: str | None
) -> bytes:
    """Return the JSON of a version 2 store with just these members.

    Args: members; removed, the ids of removed members; cluster_version as major.minor.0, None
    while it is not known.
    """
    leaves = _leaves(members, removed, cluster_version)
    root = _directory("/", 0)
    for namespace in ("0", "1"):
        _children(root)[namespace] = _directory(f"/{namespace}", 0)
    for index, (path, value) in enumerate(leaves.items(), 1):
        _add(root, path, value, index)
    history = {
        "Queue": {
            "Events": [None] * _EVENTS_CAPACITY,
            "Size": 0,
            "Front": 0,
            "Back": 0,
            "Capacity": _EVENTS_CAPACITY,
        },
        "StartIndex": 0,
        "LastIndex": len(leaves),
    }
    store: _Node = {
        "Root": root,
        "WatcherHub": {"EventHistory": history},
        "CurrentIndex": len(leaves),
        "Stats": dict.fromkeys(_COUNTERS, 0),
        "CurrentVersion": 2,
    }
    return go_json(store)


def _leaves(
    members: Iterable[Member], removed: Iterable[MemberId], cluster_version: str | None
) -> dict[str, str]:
    leaves: dict[str, str] = {}
    for member in sorted(members, key=lambda member: member.id):
        path = f"/0/members/{member.id:x}"
        raft: _Node = {"peerURLs": member.peer_urls}
        if member.is_learner:
            raft["isLearner"] = True
        leaves[f"{path}/raftAttributes"] = go_json(raft).decode()
        if member.client_urls:
            attributes: _Node = {"name": member.name} if member.name else {}
            attributes["clientURLs"] = member.client_urls
            leaves[f"{path}/attributes"] = go_json(attributes).decode()
    for member_id in sorted(removed):
        leaves[f"/0/removed_members/{member_id:x}"] = ""
    if cluster_version is not None:
        leaves["/0/version"] = cluster_version
    return leaves


def _add(root: _Node, path: str, value: str, index: int) -> None:
    *parents, name = path.strip("/").split("/")
    node, node_path = root, ""
    for part in parents:
        node_path += f"/{part}"
        children = _children(node)
        if part not in children:
            children[part] = _directory(node_path, index)
        node = children[part]
    leaf = _directory(path, index)
    leaf["Value"], leaf["Children"] = value, None
    _children(node)[name] = leaf


def _directory(path: str, index: int) -> _Node:
    children: dict[str, _Node] = {}
    return {
        "Path": path,
        "CreatedIndex": index,
        "ModifiedIndex": index,
        "ExpireTime": _NEVER,
        "Value": "",
        "Children": children,
    }


def _children(node: _Node) -> dict[str, _Node]:
    children = node["Children"]
    assert isinstance(children, dict)
    return children
