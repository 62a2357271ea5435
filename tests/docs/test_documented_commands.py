"""The commands of README and docs: each is run by a test that has to change with the page.

typed      here, in one cluster, as they stand on the pages (`prepared`)
begun      here, each for a cluster of its own (`starts`)
played     by tests that read the page, as a story (`PLAYED`)
held       by a named test, whose source has the command letter for letter (`HELD`)
not run    for a reason that is stated (`NOT_RUN`); of our own programs the flags are checked
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.agents.standalone.test_stack import STOP_S, lines_of, up
from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.clusters.support.stories import story_of
from tests.docs.command_lines import faults
from tests.docs.pages import ROOT, Documented, commands, pages, spans
from tests.support.documented import texts
from tests.support.network.ports import free_ports
from tests.support.network.service_rules import service_rules
from tests.support.servers import ETCDCTL
from tests.support.waiting import wait_for

OWN: Final = Path(sys.executable).parent
"""Our own programs."""
WAIT_S: Final = 60.0
PLAYED: Final = (
    story_of("fork.md"),
    story_of("fork.md", "A clock of its own"),
    story_of("plan.md"),
)
"""Stories that tests of tests/clusters play: they read the page."""
SEVERAL: Final = "tests/agents/standalone/test_several_nodes.py"
COMPOSE: Final = "tests/agents/topology/test_docker.py"
DUAL_STACK: Final = "tests/agents/standalone/test_dual_stack.py"
METRICS: Final = "tests/agents/metrics/test_top.py"
SERVICES: Final = "tests/agents/standalone/test_services.py"
ROOTLESS: Final = "tests/agents/standalone/rootless/test_rootless.py"
HELD: Final = {
    "ipv6.md": {
        "kvstack up --bind-address=::": SEVERAL,
        "kvstack up --cluster-cidr=10": DUAL_STACK,
        "kvstack up --service-cluster-ip-range=fd00": DUAL_STACK,
    },
    "performance.md": {"make bench": "tests/e2e/test_bench.py"},
    "resource-metrics.md": {
        "kubectl": METRICS,
        "kvstack metrics": "tests/agents/metrics/test_command.py",
    },
    "running-a-cluster.md": {
        "docker compose": COMPOSE,
        "kubectl --kubeconfig": COMPOSE,
        "kvstack token": SEVERAL,
        "kvstore --name": "tests/e2e/members/test_documented_members.py",
    },
    "services.md": {
        "kubectl": SERVICES,
        "curl": SERVICES,
        "kvstack proxy": "tests/agents/proxy/test_process.py",
    },
    "several-nodes.md": {
        "kubectl": SEVERAL,
        "kvstack cni": "tests/agents/kubelet/cni/test_plugin.py",
        "kvstack join": SEVERAL,
        "kvstack token": SEVERAL,
        "kvstack up": SEVERAL,
    },
    "testing.md": {"kvstack farm": "tests/clusters/farm/test_farm.py"},
    "without-root.md": {"kubectl": ROOTLESS, "curl": ROOTLESS, "kvstack up": ROOTLESS},
}
"""By page and what commands begin with: the test that runs them. It has them letter for letter."""
NOT_RUN: Final = {
    "go test ./…": "needs Go and a module; test_envtest.py starts the launchers as envtest does",
    "kvstack apiserver": "needs the other's flags; test_migration.py starts it on real etcd's data",
    "kvstack dns --kubeconfig dns.conf": "needs an address that others reach; see test_docker.py",
    "kvstack kubelet --kubeconfig default.etcd": "needs containerd; see test_cri_driver.py",
    "kvstore-util migrate": "test_util_commands.py runs it, and reads the page",
    "make conformance": "needs a release's program and images; see tests/conformance/kubernetes",
}
"""Commands that are not run here, and why."""
STARTS: Final = ("make run", "kvstack up")
ONCE: Final = ("kubectl create", "kubectl delete")
ENDLESS: Final = (" logs -f ", " port-forward ", "kubectl proxy", " get pods -w", "etcdctl watch ")
INSTEAD: Final = {
    "etcdctl watch greeting": "etcdctl watch greeting --rev=1",  # the changes that were
    "kvstack:network-policies": "own:network-policies",  # `kvstack up` has made the other
}
"""What is typed in the place of what a page has."""


def prepared() -> list[str]:
    """Return the commands to run here, each once, in the order of the pages."""
    played = {line for story in PLAYED for line in story}
    found = {
        each.text: None
        for each in commands()
        if each.text not in played
        and not holder(each)
        and not each.text.startswith((*STARTS, *NOT_RUN))
    }
    return sorted(found, key=lambda text: "kubectl delete" in text)


def starts() -> list[str]:
    """Return the commands that start a cluster, each once, but those that other tests hold."""
    own = (each for each in commands() if each.text.startswith(STARTS) and not holder(each))
    return list(dict.fromkeys(each.text for each in own))


def holder(command: Documented) -> str:
    """Return the test that has to hold a command; empty: none."""
    rows = HELD.get(command.page, {}).items()
    return next((path for begin, path in rows if command.text.startswith(begin)), "")


def test_tests_hold_the_commands_that_they_are_to_prove() -> None:
    missing = [
        f"{command.page}: {command.text}: not in {path}"
        for command in commands()
        if (path := holder(command)) and command.text not in texts(ROOT / path)
    ]
    assert not missing


def test_own_programs_have_the_flags_that_pages_name() -> None:
    named = [
        *((page.name, " ".join(text.split())) for page in pages() for text in spans(page)),
        *commands(),
    ]
    assert len(named) > 400
    assert not [(page, text, found) for page, text in named if (found := faults(text))]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kvstack up --data-dir DIR --node 3", "kvstack up has no flag --node"),
        ("kvstack up --data-dir $(mktemp -d) --nodes 3 | tee log --x", ""),
        ("kvstack up --log-level loud", "--log-level loud: one of debug"),
        ("kvstack token make", "kvstack token has no action make"),
        ("kvstack token create|list", ""),
        ("kvstack plan -o markdown -- kubectl drain x --force", ""),
        ('make run ARGS="--node 3"', "kvstack up has no flag --node"),
        ('make run ARGS="--nodes 3"', ""),
        ("kvstore --data-dirs x", "data-dirs"),
    ],
)
def test_flags_that_are_not_there_are_found(text: str, fault: str) -> None:
    found = "\n".join(faults(text))
    assert fault in found
    assert bool(fault) == bool(found)


def test_the_tests_that_are_named_are_there() -> None:
    for path in {path for rows in HELD.values() for path in rows.values()}:
        assert (ROOT / path).is_file(), path


def test_no_row_is_left_over() -> None:
    left = [
        (page, begin)
        for page, rows in HELD.items()
        for begin in rows
        if not any(each.page == page and each.text.startswith(begin) for each in commands())
    ]
    begun = [each.text for each in commands()]
    left += [
        ("", row) for row in (*STARTS, *NOT_RUN) if not any(each.startswith(row) for each in begun)
    ]
    assert not left


def test_no_command_needs_a_program_that_tests_do_not_have() -> None:
    here = ("curl", "etcdctl", "etcdutl", "kubectl", "kvstack")
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
    ports |= {"kvstack doctor": f"kvstack doctor --secure-port={api}"} | INSTEAD
    with up(tmp_path / "default.etcd", f"--secure-port={api}") as process:
        exported = [each for each in lines_of(process) if each.startswith("export ")]
        environment = {
            **os.environ,
            **dict(each.removeprefix("export ").split("=", 1) for each in exported),
            "PATH": f"{programs}:{ETCDCTL.parent}:{OWN}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
        }
        for text in prepared():
            _type(_with(text, ports), tmp_path, environment)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("text", starts())
def test_what_starts_a_cluster(text: str, tmp_path: Path) -> None:
    """Ctrl-C ends it; `make` makes nothing here, and starts what runs the tests."""
    try:
        programs = clients("1.37")
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    command, log = _start(text, tmp_path), tmp_path / "log"
    environment = {**os.environ, "PATH": f"{OWN}:{os.environ['PATH']}"}
    environment.pop("MAKEFLAGS", None)  # of the `make` that runs the tests
    with (
        service_rules() if os.geteuid() == 0 else nullcontext(),
        log.open("w") as errors,
        subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            lines = lines_of(process)
            home = tmp_path / "home"
            own = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home)}
            exported = (each for each in lines if each.startswith("export "))
            own |= dict(each.removeprefix("export ").split("=", 1) for each in exported)
            _type(lines[-1], tmp_path, own)
            for node in ("hollow-1", "hollow-100") if "--nodes 100" in text else ():
                _type(f"kubectl get node {node}", tmp_path, own)
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=STOP_S)  # until the cluster has closed its end of the pipe
            ended = -signal.SIGINT if text.startswith("make") else 0  # make by the signal itself
            assert process.returncode == ended, log.read_text()[-2000:]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    directories = {each.name for each in tmp_path.iterdir() if each.is_dir()}
    assert directories - {"home"} == {"kvstack" if "/var/lib" in text else "default.etcd"}
    assert "no route to the pods of a node" not in log.read_text()
    assert ('"level":"debug"' in log.read_text()) == ("--log-level debug" in text)
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def _start(text: str, directory: Path) -> str:
    """Return a command that starts a cluster, with a directory, port and .venv of the test."""
    program, *arguments = shlex.split(text.replace("/var/lib/kvstack", str(directory / "kvstack")))
    (port,) = free_ports(1)
    if program != "make":
        return shlex.join([program, *arguments, f"--secure-port={port}"])
    flags = " ".join(each.removeprefix("ARGS=") for each in arguments[1:])
    return shlex.join(
        [
            *("make", "--no-print-directory", f"--directory={ROOT}"),
            *(f"--old-file={sys.prefix}/.runtime", "run", f"VENV={sys.prefix}"),
            f"NATIVE={os.environ.get('KVSTORE_NATIVE', '')}",
            f"DATA={directory / 'default.etcd'}",
            f"ARGS={flags} --secure-port={port}",
        ]
    )


def _with(text: str, ports: dict[str, str]) -> str:
    """Return a command with the ports of this test and a time at which its cluster existed."""
    for documented, given in ports.items():
        text = text.replace(documented, given)
    return re.sub(r"/at/20[-\d]+T[:\d]+Z", f"/at/{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", text)


def _type(text: str, directory: Path, environment: dict[str, str]) -> None:
    """Run a command as in a shell, again until it succeeds if that changes nothing."""
    error = ""

    def succeeds() -> bool:
        nonlocal error
        if any(each in text for each in ENDLESS):
            error = _first_line(text, directory, environment)
            return bool(error) and "rror" not in error
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
        error = done.stderr
        assert not (done.returncode and text.startswith(ONCE)), f"{text}: {error}"
        return done.returncode == 0

    wait_for(succeeds, lambda: f"{text}: {error}", WAIT_S, every_s=0.2)


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
