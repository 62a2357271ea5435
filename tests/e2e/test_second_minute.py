"""A newcomer's second minute: what they type after `make run`, and that it works.

    deployment ─► expose ─► curl by name ─► top ─► claim ─► page ─► autoscale

One cluster of `kvstack up` on a machine of its own, with all of its parts and its own settings.
Each step is a function, so the name of the function that failed is what does not work.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from kvstack.agents.proxy.nftables import program
from tests.agents.dashboard.conftest import go, shows, signed_in
from tests.agents.standalone.test_services import Cluster, cluster
from tests.agents.support.namespaces import has_namespaces
from tests.support.browser import PROGRAM, Browser
from tests.support.network.tcp_proxy import TcpProxy
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
    pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no chromium"),
]

WAIT_S: Final = 180.0
"""Longer than a newcomer waits, since machines of tests are busy."""
POLL_S: Final = 0.5
MINUTES_S: Final = {True: 120.0, False: 600.0}
"""All of it, by whether the machine had nothing else to do when it began."""
API_PORT: Final = 6443
GET: Final = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).status)"
BUSY: Final = """
import threading, http.server
class Busy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        total = sum(range(200_000))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(total).encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", 8000), Busy).serve_forever()
"""
LOAD: Final = """
import urllib.request
while True:
    try:
        urllib.request.urlopen("http://web/", timeout=5).read()
    except OSError:
        pass
"""
WRITE: Final = "[ -f /data/text ] || date +%N > /data/text; cat /data/text; exec sleep 100000"


class Minute:
    """The cluster, and the steps."""

    def __init__(self, here: Cluster, home: Path) -> None:
        self.here = here
        self.home = home

    def a_deployment_is_created(self) -> None:
        container = {
            "name": "web",
            "image": "host:latest",
            "command": ["python3", "-c", BUSY],
            "resources": {"requests": {"cpu": "50m"}},
        }
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [container]},
        }
        self.apply("apps/v1", "Deployment", "web", replicas=1, **selected("web"), template=template)
        self.here.kubectl("rollout", "status", "deployment/web", "--timeout=60s")

    def it_is_exposed_and_reached_by_name_from_another_pod(self) -> None:
        self.here.kubectl("expose", "deployment", "web", "--port=80", "--target-port=8000")
        self.here.run("client", "sleep", "100000")
        self.eventually(lambda: self.of("client", GET, "http://web/") == "200", "web answers")
        full = "http://web.default.svc.cluster.local/"
        assert self.of("client", GET, full) == "200"

    def top_says_what_is_used(self) -> None:
        self.eventually(lambda: "%" in self.here.output("top", "nodes"), "top nodes")
        self.eventually(
            lambda: "web" in self.here.output("top", "pods", "--containers"), "top pods"
        )

    def a_stateful_set_with_a_claim_survives_its_pod(self) -> None:
        container = {
            "name": "c",
            "image": "host:latest",
            "command": ["sh", "-c", WRITE],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10Mi"}},
            },
        }
        self.apply(
            "apps/v1",
            "StatefulSet",
            "db",
            serviceName="db",
            **selected("db"),
            template={
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
            volumeClaimTemplates=[claim],
        )
        self.here.kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
        first, uid = self.written(), self.uid("db-0")
        self.here.kubectl("delete", "pod", "db-0")
        self.eventually(lambda: self.uid("db-0") not in ("", uid), "another pod is made")
        self.here.kubectl("wait", "pod/db-0", "--for=condition=Ready", "--timeout=60s")
        assert self.written() == first

    def the_page_shows_it_in_the_browser(self) -> None:
        self.here.kubectl("create", "serviceaccount", "viewer")
        self.here.kubectl(
            *("create", "clusterrolebinding", "viewer", "--clusterrole=cluster-admin"),
            "--serviceaccount=default:viewer",
        )
        token = self.here.kubectl("create", "token", "viewer")
        with self.port() as port, Browser(self.home) as browser:
            page = signed_in(browser, f"https://127.0.0.1:{port}", token)
            go(page, "#/kind/apps/v1/deployments")
            shows(page, "web", "body")
            page.close()

    def it_is_scaled_under_load(self) -> None:
        self.here.kubectl("autoscale", "deployment", "web", "--cpu=50%", "--min=1", "--max=3")
        for name in ("load-1", "load-2"):
            self.here.run(name, "python3", "-c", LOAD)
        self.eventually(lambda: int(self.replicas()) > 1, "more replicas are asked for")
        self.here.kubectl("rollout", "status", "deployment/web", "--timeout=60s")

    # What the steps ask.

    def apply(self, version: str, kind: str, name: str, **spec: Any) -> None:
        file = self.home / "object.json"
        metadata = {"name": name, "namespace": "default"}
        file.write_text(
            json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
        )
        self.here.kubectl("apply", "-f", str(file))

    def of(self, pod: str, script: str, *arguments: str) -> str:
        """Return what a script in a pod says; empty: it failed."""
        return self.here.output("exec", pod, "--", "python3", "-c", script, *arguments).strip()

    def written(self) -> str:
        return self.here.kubectl("exec", "db-0", "--", "cat", "/data/text")

    def uid(self, pod: str) -> str:
        return self.here.output("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")

    def replicas(self) -> str:
        return self.here.kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")

    def eventually(self, is_so: Any, what: str) -> None:
        wait_for(is_so, what, WAIT_S, every_s=POLL_S)

    @contextmanager
    def port(self) -> Iterator[int]:
        """Give a port of this machine that leads to the API server of that machine."""
        listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        # Its threads, which dial, are in the namespace in which it is made.
        relay = self.here.network.run("", lambda: TcpProxy(API_PORT, listening).__enter__())
        try:
            yield relay.port
        finally:
            relay.__exit__(None, None, None)


def selected(app: str) -> dict[str, Any]:
    return {"selector": {"matchLabels": {"app": app}}}


def test_a_newcomers_second_minute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_idle = os.getloadavg()[0] < (os.cpu_count() or 1) / 2
    begin_s = time.monotonic()
    with cluster(tmp_path, has_groups=True) as here:
        minute = Minute(here, tmp_path)
        times = [("the cluster is ready", time.monotonic() - begin_s)]
        for step in (
            minute.a_deployment_is_created,
            minute.it_is_exposed_and_reached_by_name_from_another_pod,
            minute.top_says_what_is_used,
            minute.a_stateful_set_with_a_claim_survives_its_pod,
            minute.the_page_shows_it_in_the_browser,
            minute.it_is_scaled_under_load,
        ):
            step()
            times.append((step.__name__.replace("_", " "), time.monotonic() - begin_s))
        lines = [f"{at_s:6.1f} s  {what}" for what, at_s in times]
        with capsys.disabled():
            sys.stdout.write("\n".join(("", *lines, "")))
        assert times[-1][1] < MINUTES_S[is_idle]
