"""The proxy and kube-proxy, on this API server and on kube-apiserver: packets do the same.

    KVSTACK_TEST_KUBE_PROXY=…/kube-proxy KVSTACK_TEST_KUBE_APISERVER=…/kube-apiserver pytest …

Without these programs only kvstack's own are tried. Each pair is started in a namespace with the
Services of `swap_objects`, and packets are sent; then some endpoints change.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from kvstack.agents.proxy import modes
from kvstack.agents.proxy.modes import IPTABLES, NFTABLES
from tests.agents.proxy import swap_objects
from tests.agents.proxy.swap_objects import CASES, CHANGED, CLIENT, HERE, NODE, ONE, TWO, Case
from tests.agents.standalone.test_stack import READY_S, lines_of
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.network.routed import RefusedError, Routed, SilentError, routed
from tests.support.waiting import wait_for

OURS, UPSTREAM = "kvstack", "upstream"
PROXY: Final = os.environ.get("KVSTACK_TEST_KUBE_PROXY", "")
API_SERVER: Final = os.environ.get("KVSTACK_TEST_KUBE_APISERVER", "")
WITHOUT: Final = (
    "controllers,scheduler,nodes,node,dashboard,local-path,metrics,dns,proxy,loadbalancer,joining,"
    "network-policy"
)
RANGE: Final = "10.96.0.0/16"
TOKEN: Final = "test-of-the-swap"
ASKED: Final = 24
"""Of two endpoints one is missed once in 2^23 times."""
SHORT_S: Final = 1.0
HEALTH: Final = """
import sys, urllib.error, urllib.request
try:
    found = urllib.request.urlopen(sys.argv[1], timeout=30)
except urllib.error.HTTPError as error:
    found = error
print(found.status, found.read().decode())
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


class Machine(NamedTuple):
    """A node, two pods and a client in namespaces."""

    network: Routed
    home: Path
    stack: ExitStack

    @property
    def kubeconfig(self) -> Path:
        return self.home / "admin.conf"

    def inside(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.network.namespace(""), *command]

    def start(self, name: str, *command: str, **more: Any) -> "subprocess.Popen[str]":
        """Begin a program, which is killed in the end if it does not end before."""
        log = self.stack.enter_context((self.home / f"{name}.log").open("a"))
        process = subprocess.Popen(self.inside(*command), stderr=log, text=True, **more)
        self.stack.callback(end, process)
        return process

    def output(self, *command: str, given: str = "") -> str:
        done = subprocess.run(
            self.inside(*command),
            input=given,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def kubectl(self, *arguments: str, given: str = "") -> str:
        return self.output(str(clients("1.37") / "kubectl"), *arguments, given=given)

    def apply(self, *objects: dict[str, Any]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", "--validate=false", given=json.dumps(listed))

    @property
    def addresses(self) -> dict[str, str]:
        return {each: self.network.address(each) for each in (CLIENT, ONE, TWO)}


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def machine(directory: Path) -> Iterator[Machine]:
    try:
        clients("1.37")
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    with routed((CLIENT, ONE, TWO)) as network, ExitStack() as stack:
        for name in (ONE, TWO):
            network.serve(name, swap_objects.PORT)
            network.serve(name, swap_objects.PORT, "UDP")
        yield Machine(network, directory, stack)


def start_api_server(here: Machine, server: str) -> None:
    """Start an API server, and give it the nodes and the Services."""
    if server == OURS:
        data = here.home / "data"
        flags = (
            f"--data-dir={data}",
            f"--without={WITHOUT}",
            f"--service-cluster-ip-range={RANGE}",
        )
        command = (sys.executable, "-m", "kvstack", "up", *flags)
        lines_of(here.start("apiserver", *command, stdout=subprocess.PIPE))
        here.kubeconfig.write_text((data / "kubernetes" / "admin.conf").read_text())
    else:
        _start_upstream(here)
    network = here.network
    here.apply(
        swap_objects.node(HERE, network.gateway(CLIENT)),
        swap_objects.node(swap_objects.THERE, "192.0.2.9"),
        *(swap_objects.service(each) for each in CASES),
        *(swap_objects.slice_of(each, here.addresses) for each in CASES),
    )
    for each in CASES:
        if each.status:
            patch = ("--subresource=status", "--type=merge", "-p")
            here.kubectl("patch", "service", each.name, *patch, json.dumps({"status": each.status}))


def _start_upstream(here: Machine) -> None:
    """Start kube-apiserver on a member of the store."""
    home = here.home
    (home / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n")
    key = home / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    here.start("store", sys.executable, "-m", "kvstore", f"--data-dir={home / 'store'}")
    here.start(
        "apiserver",
        *(API_SERVER, "--etcd-servers=http://127.0.0.1:2379", f"--cert-dir={home / 'certs'}"),
        *("--authorization-mode=RBAC", f"--token-auth-file={home / 'tokens'}"),
        *("--service-account-issuer=https://swap", f"--service-account-key-file={key}"),
        *(f"--service-account-signing-key-file={key}", f"--service-cluster-ip-range={RANGE}"),
        "--secure-port=6443",
    )
    here.kubeconfig.touch(mode=0o600)
    here.kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {
                            "server": "https://127.0.0.1:6443",
                            "insecure-skip-tls-verify": True,
                        },
                    }
                ],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )

    def is_ready() -> bool:
        with contextlib.suppress(AssertionError):
            return here.kubectl("get", "--raw", "/readyz") == "ok"
        return False

    wait_for(is_ready, "kube-apiserver is ready", READY_S)


def start_proxy(here: Machine, program: str, mode: str) -> "subprocess.Popen[str]":
    own = (sys.executable, "-m", "kvstack", "proxy") if program == OURS else (PROXY,)
    process = here.start(
        f"proxy-{program}",
        *(*own, f"--kubeconfig={here.kubeconfig}", f"--hostname-override={HERE}"),
        *(f"--proxy-mode={mode}", "--cluster-cidr=10.201.2.0/23"),
        *("--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0"),
        "--conntrack-tcp-timeout-close-wait=0",
    )

    def is_healthy() -> bool:
        assert process.poll() is None, (here.home / f"proxy-{program}.log").read_text()[-3000:]
        return health(here, "127.0.0.1", 10256).startswith("200")

    wait_for(is_healthy, f"{program} is healthy", READY_S)
    return process


def health(here: Machine, address: str, port: int) -> str:
    """Return what a health check of the node is answered; empty: nobody listens."""
    with contextlib.suppress(AssertionError):
        return here.output(sys.executable, "-c", HEALTH, f"http://{address}:{port}/healthz")
    return ""


def seen(here: Machine, case: Case, way: str) -> str:
    """Return who answers a client, and whom they see."""
    client, target = way.split()
    address, port = target, 80
    if target == "ip":
        address = swap_objects.cluster_ip(case.name)
    elif target == "port":
        address, port = here.network.gateway(CLIENT), swap_objects.node_port(case.name)
    names = {address: name for name, address in here.addresses.items()}
    answers = set()
    for at in range(ASKED):
        try:
            answer = here.network.ask(
                "" if client == NODE else client,
                address,
                port,
                case.protocol,
                source_port=4000 if case.protocol == "UDP" else 0,
                patience_s=SHORT_S,
            )
        except RefusedError:
            answers.add(swap_objects.REFUSED)
            break
        except SilentError:
            answers.add(swap_objects.SILENT)
            if at == 0:
                break
        else:
            answers.add(f"{answer.name} sees {names.get(answer.client, NODE)}")
    if case.name == "sticky" and len(answers) == 1:
        return "one of them" if answers <= set(swap_objects.EITHER.split(", ")) else str(answers)
    return ", ".join(sorted(answers))


def check(here: Machine, cases: Sequence[Case]) -> None:
    """Wait until packets do what is expected of them; say where they do not."""
    for case in cases:
        for way, expected in case.expected.items():
            _check(here, case, way, expected)


def _check(here: Machine, case: Case, way: str, expected: str) -> None:
    last = ""

    def is_so() -> bool:
        nonlocal last
        last = seen(here, case, way)
        return last == expected

    try:
        wait_for(is_so, f"{case.name}: {way}: {expected}", READY_S)
    except AssertionError as error:
        error.add_note(f"but: {last}")
        raise


def check_health(here: Machine, mode: str) -> None:
    """Check the health checks of load balancers, which are served where node ports are."""
    own = here.network.gateway(CLIENT)
    for port, code, count in (
        (swap_objects.HEALTH_PORT, 200, 1),
        (swap_objects.SILENT_HEALTH_PORT, 503, 0),
    ):
        wait_for(partial(health, here, own, port), f"{port} is served", READY_S)
        status, _, body = health(here, own, port).partition(" ")
        assert bool(health(here, "127.0.0.1", port)) == (mode == IPTABLES)
        assert int(status) == code
        assert json.loads(body)["localEndpoints"] == count
        assert json.loads(body)["service"]["namespace"] == "default"


def check_all(here: Machine, mode: str) -> None:
    check(here, CASES)
    check_health(here, mode)
    here.apply(*(swap_objects.slice_of(each, here.addresses) for each in CHANGED))
    check(here, CHANGED)
    restored = [each for each in CASES if each.name in {one.name for one in CHANGED}]
    here.apply(*(swap_objects.slice_of(each, here.addresses) for each in restored))
    check(here, restored)


def require(mode: str, *, server: str = OURS, proxy: str = OURS) -> None:
    if reason := modes.problem_of(mode, 4):
        pytest.skip(reason)
    if proxy == UPSTREAM and not PROXY:
        pytest.skip("no other kube-proxy: KVSTACK_TEST_KUBE_PROXY names none")
    if server == UPSTREAM and not API_SERVER:
        pytest.skip("no other API server: KVSTACK_TEST_KUBE_APISERVER names none")


@pytest.mark.parametrize("mode", [NFTABLES, IPTABLES])
@pytest.mark.parametrize("proxy", [OURS, UPSTREAM])
@pytest.mark.parametrize("server", [OURS, UPSTREAM])
def test_packets_do_the_same(tmp_path: Path, server: str, proxy: str, mode: str) -> None:
    require(mode, server=server, proxy=proxy)
    with machine(tmp_path) as here:
        start_api_server(here, server)
        start_proxy(here, proxy, mode)
        check_all(here, mode)


@pytest.mark.parametrize("mode", [NFTABLES, IPTABLES])
def test_one_takes_over_from_the_other(tmp_path: Path, mode: str) -> None:
    """What one left is used or taken away, and Services are led on."""
    require(mode, proxy=UPSTREAM)
    with machine(tmp_path) as here:
        start_api_server(here, OURS)
        for program in (UPSTREAM, OURS, UPSTREAM):
            process = start_proxy(here, program, mode)
            check_all(here, mode)
            process.terminate()
            process.wait(READY_S)
            check(here, CASES)  # Services are led to while nobody runs
