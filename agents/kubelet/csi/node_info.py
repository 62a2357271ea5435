"""The CSI drivers of a node in the API: its CSINode, and labels of its Node.

    await info.open()                    the node's CSINode, made if it is missing
    await info.add(name, facts)          id, limit of volumes, topology
    await info.remove(name)

The topology of a driver becomes labels of the Node, which stay when the driver goes: volumes name
them. A CSINode of an earlier Node of the same name is deleted and made anew.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CSI_NODES, NODES
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.csi.node_client import NodeFacts


IDS: Final = "csi.volume.kubernetes.io/nodeid"
"""Annotation of a Node: ids by driver, as JSON."""
_TRIES: Final = 4
_WAIT_S: Final = 0.05
_OPEN_WAITS_S: Final = (0.1, 0.5, 2.0, 10.0, 30.0)
_COUNT_MAX: Final = 2**31 - 1
_ID_MAX: Final = 256


class NodeInfoError(Exception):
    """The node's information of a driver could not be written."""


class NodeInfo:
    """The CSINode and the labels of one node."""

    def __init__(self, api: Api, node: Callable[[], Object], logger: Logger) -> None:
        """node: the Node, as it was read last."""
        self._api = api
        self._node = node
        self._logger = logger
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Make the CSINode unless it is there, however long that takes."""
        waits = iter(_OPEN_WAITS_S)
        while True:
            try:
                async with self._lock:
                    await self._csi_node()
            except (ApiError, UnreachableError) as error:
                wait_s = next(waits, _OPEN_WAITS_S[-1])
                text = "the CSINode of this node could not be made"
                self._logger.warning(text, error=str(error), again_in_s=wait_s)
                await asyncio.sleep(wait_s)
            else:
                return

    async def add(self, name: str, facts: "NodeFacts") -> None:
        """Write a driver's information about the node; NodeInfoError."""
        if not facts.node_id or len(facts.node_id) > _ID_MAX:
            text = "error adding CSI driver node info: driverNodeID must not be empty"
            raise NodeInfoError(f"{text}, nor longer than {_ID_MAX} bytes")
        if facts.volumes_max < 0:
            text = "a CSI driver limits its volumes to less than none; that is ignored"
            self._logger.warning(text, driver=name, limit=facts.volumes_max)
        await self._again(lambda: self._write_node(name, facts.node_id, facts.topology))
        await self._again(lambda: self._write_drivers(name, _entry(name, facts)))

    async def remove(self, name: str) -> None:
        """Remove a driver's information about the node; NodeInfoError."""
        await self._again(lambda: self._write_drivers(name, None))
        await self._again(lambda: self._write_node(name, "", {}))

    async def _again(self, write: Callable[[], Any]) -> None:
        """Write, and retry after conflicts; NodeInfoError."""
        for number in range(_TRIES):
            try:
                async with self._lock:
                    await write()
            except (ApiError, UnreachableError) as error:
                is_met = isinstance(error, ApiError) and (error.is_conflict or error.is_not_found)
                if number + 1 == _TRIES or not is_met:
                    raise NodeInfoError(f"error updating node info: {error}") from error
                await asyncio.sleep(_WAIT_S * 2**number)
            else:
                return

    async def _write_node(self, name: str, node_id: str, topology: Mapping[str, str]) -> None:
        """Write id and topology to the Node; an empty id is removed. NodeInfoError, ApiError."""
        node = await self._api.get(NODES, "", self._node()["metadata"]["name"])
        meta = node["metadata"]
        labels = meta.get("labels") or {}
        for key, value in topology.items():
            if labels.get(key, value) != value:
                raise NodeInfoError(
                    f'detected topology value collision: driver reported "{key}":"{value}" '
                    f'but existing label is "{key}":"{labels[key]}"'
                )
        annotations = meta.get("annotations") or {}
        ids = _with_id(annotations.get(IDS), name, node_id)
        missing = {key: value for key, value in topology.items() if key not in labels}
        if not missing and ids == annotations.get(IDS):
            return
        changed = {"uid": meta["uid"], "annotations": {IDS: ids}, "labels": missing}
        body = orjson.dumps({"metadata": changed})
        path = NODES.path("", meta["name"], "status")
        await self._api.call("PATCH", path, None, body, media_type=STRATEGIC_MERGE_PATCH)

    async def _write_drivers(self, name: str, entry: Object | None) -> None:
        """Write the entry of a driver into the CSINode; None: it has none. ApiError."""
        csi_node = await self._csi_node()
        drivers: Sequence[Object] = csi_node["spec"].get("drivers") or ()
        others = [each for each in drivers if each["name"] != name]
        known = next((each for each in drivers if each["name"] == name), None)
        if known == entry:
            return
        if known is not None and entry is not None and not _may_become(known, entry):
            csi_node = await self._api.update(CSI_NODES, _with_drivers(csi_node, others))
        entries = others if entry is None else [*others, entry]
        await self._api.update(CSI_NODES, _with_drivers(csi_node, entries))

    async def _csi_node(self) -> Object:
        """Return the CSINode of the node, made if it is missing; ApiError."""
        meta = self._node()["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
        try:
            known: Object = await self._api.get(CSI_NODES, "", meta["name"])
            owners = known["metadata"].get("ownerReferences") or ()
            if any(each["kind"] == "Node" and each["uid"] == meta["uid"] for each in owners):
                return known
            await self._api.delete(CSI_NODES, "", meta["name"])
        except ApiError as error:
            if not error.is_not_found:
                raise
        fresh: Object = {
            "apiVersion": CSI_NODES.api_version,
            "kind": CSI_NODES.kind,
            "metadata": {"name": meta["name"], "ownerReferences": [owner]},
            "spec": {"drivers": []},
        }
        made: Object = await self._api.create(CSI_NODES, "", fresh)
        return made


def _entry(name: str, facts: "NodeFacts") -> Object:
    """Return what a CSINode says of a driver."""
    entry: Object = {"name": name, "nodeID": facts.node_id}
    if facts.topology:
        entry["topologyKeys"] = sorted(facts.topology)
    if facts.volumes_max > 0:
        entry["allocatable"] = {"count": min(facts.volumes_max, _COUNT_MAX)}
    return entry


def _may_become(known: Object, entry: Object) -> bool:
    """Whether an entry may be replaced by another: only its limit may change."""
    names = ("nodeID", "topologyKeys")
    return all((known.get(each) or "") == (entry.get(each) or "") for each in names)


def _with_drivers(csi_node: Object, drivers: Sequence[Object]) -> Object:
    return {**csi_node, "spec": {**csi_node["spec"], "drivers": drivers}}


def _with_id(text: str | None, name: str, node_id: str) -> str | None:
    """Return the annotation with the id of a driver; None: it is empty.

    An invalid annotation is replaced.
    """
    try:
        known = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        known = {}
    ids = dict(known) if isinstance(known, dict) else {}
    ids.pop(name, None)
    if node_id:
        ids[name] = node_id
    return orjson.dumps(ids, option=orjson.OPT_SORT_KEYS).decode() if ids else None
