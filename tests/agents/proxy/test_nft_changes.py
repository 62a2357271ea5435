"""Changes over netlink: what the program `nft` would have made of the same transactions as text."""

import errno
import functools
import json
import random
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pytest
from typing_extensions import override

from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.nftables import program
from kvstack.agents.proxy.nftables.layout import CANARY, NO_ENDPOINTS, Layout
from kvstack.agents.proxy.nftables.messages import KernelTable
from kvstack.agents.proxy.nftables.names import TABLE
from kvstack.agents.proxy.nftables.numbers import Numbers, OutOfNumbersError
from kvstack.agents.proxy.nftables.port_rules import rules_of
from kvstack.agents.proxy.nftables.program import NOTHING, NftError
from kvstack.agents.proxy.nftables.rules import Drop
from kvstack.agents.proxy.nftables.ruleset import Ruleset
from kvstack.agents.proxy.nftables.transaction import (
    AddChain,
    Element,
    FlushChain,
    Statement,
    Transaction,
    Value,
)
from kvstack.agents.proxy.rule_settings import LocalTraffic, RuleSettings
from kvstack.agents.proxy.services import FAMILIES, Family
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.net import nft_batch
from kvstack.component.net.nft import run
from kvstack.component.net.nft_batch import BatchError, Batches, Message
from tests.agents.proxy.many_services import many
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service
from tests.agents.support.namespaces import has_namespaces
from tests.support.network.routed import Routed, routed

needs_nft = pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-")

NAMES: Final = tuple(f"s{each}" for each in range(6))
STEPS: Final = 30


class Prefixes(NamedTuple):
    """Addresses of a family begin with them."""

    cluster: str
    pods: str
    outside: str
    ranges: tuple[str, ...]
    local: tuple[str, ...]


PREFIXES: Final[dict[Family, Prefixes]] = {
    4: Prefixes(
        "10.96.0.",
        "10.244.0.",
        "203.0.113.",
        ("192.0.2.0/24", "192.0.3.0/24", "10.0.0.0/9", "10.32.0.0/19", "0.0.0.0/1", "240.0.0.0/4"),
        ("10.244.0.0/17", "10.245.0.0/16"),
    ),
    6: Prefixes(
        "fd00:96::",
        "fd00:10::",
        "2001:db8::",
        ("2001:db8:1::/48", "2001:db8:2::/47", "fd00::/9", "::/1", "ff00::/8"),
        ("fd00:10::/49", "fd00:11::/64"),
    ),
}


def node_settings(family: Family, kind: str) -> RuleSettings:
    prefixes = PREFIXES[family]
    local = {
        "range": LocalTraffic(prefixes.local[:1]),
        "ranges": LocalTraffic(prefixes.local),
        "bridge": LocalTraffic(bridge="cni0"),
        "interfaces": LocalTraffic(interface_prefix="veth"),
        "unknown": LocalTraffic(),
    }[kind]
    return RuleSettings(
        family,
        masquerade_bit=31 if kind == "bridge" else 14,
        local=local,
        node_ips=None if kind == "interfaces" else (f"{prefixes.outside}1",),
        node_ip=f"{prefixes.outside}1",
    )


class Story:
    """A random history of a few Services and their endpoints."""

    def __init__(self, settings: RuleSettings, seed: int) -> None:
        self._random = random.Random(seed)
        self._prefixes = PREFIXES[settings.family]
        self._family: Family = settings.family
        self._layout = Layout(settings)
        self._known: dict[str, Object] = {}
        self.view = ClusterView(settings.family, Here("here"))
        self.ruleset = Ruleset(self._layout)

    def steps(self) -> Iterator[Transaction]:
        for at in range(STEPS):
            for _ in range(self._random.randrange(1, 4)):
                name = self._random.choice(NAMES)
                self._set(name, self._service(name))
                self._set(f"{name}-1", self._slice(name))
            yield self.ruleset.change(
                {
                    name: rules_of(served, self._layout) if served else None
                    for name, served in self.view.take_changes().items()
                }
            )
            if at % 5 == 4:
                yield from self.ruleset.take_stale()

    def _set(self, name: str, new: Object | None) -> None:
        old = self._known.pop(name, None)
        if new is not None:
            self._known[name] = new
        change = self.view.set_slice if name.endswith("-1") else self.view.set_service
        if old is not None or new is not None:
            change(old, new)

    def _service(self, name: str) -> Object | None:
        rng, prefixes, at = self._random, self._prefixes, NAMES.index(name)
        if rng.random() < 0.15:
            return None
        spec: Object = {"clusterIP": f"{prefixes.cluster}{at + 10}"}
        spec["type"] = rng.choice(("ClusterIP", "NodePort", "LoadBalancer"))
        if rng.random() < 0.4:
            client = {"timeoutSeconds": rng.choice((1, 90, 86_400))}
            spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": client}}
        if rng.random() < 0.3:
            spec["externalIPs"] = [f"{prefixes.outside}{rng.randrange(30, 33)}"]
        if rng.random() < 0.3:
            spec["internalTrafficPolicy"] = "Local"
        if spec["type"] != "ClusterIP" and rng.random() < 0.5:
            spec["externalTrafficPolicy"] = "Local"
        protocol = rng.choice(("TCP", "UDP", "SCTP"))
        port: Object = {"port": rng.randrange(80, 82), "protocol": protocol}
        if spec["type"] != "ClusterIP":
            port["nodePort"] = 30_000 + at
        if spec["type"] != "LoadBalancer":
            return service(name, port, **spec)
        count = rng.randrange(len(prefixes.ranges))
        spec["loadBalancerSourceRanges"] = rng.sample(prefixes.ranges, count)
        found = balanced(f"{prefixes.outside}{at + 50}", **spec)
        found["metadata"]["name"] = name
        found["spec"]["ports"] = [port]
        return found

    def _slice(self, name: str) -> Object | None:
        rng = self._random
        old = self._known.get(name)
        if rng.random() < 0.1 or old is None:
            return None
        ends = [
            endpoint(
                f"{self._prefixes.pods}{last}",
                rng.choice(("here", "there")),
                rng.choice(("", "", "", "draining", "not ready")),
            )
            for last in rng.sample(range(1, 9), rng.randrange(0, 6))
        ]
        of_service: Any = {"name": f"{name}-1", "of": name, "family": FAMILIES[self._family]}
        return endpoint_slice(*ends, protocol=old["spec"]["ports"][0]["protocol"], **of_service)


def inside(network: Routed, work: Callable[..., Any], *arguments: Any) -> Any:
    return network.run("", functools.partial(work, *arguments))


@contextmanager
def kernel_table(network: Routed) -> Iterator[KernelTable]:
    """Give the table in the node's namespace: that is where the first change is made."""
    table = KernelTable(6 if network.family == 6 else 4)
    try:
        yield table
    finally:
        table.close()


def contents(family: Family) -> list[str]:
    """Return the table in two ways: as nft reads it, and what the kernel has of its rules."""
    table = ("ip" if family == 4 else "ip6", TABLE)
    objects = json.loads(run("-j", "list", "table", *table))["nftables"]
    for at, each in enumerate(objects):
        for kind, body in each.items():
            body.pop("handle", None)
            if "elem" in body:
                body["elem"] = sorted(map(json.dumps, body["elem"]))
            if kind == "rule":
                body["at"] = at  # their order counts
    lines = run("--debug=netlink", "list", "table", *table).splitlines()
    rules = [
        re.sub(r"^(ip6? \S+ \S+) \d+$", r"\1", each) for each in lines if "element" not in each
    ]
    return [*sorted(json.dumps(each, sort_keys=True) for each in objects), *_by_chain(rules)]


def _by_chain(lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    return re.split(r"\n\n", text)


@needs_nft
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind"),
    [(4, "range"), (6, "ranges"), (4, "bridge"), (6, "interfaces"), (4, "unknown")],
)
def test_the_kernel_gets_what_nft_would_have_made(family: Family, kind: str) -> None:
    story = Story(node_settings(family, kind), seed=family)
    with routed((), family) as one, routed((), family) as other, kernel_table(one) as table:
        whole = story.ruleset.whole(NOTHING)
        for each in (one, other):
            inside(each, program.apply, whole)
        kinds: set[type] = set()
        for transaction in story.steps():
            kinds |= {type(each) for each in transaction.statements}
            inside(one, table.change, transaction)
            inside(other, program.apply, transaction.text(family))
        assert len(kinds) == 8, "a kind of statement was not tried"
        assert story.view.refused == []
        assert inside(one, contents, family) == inside(other, contents, family)
        assert inside(one, program.has_rules, family, CANARY)


def transaction_of(*statements: Statement) -> Transaction:
    found = Transaction()
    for each in statements:
        found.add(each)
    return found


@needs_nft
def test_a_statement_that_is_refused_undoes_all() -> None:
    with routed(()) as network, kernel_table(network) as table:
        with pytest.raises(NftError, match="add chain ip kube-proxy new: No such file"):
            inside(network, table.change, transaction_of(AddChain("new")))
        inside(network, program.apply, Ruleset(Layout(RuleSettings(4))).whole(NOTHING))
        before = inside(network, contents, 4)
        refused = transaction_of(AddChain("new"), FlushChain("missing"))
        with pytest.raises(NftError, match=r"^flush chain ip kube-proxy missing: No such file"):
            inside(network, table.change, refused)
        assert inside(network, contents, 4) == before
        inside(network, table.change, Transaction())
        assert not inside(network, program.has_rules, 4, "new")
        assert not inside(network, program.has_rules, 6, CANARY)


@needs_nft
@pytest.mark.slow
def test_elements_of_any_number_fit_into_messages() -> None:
    """An attribute of netlink has less than 64 KiB."""
    ruleset = Ruleset(Layout(RuleSettings(6)))
    keys = [(f"fd00::{at:x}", "tcp", 80) for at in range(1, 3_000)]
    value = Value(Drop(), "x" * 128)
    with routed((), 6) as network, kernel_table(network) as table:
        inside(network, program.apply, ruleset.whole(NOTHING))
        empty = inside(network, contents, 6)
        transaction = Transaction()
        for key in keys:
            transaction.add_element(Element(NO_ENDPOINTS, key), value)
        inside(network, table.change, transaction)
        texts = inside(network, contents, 6)
        assert sum(each.count("fd00::") for each in texts if each[0] == "{") == len(keys)
        transaction = Transaction()
        for key in keys:
            transaction.delete_element(Element(NO_ENDPOINTS, key))
        inside(network, table.change, transaction)
        assert inside(network, contents, 6) == empty


IN_USER_NAMESPACE: Final = """
from kvstack.agents.proxy.nftables import program
from kvstack.agents.proxy.nftables.messages import KernelTable
from tests.agents.proxy.many_services import many
ruleset, change_one = many(3)
program.apply(ruleset.whole(program.NOTHING))
table = KernelTable(4)
table.change(change_one(1))
table.close()
print("changed")
"""


@needs_nft
@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces")
def test_changes_in_a_user_namespace() -> None:
    """There the kernel's limit of a socket's buffer holds."""
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c"]
    done = subprocess.run(
        [*command, IN_USER_NAMESPACE], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("changed\n", "")


def test_silence_of_the_kernel_is_no_success() -> None:
    def answer(number: int, code: int) -> bytes:
        body = struct.pack("=i", -code)
        return struct.pack("=IHHII", 16 + len(body), 2, 0, number, 0) + body

    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, its:
        ours.setblocking(False)
        with pytest.raises(BatchError, match=r"^the kernel did not answer"):
            nft_batch._read_answers(ours, 2)
        its.send(answer(2, 0))
        nft_batch._read_answers(ours, 2)
        its.send(answer(2, errno.EBUSY) + answer(2, 0))
        with pytest.raises(BatchError, match=r"^message 1: Device or resource busy") as caught:
            nft_batch._read_answers(ours, 2)
        assert caught.value.at == 1
        its.send(answer(0, errno.EMLINK))  # of all of it: the rules lead too deep
        with pytest.raises(BatchError, match=r"^Too many links") as caught:
            nft_batch._read_answers(ours, 2)
        assert caught.value.at is None


def test_a_batch_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft_batch, "BATCH_BYTES_MAX", 100)
    with pytest.raises(BatchError, match="160 bytes: above 100"):
        Batches(2).send([Message(nft_batch.NEW_CHAIN, 0, bytes(100))])


def test_numbers_of_endpoints_do_not_overlap_and_are_used_again() -> None:
    rng, numbers = random.Random(7), Numbers(1000, limit=2000)
    rows: list[tuple[int, int]] = []
    for _ in range(2_000):
        if len(rows) < 20 and rng.random() < 0.6:
            length = rng.randrange(2, 6)
            rows.append((numbers.take(length), length))
            used = [at for first, length in rows for at in range(first, first + length)]
            assert len(set(used)) == len(used)
            assert min(used) >= 1000
        elif rows:
            numbers.give_back(*rows.pop(rng.randrange(len(rows))))
    with pytest.raises(OutOfNumbersError, match="above 2000"):
        numbers.take(1000)


class Counted(socket.socket):
    """Counts what goes through all sockets of netlink."""

    sent = received = calls = 0

    @override
    def send(self, data: Any, *flags: int) -> int:
        Counted.calls += 1
        Counted.sent += len(data)
        return super().send(data, *flags)

    @override
    def recv(self, size: int, *flags: int) -> bytes:
        Counted.calls += 1
        found = super().recv(size, *flags)
        Counted.received += len(found)
        return found


def fastest_s(network: Routed, table: KernelTable, changes: list[Transaction]) -> float:
    def change(transaction: Transaction) -> float:
        began = time.perf_counter()
        table.change(transaction)
        return time.perf_counter() - began

    return min(inside(network, change, each) for each in changes)


@needs_nft
@pytest.mark.slow
def test_a_change_reads_and_writes_no_more_where_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = []
    for count in (200, 1_000):
        ruleset, change_one = many(count)
        with routed(()) as network, monkeypatch.context() as here, kernel_table(network) as table:
            here.setattr(socket, "socket", Counted)
            inside(network, program.apply, ruleset.whole(NOTHING))
            assert fastest_s(network, table, [change_one(at) for at in range(5)]) < 0.25
            here.setenv("PATH", "")  # nothing is run
            Counted.sent = Counted.received = Counted.calls = 0
            inside(network, table.change, change_one(100))
            costs.append((Counted.sent, Counted.received, Counted.calls))
    assert costs[0] == costs[1]
    assert costs[0][0] < 2_000
    assert 0 < costs[0][1] < 200


@needs_nft
@pytest.mark.long
def test_a_change_among_ten_thousand_services() -> None:
    ruleset, change_one = many(10_000)
    with routed(()) as network, kernel_table(network) as table:
        inside(network, program.apply, ruleset.whole(NOTHING))
        assert fastest_s(network, table, [change_one(at) for at in range(20)]) < 0.25
