"""Plays one recorded story of the controllers and tells how it differs.

    differences = await Telling(cluster, story).play()

After the actions of a stage it waits until everything is as recorded, and for a while longer, so
that a state that is only passed through does not count. What is still different when time is up is
told.
"""

import asyncio
import base64
import re
from collections import Counter
from collections.abc import Container, Iterable
from datetime import UTC, datetime
from typing import Protocol

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import (
    ALL,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    EVENTS,
    LEASES,
    PODS,
    REPLICA_SETS,
)
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import micro_time_text
from kvstack.apimachinery.schema.load import load
from kvstack.component.clock import Clock
from tests.agents.stories.normal_form import Names, compare_objects, normal_object
from tests.agents.stories.player import EVERY_S, Player

PATIENCE_S = 8.0
_SETTLED_S = 0.4
_MINUTE_S = 60.0
_SHORT = {"pods": "po"}
_PICK = re.compile(r"<pick (\S+) (\S+) (\d+)>")
_UID = re.compile(r"<uid (\w+)/([^>]+)>")
_HEARTBEAT_S = 0.7
_PERIODIC = frozenset(("RegisteredNode",))
"""Reasons of events that a loop with a period tells: in the stage that was recorded, or before."""
_COMBINED = "(combined from similar events): "
_ON_NODE = re.compile(r" on node \S+, (?=will try)")


class Stage(Protocol):
    """A cluster that a story is played on."""

    @property
    def admin(self) -> Api: ...

    @property
    def informers(self) -> Informers: ...

    @property
    def clock(self) -> Clock: ...


class Telling:
    """One story on one cluster, or on a copy after another (`move`)."""

    def __init__(
        self,
        cluster: Stage | None,
        story: Object,
        *,
        components: Container[str],
        patience_s: float = PATIENCE_S,
        known: Container[int] = (),
        every_s: float = EVERY_S,
    ) -> None:
        """cluster: None until `move`; components: whose events are compared, others do not run.

        known: stages that end otherwise than recorded, for which no more patience is had than usual
        every_s: how often scheduler and kubelet look.
        """
        self._components = components
        self._story = story
        self._patience_s = patience_s
        self._known = known
        self._names = Names()
        self._kinds = [_resource(each) for each in story["kinds"]]
        self._player = Player(story["namespace"], story["name"], every_s)
        self._beating: dict[str, None] = {}
        self._heartbeats: asyncio.Task[None] | None = None
        self._seen_events: Counter[str] = Counter()
        self._early_events: Counter[str] = Counter()
        """Of the stage that was recorded next, told in the one before."""
        self._now_early: Counter[str] = Counter()
        if cluster is not None:
            self.move(cluster)

    async def play(self) -> list[list[str]]:
        """Return the differences of each stage."""
        await self.follow()
        try:
            return [
                await self._stage(number, stage)
                for number, stage in enumerate(self._story["stages"])
            ]
        finally:
            await self.rest()

    async def follow(self) -> None:
        """Play, and take note of what comes."""
        for resource in {*self._kinds, PODS, REPLICA_SETS, CONTROLLER_REVISIONS}:
            informer = self._cluster.informers.of(resource)
            await informer.synced()
            informer.on_change(lambda _old, new: self._see(new))
        self._player.start()

    async def rest(self) -> None:
        """End what `follow` and actions began."""
        await self._player.stop()
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait((self._heartbeats,))
            self._heartbeats = None

    def move(self, cluster: Stage) -> None:
        """Go on with another cluster that has the objects of the one before."""
        self._cluster, self._api = cluster, cluster.admin
        self._player.move(cluster.admin, cluster.clock)

    def _see(self, obj: Object | None) -> None:
        if obj is None:
            return
        meta = obj["metadata"]
        name = self._story["name"]
        if meta.get("namespace") == self._story["namespace"] or (
            not meta.get("namespace") and meta["name"].startswith((name, f"s-{name}"))
        ):
            self._names.see(obj)

    async def _stage(self, number: int, stage: Object) -> list[str]:
        failures = await self.do_actions(stage)
        skipped = self._skipped(number)
        patience_s = (
            min(self._patience_s, PATIENCE_S) if number in self._known else self._patience_s
        )
        patience_s *= 3 if stage.get("until") else 1
        if CRON_JOBS in self._kinds:
            patience_s += _MINUTE_S  # until a schedule is due
        deadline = asyncio.get_running_loop().time() + patience_s
        settled = 0.0
        while True:
            found = await self._different(stage, skipped)
            now = asyncio.get_running_loop().time()
            if found:
                settled = 0.0
            elif not settled:
                settled = now
            elif now - settled >= _SETTLED_S:
                break
            if now > deadline:
                break
            await asyncio.sleep(0.1)
        await self._count_events()
        # Objects of two stages differ in age: times of objects are whole seconds.
        await asyncio.sleep(1.01 - self._cluster.clock.now_s() % 1.0)
        return failures + found

    # Actions.

    async def do_actions(self, stage: Object) -> list[str]:
        """Do the actions of a stage; return which were answered otherwise than recorded."""
        failures: list[str] = []
        self._player.placed = _placed(stage)
        for action in stage["actions"]:
            failures += await self._do(action)
        return failures

    async def _do(self, action: Object) -> list[str]:
        if "player" in action:
            self._player.change(action["player"])
        elif "wait" in action:
            await asyncio.sleep(action["wait"])
        elif "heartbeat" in action:
            self._beat(action["heartbeat"])
        elif "add-condition" in action:
            return await self._add_condition(action)
        else:
            return await self._request(action)
        return []

    async def _request(self, action: Object) -> list[str]:
        path = await self._filled(action["path"])
        body = b""
        if "json" in action:
            body = (await self._filled(orjson.dumps(action["json"]).decode())).encode()
        media_type = action.get("content-type", "application/json")
        path, _, query = path.partition("?")
        pairs = dict(each.split("=", 1) for each in query.split("&")) if query else {}
        try:
            await self._api.call(action["method"], path, pairs, body, media_type=media_type)
            status = 200
        except ApiError as error:
            status = error.code
            text = error.message
        else:
            text = ""
        if (status < 400) != (action["status"] < 400) or (
            status >= 400 and status != action["status"]
        ):
            return [f"{action['method']} {path}: wanted {action['status']}, got {status} {text}"]
        return []

    async def _add_condition(self, action: Object) -> list[str]:
        path = await self._filled(action["path"])
        obj = await self._api.call("GET", path.removesuffix("/status"))
        new = orjson.loads(await self._filled(orjson.dumps(action["add-condition"]).decode()))
        status = dict(obj.get("status") or {})
        status["conditions"] = [*(status.get("conditions") or ()), new]
        await self._api.call("PUT", path, {}, orjson.dumps({**obj, "status": status}))
        return []

    async def _filled(self, text: str) -> str:
        now = datetime.fromtimestamp(self._cluster.clock.now_s(), UTC)
        text = text.replace("<now>", now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        for match in list(_PICK.finditer(text)):
            kind, selector, index = match.groups()
            resource = next(
                each
                for each in (*self._kinds, PODS)
                if kind in (each.kind, each.name, str(each), _SHORT.get(each.name))
            )
            found = await self._api.list_all(
                resource, self._story["namespace"], labels=selector.replace("%3D", "=")
            )
            found_names = sorted(each["metadata"]["name"] for each in found)
            text = text.replace(match.group(0), found_names[int(index)])
        for match in list(_UID.finditer(text)):
            wanted = f"{match.group(1)}/{match.group(2)}"
            uid = next(
                (uid for uid, name in reversed(self._names.uids.items()) if name == wanted), None
            )
            if uid is None:
                namespace, _, name = match.group(2).rpartition("/")
                uid = await self._live_uid(match.group(1), namespace, name)
            text = text.replace(match.group(0), uid)
        for match in list(re.finditer(r"<csr subj=(\S*?) san=([^>]*)>", text)):
            text = text.replace(match.group(0), _request_text(*match.groups()))
        return text

    async def _live_uid(self, kind: str, namespace: str, name: str) -> str:
        """Return the uid of an object that no watch has shown, or (namespace) of another one's."""
        resource = next(each for each in self._kinds if each.kind == kind)
        obj = await self._api.get(resource, namespace or self._story["namespace"], name)
        self._names.see(obj)
        uid: str = obj["metadata"]["uid"]
        if namespace:
            self._names.uids[uid] = f"{kind}/{namespace}/{name}"
        return uid

    def _beat(self, nodes: list[str]) -> None:
        async def renew() -> None:
            while True:
                for node in list(self._beating):
                    spec = {
                        "holderIdentity": node,
                        "leaseDurationSeconds": 40,
                        "renewTime": micro_time_text(self._cluster.clock.now_s()),
                    }
                    try:
                        await self._api.patch(
                            LEASES,
                            "kube-node-lease",
                            node,
                            {"spec": spec},
                            "application/merge-patch+json",
                        )
                    except ApiError:
                        meta = {"name": node, "namespace": "kube-node-lease"}
                        lease = {"metadata": meta, "spec": spec}
                        await self._api.create(LEASES, "kube-node-lease", lease)
                await asyncio.sleep(_HEARTBEAT_S)

        self._beating.update(dict.fromkeys(nodes))
        if self._heartbeats is None:
            self._heartbeats = asyncio.get_running_loop().create_task(renew())

    # Comparing.

    def _skipped(self, number: int) -> set[str]:
        """Return the places that differed between two recordings of a stage."""
        differs = self._story.get("differs") or ()
        return {each["at"] for each in differs if each["stage"] == number}

    def compared(self, number: int, objects: Iterable[Object]) -> list[str]:
        """Return how all objects of a cluster differ from those recorded after a stage."""
        stage, name = self._story["stages"][number], self._story["name"]
        kinds = {each.kind for each in self._kinds}
        elsewhere = {
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for each in stage["objects"]
        }
        found = []
        for each in objects:
            meta = each["metadata"]
            if meta.get("namespace") == self._story["namespace"]:
                is_told = each["kind"] in kinds
            elif meta.get("namespace"):
                is_told = (each["kind"], meta["namespace"], meta["name"]) in elsewhere
            else:
                is_told = each["kind"] in kinds and meta["name"].startswith((name, f"s-{name}"))
            if is_told:
                self._names.see(each)
                found.append(each)
        return self._compared(stage, found, self._skipped(number))

    def _compared(self, stage: Object, found: list[Object], skipped: set[str]) -> list[str]:
        for uid, text in list(self._names.uids.items()):
            self._names.uids[uid] = self._names.text(text)
        normal = [normal_object(each, self._names) for each in found]
        return compare_objects(stage["objects"], normal, skipped)

    async def _different(self, stage: Object, skipped: set[str]) -> list[str]:
        found: list[Object] = []
        for resource in self._kinds:
            items = await self._api.list_all(
                resource, self._story["namespace"] if resource.is_namespaced else ""
            )
            for item in items:
                name = self._story["name"]
                if resource.is_namespaced or item["metadata"]["name"].startswith(
                    (name, f"s-{name}")
                ):
                    self._names.see(item)
                    found.append(item)
        found += await self._found_elsewhere(stage["objects"])
        lines = self._compared(stage, found, skipped)
        if not any(each.startswith("event only in") for each in skipped):
            lines += await self._different_events(stage)
        return lines

    async def _found_elsewhere(self, expected: list[Object]) -> list[Object]:
        """Return the objects of other namespaces that a stage shows."""
        found = []
        for each in expected:
            meta = each["metadata"]
            if meta.get("namespace", self._story["namespace"]) == self._story["namespace"]:
                continue
            resource = next(known for known in ALL if known.kind == each["kind"])
            try:
                obj = await self._api.get(resource, meta["namespace"], meta["name"])
            except ApiError:
                continue  # compared as absent
            self._names.see(obj)
            found.append(obj)
        return found

    async def _different_events(self, stage: Object) -> list[str]:
        found = await self._events()
        found.subtract(self._seen_events)
        wanted: Counter[str] = Counter()
        for event in stage.get("events") or ():
            if event["component"] not in self._components:
                continue
            wanted[_line(event)] = event.get("n", 1) if event["type"] == "Normal" else 1
        wanted.subtract(self._early_events)
        soon = {
            _line(event)
            for event in self._next(stage).get("events") or ()
            if event["reason"] in _PERIODIC
        }
        lines: list[str] = []
        self._now_early = Counter()
        for line in sorted(+wanted | +found):
            count = found[line]
            if line.startswith("Warning"):
                count = min(count, 1)
                if line in self._seen_events and line not in wanted:
                    continue  # told before: how often it is tried is a matter of time
            if line in soon and count > wanted[line]:
                self._now_early[line] = count - wanted[line]
            elif count != wanted[line]:
                lines.append(f"event {line}: wanted {wanted[line]}, found {count}")
        return lines

    def _next(self, stage: Object) -> Object:
        stages = self._story["stages"]
        place = next(number for number, each in enumerate(stages) if each is stage)
        return stages[place + 1] if place + 1 < len(stages) else {}

    async def _events(self) -> Counter[str]:
        found: Counter[str] = Counter()
        namespace = self._story["namespace"]
        name = self._story["name"]
        for event in await self._api.list_all(EVENTS):
            about = event["involvedObject"]
            if about.get("namespace") == namespace or (
                not about.get("namespace") and about.get("name", "").startswith((name, f"s-{name}"))
            ):
                text = {
                    "type": event["type"],
                    "reason": event["reason"],
                    "message": event["message"],
                    "object": f"{about['kind']}/{about['name']}",
                    "component": (event.get("source") or {}).get("component")
                    or event.get("reportingComponent", ""),
                }
                found[_line(self._names.value(text))] += 1
        return found

    async def _count_events(self) -> None:
        self._seen_events = await self._events()
        self._early_events = self._now_early


def _placed(stage: Object) -> dict[str, str]:
    """Return where pods of fixed names were when the stage was recorded."""
    return {
        each["metadata"]["name"]: each["spec"]["nodeName"]
        for each in stage["objects"]
        if each["kind"] == "Pod"
        and "<" not in each["metadata"]["name"]
        and "<" not in each["spec"].get("nodeName", "<")
    }


def _line(event: Object) -> str:
    """Return an event in a line.

    Which of several equal pods of a DaemonSet failed is masked, and so is whether a warning was
    combined from ten: as many failures as the time of a stage let happen.
    """
    message = _ON_NODE.sub(" on node <node>, ", event["message"])
    if event["type"] == "Warning":
        message = message.removeprefix(_COMBINED)
    return f"{event['type']} {event['reason']} {event['object']} {event['component']}: {message}"


def _resource(name: str) -> ResourceType:
    plural, _, group = name.partition(".")
    rows = [row for row in load() if row.name == plural and row.group == group]
    rows.sort(key=lambda row: (len(row.version), row.version))
    if plural == "horizontalpodautoscalers":
        rows = [row for row in rows if row.version == "v2"]
    row = rows[0]
    return ResourceType(row.group, row.version, row.name, row.kind.kind, row.is_namespaced)


def _request_text(subject: str, names: str) -> str:
    """Return a new certificate request, as base64 of PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    oids = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME}
    parts = [each.partition("=") for each in subject.strip("/").split("/") if each]
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(oids[kind], value) for kind, _, value in parts])
    )
    if names:
        alternatives = [x509.DNSName(each) for each in names.split(",")]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()
