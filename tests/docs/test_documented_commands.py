"""The commands of README and docs: each is run here, run by a named test, or listed as not run.

A page with commands of one topic may name one test for all of them (`PAGES`).
"""

import os
import re
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.agents.standalone.test_stack import STOP_S, lines_of, up
from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.docs.pages import ROOT, commands
from tests.support.network.ports import free_ports
from tests.support.servers import ETCDCTL

WAIT_S: Final = 60.0
STARTS: Final = "tests/agents/standalone/test_stack.py"
DOCTOR: Final = "tests/agents/standalone/test_doctor.py"
ENVTEST: Final = "tests/agents/standalone/test_envtest.py"
KUBELET: Final = "tests/agents/kubelet/test_command.py"
SEVERAL: Final = "tests/agents/standalone/test_several_nodes.py"
FARM: Final = "tests/clusters/farm/test_farm.py"
COMPOSE: Final = "tests/agents/topology/test_docker.py"
PAGES: Final = {
    "dashboard.md": "tests/agents/dashboard/test_page.py",
    "dns.md": "tests/agents/standalone/test_dns.py",
    "fork.md": "tests/clusters/commands/test_story.py",
    "plan.md": "tests/clusters/plan/test_plan_story.py",
    "ipv6.md": "tests/agents/standalone/test_dual_stack.py",
    "local-path.md": "tests/agents/standalone/test_local_path.py",
    "network-policies.md": "tests/agents/standalone/test_network_policies.py",
    "resource-metrics.md": "tests/agents/metrics/test_top.py",
    "several-nodes.md": SEVERAL,
    "services.md": "tests/agents/standalone/test_services.py",
    "without-root.md": "tests/agents/standalone/rootless/test_rootless.py",
}
"""Pages whose commands one test runs."""
ELSEWHERE: Final = {
    "etcdctl watch greeting": "tests/e2e/test_etcdctl.py",
    "kvstack doctor": DOCTOR,
    "kvstack envtest ./assets": ENVTEST,
    "kvstack apiserver --etcd-servers=": "tests/apiserver/migration",
    "kvstack farm": FARM,
    "kvstack kubelet": KUBELET,
    "kvstack token create": SEVERAL,
    "kvstack up --data-dir": STARTS,
    "kvstore --name m1": "tests/e2e/members",
    "kvstore-util migrate": "tests/docs/test_util_commands.py",
    "make bench": "tests/e2e/test_bench.py",
    "make run": STARTS,
    "docker compose": COMPOSE,
    "kubectl --kubeconfig certs/kubernetes/admin.conf get nodes": COMPOSE,
}
"""What a command begins with, and the test that runs it or the program that it starts."""
NOT_RUN: Final = {
    "go test ./…": "needs Go and a module; test_envtest.py starts the launchers as envtest does",
}
"""Commands that cannot be run here, and why."""
ONCE: Final = ("kubectl create", "kubectl delete")
ENDLESS: Final = (" logs -f ", " port-forward ", "kubectl proxy", " get pods -w")


def prepared() -> list[str]:
    """Return the commands to run here, each once, in the order of the pages."""
    found = {
        each.text: None
        for each in commands()
        if each.page not in PAGES and not each.text.startswith((*ELSEWHERE, *NOT_RUN))
    }
    return sorted(found, key=lambda text: "kubectl delete" in text)


def test_the_tests_that_are_named_are_there() -> None:
    for path in {*ELSEWHERE.values(), *PAGES.values()}:
        assert (ROOT / path).exists(), path


def test_no_row_is_left_over() -> None:
    texts = [each.text for each in commands()]
    rows = (*ELSEWHERE, *NOT_RUN)
    assert not [row for row in rows if not any(each.startswith(row) for each in texts)]


def test_no_command_needs_a_program_that_tests_do_not_have() -> None:
    here = ("curl", "etcdctl", "etcdutl", "kubectl")
    others = [each for each in prepared() if not each.startswith(here)]
    assert not others, "run them here, or name the test that does"


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces")
@pytest.mark.skipif(shutil.which("nft") is None, reason="the program nft is not installed")
def test_what_users_type_works(tmp_path: Path) -> None:
    try:
        programs = clients("1.37")
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    api, web, proxy = free_ports(3)
    ports = {":6443": f":{api}", "8080": str(web), "kubectl proxy": f"kubectl proxy --port={proxy}"}
    with up(tmp_path / "default.etcd", f"--secure-port={api}") as process:
        exported = [each for each in lines_of(process) if each.startswith("export ")]
        environment = {
            **os.environ,
            **dict(each.removeprefix("export ").split("=", 1) for each in exported),
            "PATH": f"{programs}:{ETCDCTL.parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
        }
        for text in prepared():
            _type(_with(text, ports), tmp_path, environment)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0


def _with(text: str, ports: dict[str, str]) -> str:
    """Return a command with the ports of this test and a time at which its cluster existed."""
    for documented, given in ports.items():
        text = text.replace(documented, given)
    return re.sub(r"/at/20[-\d]+T[:\d]+Z", f"/at/{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", text)


def _type(text: str, directory: Path, environment: dict[str, str]) -> None:
    """Run a command as in a shell, again until it succeeds if that changes nothing."""
    deadline = time.monotonic() + WAIT_S
    while True:
        if any(each in text for each in ENDLESS):
            said = _first_line(text, directory, environment)
            if said and "rror" not in said:
                return
        else:
            done = subprocess.run(
                ["bash", "-c", text],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            if done.returncode == 0:
                return
            said = done.stderr
        assert not text.startswith(ONCE), f"{text}: {said}"
        assert time.monotonic() < deadline, f"{text}: {said}"
        time.sleep(0.2)


def _first_line(text: str, directory: Path, environment: dict[str, str]) -> str:
    """Run a command that does not end by itself until it has printed a line; return the line."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {text}" if ";" not in text else text],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        return process.stdout.readline()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(WAIT_S)
        process.stdout.close()
