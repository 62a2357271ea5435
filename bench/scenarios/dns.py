"""Names of Services: queries per second and their CPU, beside CoreDNS.

    python -m bench dns --program coredns=/path/to/coredns

Both are processes of their own and follow one API server, a `kvstack up` without nodes that holds
the Services; it has nothing to do meanwhile. kvload asks over UDP on the loopback and shares the
machine's cores. CoreDNS has the plugins of kubeadm's configuration but for health, ready, forward
and loop.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from dns.message import from_wire, make_query
from dns.rcode import NOERROR

from bench.loads import kvload
from bench.procfs import memory
from bench.reporting.figures import CONTENDERS, OURS, PEER, Better, Measure
from bench.run import Run, Scenario
from bench.stacks import Stack, process, started
from tests.support.servers import free_ports
from tests.support.waiting import wait_for

COREDNS: Final = "coredns"
_SERVICES: Final = 1_000
_SECONDS: Final = 3.0
_RATE: Final = 20_000.0
"""Queries per second."""
_HOST: Final = "127.0.0.1"
_SOCKETS: Final = 8
_IN_FLIGHT: Final = 16
_READY_S: Final = 120.0
_POLL_S: Final = 0.1
_TYPE_A: Final = 1
_NXDOMAIN: Final = 3
_DOMAIN: Final = "default.svc.cluster.local"
_COREFILE: Final = """\
cluster.local:{port} {{
    bind {host}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 30
    }}
    prometheus {host}:{metrics_port}
    cache 30
    reload
    loadbalance
}}
"""


class _Resolver(NamedTuple):
    """A DNS server that runs; what kvload and the meters ask of a server."""

    endpoint: str
    pid: int


class _Load(NamedTuple):
    """What is asked: {n} is the number of a Service."""

    title: str
    name: str
    rcode: int
    rate: float | None
    """Least queries per second."""


_LOADS: Final = (
    _Load("A of a Service", f"web-{{n}}.{_DOMAIN}", 0, _RATE),
    _Load("A by the search path, missing", f"web-{{n}}.{_DOMAIN}.{_DOMAIN}", _NXDOMAIN, None),
)


def play(run: Run) -> None:
    """Ask both, round by round."""
    if why := kvload.missing():
        run.skip(why)
        return
    count = run.size(_SERVICES, 50, "services")
    directory = run.directory / "cluster"
    directory.mkdir()
    without = "--without=node,nodes,proxy,dns,metrics"
    with started(directory, without) as stack, ExitStack() as resolving:
        with run.step(f"make {count} Services"):
            stack.wait_ready()
            for number in range(count):
                stack.ask("POST", "/api/v1/namespaces/default/services", _service(number))
        resolvers = {}
        for who in CONTENDERS:
            if who == PEER and COREDNS not in run.programs:
                run.note("No CoreDNS was given (--program coredns=): there is nothing beside.")
                continue
            resolvers[who] = resolving.enter_context(_resolver(run, who, stack, count))
        for round_number in run.rounds():
            for who in run.order(round_number):
                for load in _LOADS if who in resolvers else ():
                    with run.step(f"round {round_number + 1}, {who}: {load.title}"):
                        _ask(run, who, resolvers[who], load, count)
        for who, resolver in resolvers.items():
            used = memory(resolver.pid).anon_bytes / 1024**2
            run.figures.add(Measure("memory after", "MiB", Better.LOWER), who, used)
    run.note(
        f"{count:,} Services, asked in turn by {_SOCKETS} sockets, {_IN_FLIGHT} ahead on each."
    )


def _ask(run: Run, who: str, resolver: _Resolver, load: _Load, count: int) -> None:
    loaded = kvload.run(
        resolver,
        "dns",
        name=load.name,
        names=count,
        type=_TYPE_A,
        rcode=load.rcode,
        connections=_SOCKETS,
        in_flight=_IN_FLIGHT,
        seconds=run.seconds(_SECONDS),
    )
    if loaded.refused:
        raise RuntimeError(f"{who}: {loaded.refused} of {loaded.done} queries got no answer")
    add, used_us = run.figures.add, loaded.server_cpu_s / loaded.done * 1e6
    rate = Measure(load.title, "queries/s", Better.HIGHER, limit=load.rate)
    add(rate, who, loaded.rate)
    add(Measure(f"{load.title}: CPU", "µs/query", Better.LOWER), who, used_us)
    add(Measure(f"{load.title}: p99", "ms", Better.LOWER, is_detail=True), who, loaded.p99_ms)


@contextmanager
def _resolver(run: Run, who: str, stack: Stack, count: int) -> Iterator[_Resolver]:
    """Run one of the two; it is given once it knows the last Service."""
    port, metrics_port = free_ports(2)
    if who == OURS:
        command = [
            *(sys.executable, "-m", "kvstack", "dns", f"--kubeconfig={stack.kubeconfig}"),
            *(f"--bind-addresses={_HOST}", f"--port={port}", "--forward=none"),
            *("--health-address=none", "--ready-address=none"),
            *(f"--metrics-address={_HOST}:{metrics_port}", "--client-queries-per-second=1000000"),
        ]
    else:
        corefile = run.directory / "Corefile"
        corefile.write_text(
            _COREFILE.format(
                host=_HOST, port=port, metrics_port=metrics_port, kubeconfig=stack.kubeconfig
            )
        )
        command = [run.programs[COREDNS], "-conf", str(corefile)]
    with process(command, run.directory / f"{who}.log") as running:
        _wait_known(port, f"web-{count - 1}.{_DOMAIN}", run.directory / f"{who}.log")
        yield _Resolver(f"{_HOST}:{port}", running.pid)


def _wait_known(port: int, name: str, log: Path) -> None:
    query = make_query(name, "A").to_wire()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(_POLL_S)
        asking.connect((_HOST, port))

        def is_known() -> bool:
            try:
                asking.send(query)
                answer = from_wire(asking.recv(4096))
            except OSError:  # it does not listen yet, or took longer
                return False
            return answer.rcode() == NOERROR and bool(answer.answer)

        wait_for(is_known, lambda: f"{name}: {log.read_text()[-2000:]}", _READY_S, every_s=_POLL_S)


def _service(number: int) -> dict[str, object]:
    spec = {"ports": [{"name": "http", "port": 80}], "selector": {"app": f"web-{number}"}}
    return {"metadata": {"name": f"web-{number}"}, "spec": spec}


SCENARIO: Final = Scenario(
    "dns",
    "DNS of the cluster",
    "queries of Services' names over UDP; kvload on the same cores",
    rounds=5,
    play=play,
    sizes=("services",),
    columns=("kvstack dns", "CoreDNS"),
)
