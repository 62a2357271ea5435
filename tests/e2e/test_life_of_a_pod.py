"""The life of a pod: from `kubectl create deployment` to an answer by name, and to its end.

    user ─► API server ─► store ─► controllers ─► scheduler ─► kubelet ─► proxy ─► DNS ─► answer

One cluster of `kvstack up` on a machine of its own. Each step is a function that looks at what one
part alone wrote or did, so the name of the function that failed is the name of the part that did.
What was written, and in which order, is read from the store by etcd's API on its socket.
"""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from dns.message import from_wire, make_query
from dns.rcode import NOERROR, NXDOMAIN

from kvstack.agents.proxy.nftables import program
from kvstack.agents.standalone.store_socket import socket_path
from kvstack.apimachinery.objects.json_object import Object
from kvstore.client import Store, connect
from kvstore.client.values import Event, EventKind, Events
from tests.agents.standalone.test_services import Cluster, cluster
from tests.agents.support.namespaces import has_namespaces
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
    pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-"),
]


POLL_S: Final = 0.2
WAIT_S: Final = 60.0
NAME: Final = "web.default.svc.cluster.local"
DNS_SERVICE: Final = "10.96.0.10"
GET: Final = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read())"
ASK: Final = """
import socket, sys
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(5)
asking.sendto(bytes.fromhex(sys.argv[2]), (sys.argv[1], 53))
print(asking.recv(4096).hex())
"""
SERVE: Final = """
import http.server, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
class Name(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(socket.gethostname().encode())
http.server.ThreadingHTTPServer(("", 8000), Name).serve_forever()
"""
"""Answers with the name of its host, and ends when it is asked to."""
EVERY_KEY: Final = (b"\0", b"\0")


class Written(NamedTuple):
    """One change in the store."""

    revision: int
    key: str
    object: Object
    """As it was stored; empty: the key was deleted."""


class Life:
    """One Deployment of one pod, and what is known of it so far."""

    def __init__(self, here: Cluster, home: Path) -> None:
        self.here = here
        self.marker = str(home)
        """An argument of the pod's process, by which the machine's list of processes has it."""
        self.socket = socket_path(home / "data", os.environ)
        self.deployment: Object = {}
        self.replica_set: Object = {}
        self.pod: Object = {}
        self.service: Object = {}

    # The steps.

    def the_api_server_answers_the_user(self) -> None:
        """It names the object, says who wrote it, and sets what the user left open."""
        command = ("--", "python3", "-c", SERVE, self.marker)
        flags = ("--image=host:latest", "--port=8000", "-o", "json", "--show-managed-fields")
        self.deployment = json.loads(
            self.here.kubectl("create", "deployment", "web", *flags, *command)
        )
        meta = self.deployment["metadata"]
        assert meta["uid"]
        assert meta["generation"] == 1
        assert meta["managedFields"][0]["manager"] == "kubectl-create"
        assert self.deployment["spec"]["revisionHistoryLimit"] == 10

    def the_store_holds_it_at_its_revision(self) -> None:
        """The resourceVersion of the answer is the revision of etcd's key."""
        revision = int(self.deployment["metadata"]["resourceVersion"])
        key = b"/registry/deployments/default/web"
        found = self.store(lambda store: store.get(key, revision=revision)).kv
        assert found is not None
        assert (found.mod_revision, found.create_revision, found.version) == (revision, revision, 1)
        stored = json.loads(found.value)
        assert stored["metadata"]["uid"] == self.deployment["metadata"]["uid"]
        assert "resourceVersion" not in stored["metadata"]
        assert stored["spec"]["template"] == self.deployment["spec"]["template"]

    def the_deployment_controller_makes_a_replica_set(self) -> None:
        """It is owned by the Deployment, and named by the hash of the template."""
        self.replica_set = self.one("replicasets", "app=web")
        meta = self.replica_set["metadata"]
        assert owner_of(self.replica_set) == ("Deployment", self.deployment["metadata"]["uid"])
        assert meta["name"] == f"web-{meta['labels']['pod-template-hash']}"
        said = self.event(self.deployment, "ScalingReplicaSet")
        assert said["source"]["component"] == "deployment-controller"
        assert said["message"] == f"Scaled up replica set {meta['name']} from 0 to 1"

    def the_replica_set_controller_makes_the_pod(self) -> None:
        """It is owned by the ReplicaSet, and at first of no node."""
        self.pod = self.one("pods", "app=web")
        assert owner_of(self.pod) == ("ReplicaSet", self.replica_set["metadata"]["uid"])
        said = self.event(self.replica_set, "SuccessfulCreate")
        assert said["source"]["component"] == "replicaset-controller"
        assert said["message"] == f"Created pod: {self.pod['metadata']['name']}"
        made = self.history(self.key_of_pod())[0].object
        assert made["metadata"]["uid"] == self.pod["metadata"]["uid"]
        assert "nodeName" not in made["spec"]
        assert made["status"]["phase"] == "Pending"

    def the_scheduler_binds_it_to_the_node(self) -> None:
        """The first write with a node changes nothing but the node and the condition."""
        node = self.here.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
        said = self.event(self.pod, "Scheduled")
        assert said["reportingComponent"] == "default-scheduler"
        name = self.pod["metadata"]["name"]
        assert said["message"] == f"Successfully assigned default/{name} to {node}"
        made, bound = self.history(self.key_of_pod())[:2]
        assert bound.object["spec"] == {**made.object["spec"], "nodeName": node}
        [condition] = bound.object["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")

    def the_kubelet_starts_its_container(self) -> None:
        """A process of the machine runs, in a network of its own, with the pod's host name."""
        self.here.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        self.pod = self.one("pods", "app=web")
        for reason in ("Pulled", "Created", "Started"):
            assert self.event(self.pod, reason)["source"]["component"] == "kubelet"
        status = self.pod["status"]
        [container] = status["containerStatuses"]
        assert (container["ready"], container["started"]) == (True, True)
        assert status["podIP"] != status["hostIP"]
        [process] = wait_for(lambda: processes_with(self.marker), "the pod's process")
        own = os.stat(f"/run/netns/{self.here.network.namespace('')}").st_ino
        assert os.stat(f"/proc/{process}/ns/net").st_ino != own
        name = self.pod["metadata"]["name"]
        assert self.here.kubectl("exec", name, "--", "hostname") == name

    def the_endpoint_slice_controller_finds_it(self) -> None:
        """The Service gets an address, and its EndpointSlice that of the pod."""
        self.here.kubectl("expose", "deployment", "web", "--port=80", "--target-port=8000")
        self.service = json.loads(self.here.kubectl("get", "service", "web", "-o", "json"))
        found: Object = {}

        def is_there() -> bool:
            nonlocal found
            found = self.one("endpointslices", "kubernetes.io/service-name=web")
            return bool(found["endpoints"])

        wait_for(is_there, "an endpoint", WAIT_S, every_s=POLL_S)
        labels = found["metadata"]["labels"]
        manager = "endpointslice-controller.k8s.io"
        assert labels["endpointslice.kubernetes.io/managed-by"] == manager
        assert owner_of(found) == ("Service", self.service["metadata"]["uid"])
        [endpoint] = found["endpoints"]
        assert endpoint["addresses"] == [self.pod["status"]["podIP"]]
        assert endpoint["conditions"]["ready"] is True
        assert endpoint["targetRef"]["uid"] == self.pod["metadata"]["uid"]
        assert [each["port"] for each in found["ports"]] == [8000]

    def the_proxy_writes_the_rule_of_its_address(self) -> None:
        """nftables lead the cluster IP to the pod, and the machine is answered there."""
        wait_for(lambda: self.cluster_ip in self.rules(), "the rule", WAIT_S, every_s=POLL_S)
        assert f"dnat to {self.pod['status']['podIP']}:8000" in self.rules()
        assert self.here.status(f"http://{self.cluster_ip}/") == 200

    def dns_tells_its_address(self) -> None:
        """The address of the DNS Service answers with the cluster IP of the name."""
        self.here.run("client", "sleep", "1000")
        wait_for(lambda: self.answer() == [self.cluster_ip], "the name", WAIT_S, every_s=POLL_S)

    def another_pod_reaches_it_by_name(self) -> None:
        """What comes back is what the pod serves: its own name."""
        for name in ("web", "web.default", NAME):
            found = self.here.python("client", GET, f"http://{name}/")
            assert self.pod["metadata"]["name"] in found

    def each_wrote_after_the_one_before(self) -> None:
        """The store's history has the parts in their order, each at a revision of its own."""
        written = self.history("/registry/")
        pod, name = self.key_of_pod(), self.replica_set["metadata"]["name"]
        stages: Sequence[Callable[[Written], bool]] = (
            lambda each: each.key == "/registry/deployments/default/web",
            lambda each: each.key == f"/registry/replicasets/default/{name}",
            lambda each: each.key == pod,
            lambda each: each.key == pod and "nodeName" in each.object["spec"],
            lambda each: each.key == pod and each.object["status"]["phase"] == "Running",
            lambda each: each.key == "/registry/services/specs/default/web",
            lambda each: each.key.startswith("/registry/endpointslices/default/web-"),
        )
        revisions = [next(each.revision for each in written if is_it(each)) for is_it in stages]
        assert revisions == sorted(set(revisions))
        assert revisions[0] == int(self.deployment["metadata"]["resourceVersion"])

    def the_end_undoes_it_all(self) -> None:
        """The garbage collector deletes, the kubelet ends the process, the others forget it."""
        self.here.kubectl("delete", "service", "web")
        self.here.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
        assert self.event(self.pod, "Killing")["source"]["component"] == "kubelet"
        assert not processes_with(self.marker)
        ends = {each.key for each in self.history("/registry/") if not each.object}
        name = self.replica_set["metadata"]["name"]
        assert {f"/registry/replicasets/default/{name}", self.key_of_pod()} <= ends
        wait_for(lambda: self.cluster_ip not in self.rules(), "no rule", WAIT_S, every_s=POLL_S)
        wait_for(lambda: self.answer() == [], "no name", WAIT_S, every_s=POLL_S)

    # What they ask.

    @property
    def cluster_ip(self) -> str:
        return str(self.service["spec"]["clusterIP"])

    def key_of_pod(self) -> str:
        return f"/registry/pods/default/{self.pod['metadata']['name']}"

    def one(self, resource: str, selector: str) -> Object:
        """Return the only object of a selector, once it is there."""

        def read() -> list[Object]:
            text = self.here.kubectl("get", resource, "-l", selector, "-o", "json")
            found: list[Object] = json.loads(text)["items"]
            return found

        [found] = wait_for(read, resource, WAIT_S, every_s=POLL_S)
        return found

    def event(self, of: Object, reason: str) -> Object:
        """Return the event of an object, once it is there."""
        fields = f"involvedObject.uid={of['metadata']['uid']},reason={reason}"

        def read() -> list[Object]:
            text = self.here.kubectl("get", "events", f"--field-selector={fields}", "-o", "json")
            found: list[Object] = json.loads(text)["items"]
            return found

        return wait_for(read, f"the event {reason}", WAIT_S, every_s=POLL_S)[0]

    def rules(self) -> str:
        """Return the rules of the proxy as nft has them."""
        inside = [*self.here.inside(), "nft", "list", "table", "ip", "kube-proxy"]
        return subprocess.run(inside, check=True, capture_output=True, text=True).stdout

    def answer(self) -> list[str]:
        """Have a pod ask the DNS Service for the name; return the addresses."""
        query = make_query(NAME, "A").to_wire().hex()
        found = from_wire(bytes.fromhex(self.here.python("client", ASK, DNS_SERVICE, query)))
        assert found.rcode() in (NOERROR, NXDOMAIN)
        return [each.to_text() for record in found.answer for each in record]

    def store(self, ask: Callable[[Store], Any]) -> Any:
        """Ask the store on its socket."""

        async def body() -> Any:
            async with connect([f"unix://{self.socket}"]) as store:
                return await ask(store)

        return asyncio.run(body())

    def history(self, prefix: str) -> list[Written]:
        """Return all changes of keys since the Deployment was made."""
        first = int(self.deployment["metadata"]["resourceVersion"])
        found: list[Written] = self.store(partial(_history, first=first))
        return [each for each in found if each.key.startswith(prefix)]


async def _history(store: Store, first: int) -> list[Written]:
    # A change of the reader's own, aside from all objects, is the end of what is asked for.
    last = (await store.put(b"life-of-a-pod", b"")).revision
    found: list[Written] = []
    async with asyncio.timeout(WAIT_S), store.watch(*EVERY_KEY, start_revision=first) as watch:
        async for value in watch:
            events = value.events if isinstance(value, Events) else ()
            found += [_written(each) for each in events if each.kv.mod_revision < last]
            if events and events[-1].kv.mod_revision >= last:
                break
    return found


def _written(event: Event) -> Written:
    kv = event.kv
    is_there = event.kind == EventKind.PUT and kv.value.startswith(b"{")
    return Written(kv.mod_revision, kv.key.decode(), json.loads(kv.value) if is_there else {})


def owner_of(found: Object) -> tuple[str, str]:
    """Return kind and uid of the controller of an object."""
    [owner] = found["metadata"]["ownerReferences"]
    assert owner["controller"] is True
    return owner["kind"], owner["uid"]


def processes_with(argument: str) -> list[int]:
    """Return the processes of containers that were given an argument."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            words = place.read_bytes().decode(errors="replace").split("\0")
            if words[0] == "python3" and argument in words:
                found.append(int(place.parent.name))
    return found


def test_the_life_of_a_pod(tmp_path: Path) -> None:
    with cluster(tmp_path) as here:
        life = Life(here, tmp_path)
        life.the_api_server_answers_the_user()
        life.the_store_holds_it_at_its_revision()
        life.the_deployment_controller_makes_a_replica_set()
        life.the_replica_set_controller_makes_the_pod()
        life.the_scheduler_binds_it_to_the_node()
        life.the_kubelet_starts_its_container()
        life.the_endpoint_slice_controller_finds_it()
        life.the_proxy_writes_the_rule_of_its_address()
        life.dns_tells_its_address()
        life.another_pod_reaches_it_by_name()
        life.each_wrote_after_the_one_before()
        life.the_end_undoes_it_all()
