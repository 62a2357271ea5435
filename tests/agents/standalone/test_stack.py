"""`kvstack up`: its flags, what it writes, and the program itself."""

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml

from kvstack.agents.standalone.agent_settings import agent_options, pod_ranges
from kvstack.agents.standalone.stack_settings import (
    StackOptions,
    pki_dir,
    secrets_of,
    server_url,
    split_own,
    stack_options,
)
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.component.certs.certificates import Pair
from kvstack.component.certs.kubeconfig import kubeconfig, write_kubeconfig
from kvstack.component.flags.command_line import UsageError, read_command_line
from kvstack.component.line_log.line_logger import LineLogger
from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.network.service_rules import service_rules
from tests.support.servers import free_ports
from tests.support.waiting import wait_for

READY_S = 60.0
READY = ("wait", "pod/web", "--for=condition=Ready", "--timeout=60s")
STOP_S = 60.0


def split(*arguments: str) -> tuple[StackOptions, list[str]]:
    return split_own(arguments)


def test_own_flags_the_stores_and_the_servers() -> None:
    own, rest = split(
        "--data-dir=/a",
        "--secure-port",
        "7",
        "--quota-backend-bytes",
        "9",
        "--allow-privileged",
        "--pre-vote=false",
        "--log-level=info",
        "-v",
        "4",
    )
    assert own.data_dir == Path("/a")
    assert own.kubeconfig == Path("/a/kubernetes/admin.conf")
    assert own.log_level == "info"
    assert own.store_flags == ("--quota-backend-bytes=9", "--pre-vote=false")
    assert not own.has_peers
    assert rest == ["--secure-port", "7", "--allow-privileged", "-v", "4"]


def test_flags_of_other_members_let_them_in() -> None:
    own, _ = split("--initial-cluster", "a=http://127.0.0.1:1", "--memory-mlock")
    assert own.has_peers
    assert own.store_flags == ("--initial-cluster=a=http://127.0.0.1:1", "--memory-mlock=true")


def test_hollow_nodes_are_counted_or_named() -> None:
    assert split("--nodes=2")[0].hollow_nodes == ("hollow-1", "hollow-2")
    assert split("--nodes", "node-a,node-b")[0].hollow_nodes == ("node-a", "node-b")
    assert split()[0].hollow_nodes == ()
    assert split("--controllers=*,tokencleaner")[0].controllers == "*,tokencleaner"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nodes=node-a,B"], "--nodes B: a lowercase RFC 1123 subdomain"),
        (["--nodes=10001"], "a number from 0 to 10000"),
        (["--host-root-namespaces=a,B"], "--host-root-namespaces B: a lowercase RFC 1123 label"),
        (["--controllers=colour"], '--controllers: "colour" is not in the list'),
        (["--data-dir"], "flag needs an argument: --data-dir"),
        (["--proxy-metrics-address=localhost:1"], "--proxy-metrics-address 'localhost' does not"),
        (["--proxy-healthz-address=127.0.0.1:0"], "--proxy-healthz-address 127.0.0.1:0: IP:PORT"),
        (["--log-level=loud"], "--log-level loud: one of debug, info, warn"),
        (
            ["--cluster-cidr=10.7.0.0/16", "--without=node,controllers"],
            "--cluster-cidr 10.7.0.0/16: it has no effect with --without controllers,node",
        ),
    ],
)
def test_what_cannot_be_read_is_reported(arguments: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        split(*arguments)


@pytest.mark.skipif(not has_namespaces(), reason="networks of pods need root and namespaces")
@pytest.mark.parametrize(
    ("without", "network"), [("", "bridge"), ("node", "bridge"), ("controllers", "auto")]
)
def test_a_range_of_pods_is_used_by_what_is_there(
    without: str, network: str, tmp_path: Path
) -> None:
    wanted = IPv4Network("10.7.0.0/16")
    own, _ = split(f"--data-dir={tmp_path}", f"--cluster-cidr={wanted}", f"--without={without}")
    pki = pki_dir(own.data_dir)
    pki.mkdir(parents=True)
    for name in ("ca.crt", "ca.key", "sa.key"):
        (pki / name).touch()
    with pod_ranges(own, (), LineLogger([], "fatal")) as pods:
        assert pods == (wanted,)
        found = agent_options(own, pods)
    ranges = found.controllers.node_ranges
    assert ranges is not None
    assert ranges.clusters == (wanted,)
    assert found.node is not None
    assert (found.node.network, found.node.cluster_ranges) == (network, (wanted,))


def test_pods_of_the_machines_files_do_not_see_the_clusters_own() -> None:
    own, _ = split(
        "--data-dir=/a",
        "--kubeconfig=/k",
        "--listen-client-urls=unix:///s/kv,http://127.0.0.1:1",
        "--host-root-namespaces=kube-system,ops",
    )
    assert secrets_of(own) == (Path("/a"), Path("/k"), Path("/s/kv"))
    assert own.host_root_namespaces == ("kube-system", "ops")
    assert split()[0].host_root_namespaces == ()


def test_what_is_given_is_stronger_than_what_suits() -> None:
    own, rest = split("--data-dir=/a", "--authorization-mode=AlwaysAllow")
    options = stack_options(own, read_command_line(rest, "kvstack up", TABLE))
    assert options.authorization_modes == ("AlwaysAllow",)
    assert options.allow_privileged
    assert options.enabled_plugins == ("NodeRestriction",)
    assert {"bootstrapsigner", "tokencleaner"} < set(own.controllers.split(","))
    assert options.authentication.client_ca_file == "/a/kubernetes/pki/ca.crt"
    assert server_url(options) == "https://127.0.0.1:6443"


def test_a_server_that_listens_everywhere_is_reached_on_loopback() -> None:
    own, rest = split("--bind-address=0.0.0.0", "--secure-port=7000")
    assert (
        server_url(stack_options(own, read_command_line(rest, "x", TABLE)))
        == "https://127.0.0.1:7000"
    )


def test_a_kubeconfig_is_written_once(tmp_path: Path) -> None:
    content = kubeconfig("https://a:1", b"ca", "admin", Pair(b"cert", b"key"))
    assert write_kubeconfig(tmp_path / "a" / "admin.conf", content)
    assert not write_kubeconfig(tmp_path / "a" / "admin.conf", content)
    found = yaml.safe_load(content)
    assert found["clusters"][0]["cluster"]["server"] == "https://a:1"
    assert found["contexts"][0]["name"] == found["current-context"]


def test_what_others_added_to_a_kubeconfig_stays(tmp_path: Path) -> None:
    path = tmp_path / "admin.conf"
    write_kubeconfig(path, kubeconfig("https://a:1", b"ca", "admin", Pair(b"cert", b"key")))
    found = yaml.safe_load(path.read_text())
    for members, member in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
        found[members].insert(0, {"name": "other", member: {"a": "b"}})
    found["current-context"] = "other"
    path.write_text(yaml.safe_dump(found))
    same = kubeconfig("https://a:1", b"ca", "admin", Pair(b"cert", b"key"))
    assert not write_kubeconfig(path, same)
    assert write_kubeconfig(path, kubeconfig("https://b:2", b"ca", "admin", Pair(b"c", b"k")))
    changed = yaml.safe_load(path.read_text())
    assert changed["current-context"] == "other"
    assert {each["name"] for each in changed["users"]} == {"admin", "other"}
    servers = {each["name"]: each["cluster"].get("server") for each in changed["clusters"]}
    assert servers == {"kvstack": "https://b:2", "other": None}
    path.write_text("[")
    assert write_kubeconfig(path, same)
    assert path.read_bytes() == same


@contextmanager
def up(
    directory: Path,
    *flags: str,
    log_file: Path | None = None,
    env: Mapping[str, str] | None = None,
    user: int | None = None,
) -> Iterator["subprocess.Popen[str]"]:
    """Run the program, and stop it as a user does; user: as whom, without other groups."""
    is_served = user is None and os.geteuid() == 0 and not any("proxy" in flag for flag in flags)
    with service_rules() if is_served else nullcontext():
        yield from _run(directory, flags, log_file, env, user)


def _run(
    directory: Path,
    flags: tuple[str, ...],
    log_file: Path | None,
    env: Mapping[str, str] | None,
    user: int | None,
) -> Iterator["subprocess.Popen[str]"]:
    log = (log_file or directory.parent / "log").open("a")
    process = subprocess.Popen(
        [sys.executable, "-m", "kvstack", "up", f"--data-dir={directory}", *flags],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=env,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_S)
        finally:
            process.kill()
            process.wait()
            log.close()


def lines_of(process: "subprocess.Popen[str]") -> list[str]:
    """Return what it prints once it is ready."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith("kubectl"):
        lines.append(process.stdout.readline().rstrip("\n"))
        assert lines[-1], f"it ended: {lines}"
    return lines


@pytest.mark.e2e
@pytest.mark.slow
def test_a_stack_from_nothing_and_again(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    (api,) = free_ports(1)
    flags = (f"--secure-port={api}",)
    with up(directory, *flags) as process:
        file = directory / "kubernetes" / "admin.conf"
        assert lines_of(process) == [
            f"export KUBECONFIG={file}",
            f"export ETCDCTL_ENDPOINTS=unix://{directory}/run/etcd.sock",
            "kubectl get namespaces",
        ]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        written = file.read_bytes()
        _use(file, tmp_path)
        _join(file, tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
    with up(directory, *flags) as process:
        lines_of(process)
        assert file.read_bytes() == written
        assert "kept" in kubectl(file, tmp_path, "get", "configmap", "-o", "name")
    assert process.returncode == 0


def _use(file: Path, home: Path) -> None:
    """Do what a user does first."""
    names = kubectl(file, home, "get", "namespaces", "-o", "name").split()
    assert names == [
        f"namespace/{each}" for each in ("default", "kube-node-lease", "kube-public", "kube-system")
    ]
    assert "deployment.apps/web created" in kubectl(
        file, home, "create", "deployment", "web", "--image=nginx", "--replicas=2"
    )
    assert re.search(r"^web +0/2", kubectl(file, home, "get", "deployments"), re.MULTILINE)
    assert "kept created" in kubectl(
        file, home, "create", "configmap", "kept", "--from-literal=a=b"
    )
    assert "kubernetes-admin" in kubectl(file, home, "auth", "whoami")
    assert "KIND:       Pod" in kubectl(file, home, "explain", "pod.spec")
    assert "deployment.apps/web scaled" in kubectl(
        file, home, "scale", "deployment/web", "--replicas=3"
    )


def _join(file: Path, home: Path) -> None:
    """Show a bootstrap token, as a node does that joins."""
    token = {"token-id": "abcdef", "token-secret": "0123456789abcdef"}
    given = {**token, "usage-bootstrap-authentication": "true"}
    literals = [f"--from-literal={name}={value}" for name, value in given.items()]
    kind = "--type=bootstrap.kubernetes.io/token"
    made = ("create", "secret", "generic", "bootstrap-token-abcdef", "-n", "kube-system", kind)
    kubectl(file, home, *made, *literals)
    config = yaml.safe_load(file.read_text())
    config["users"][0]["user"] = {"token": ".".join(token.values())}
    own = home / "joins.conf"
    own.write_text(yaml.safe_dump(config))
    said = kubectl(own, home, "auth", "whoami")
    assert "system:bootstrap:abcdef" in said
    assert "system:bootstrappers" in said


def kubectl(file: Path, home: Path, *arguments: str) -> str:
    try:
        program = clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    environment = {**os.environ, "KUBECONFIG": str(file), "HOME": str(home)}
    done = subprocess.run(
        [program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    (api,) = free_ports(1)
    with up(tmp_path / "a", f"--secure-port={api}") as process:
        lines_of(process)
        with up(tmp_path / "b", f"--secure-port={api}") as second:
            assert second.wait(READY_S) == 1
    assert "Address already in use" in (tmp_path / "log").read_text()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces")
def test_pods_of_a_cluster_that_was_killed(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    (api,) = free_ports(1)
    flags = (f"--secure-port={api}",)
    file = directory / "kubernetes" / "admin.conf"
    with up(directory, *flags) as process:
        lines_of(process)
        _run_web(file, tmp_path)
        address = kubectl(file, tmp_path, "get", "pod", "web", "-o", "jsonpath={.status.podIP}")
        inside = kubectl(file, tmp_path, "exec", "web", "--", "cat", "/etc/hosts")
        assert re.search(rf"^{re.escape(address)}\tweb$", inside, re.MULTILINE)
        assert _processes_with(str(tmp_path), "sh")
        process.kill()
        process.wait()
    wait_for(lambda: not _processes_with(str(tmp_path), "sh"), "no container is left", STOP_S)
    with up(directory, *flags) as process:
        lines_of(process)
        restarts = "jsonpath={.status.containerStatuses[0].restartCount}"
        kubectl(file, tmp_path, "wait", "pod/web", f"--for={restarts}=1", "--timeout=60s")
        kubectl(file, tmp_path, *READY)
        assert kubectl(file, tmp_path, "logs", "web") == "up\n"
        kubectl(file, tmp_path, "delete", "pod", "web", "--grace-period=1")
    assert process.returncode == 0
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces")
def test_a_stop_in_order_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    (api,) = free_ports(1)
    flags = (f"--secure-port={api}",)
    file = directory / "kubernetes" / "admin.conf"
    with up(directory, *flags) as process:
        lines_of(process)
        _run_web(file, tmp_path)
        uid = kubectl(file, tmp_path, "get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
        assert str(tmp_path) in Path("/proc/mounts").read_text()
        assert len(_records(directory)) == 1
        environment = {**os.environ, "KUBECONFIG": str(file), "HOME": str(tmp_path)}
        # Somebody is still connected with the node.
        follow = [str(clients("1.37") / "kubectl"), "logs", "--follow", "web"]
        with subprocess.Popen(follow, env=environment, stdout=subprocess.PIPE) as following:
            assert following.stdout is not None
            assert following.stdout.readline() == b"up\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S) == 0
            following.wait(STOP_S)
    assert not _processes_with(str(tmp_path), "sh")
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert not _records(directory)
    # os.walk passes over groups that go meanwhile: other tests run pods, too.
    assert not [each for each, _, _ in os.walk("/sys/fs/cgroup") if each.endswith(f"/pod{uid}")]


def _run_web(file: Path, home: Path) -> None:
    """Run a pod whose process is known by its last argument, and wait until it is ready."""
    kubectl(file, home, "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    script = "echo up; while :; do sleep 1; done"
    command = ("--command", "--", "sh", "-c", script, str(home))
    kubectl(file, home, "run", "web", "--image=host", *command)
    kubectl(file, home, *READY)


def _records(directory: Path) -> list[str]:
    """Return what nodes of a directory tell of themselves to those that come after them."""
    told = [each.read_text() for each in Path("/run/kvstack/nodes").glob("*")]
    return [each for each in told if str(directory) in each]


def _processes_with(text: str, program: str) -> list[str]:
    """Return the command lines of processes that run a program with an argument."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            words = place.read_bytes().decode(errors="replace").split("\0")
            if words[0] == program and text in words:
                found.append(" ".join(words))
    return found
