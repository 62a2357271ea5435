"""Several API servers on one store, killed and paused while clients write, list and watch."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.apiserver.consistency.clients import (
    LABEL,
    MAPS,
    Client,
    Lister,
    Watcher,
    Writer,
    values_of,
)
from tests.apiserver.consistency.history import History, faults_of
from tests.apiserver.support.api_servers import ApiServer, SharedFiles, cluster, serving
from tests.apiserver.support.requests import send
from tests.apiserver.support.store_links import StoreLinks, store_links
from tests.support.servers import Server, ours, running, together
from tests.support.waiting import is_met, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("apiserver-consistency")]

COUNTERS = ("c0", "c1", "c2")
CALM_S = 0.7  # between faults
PAUSE_S = 1.5  # of a paused process
PARTITION_S = 2.5
SETTLED_S = 120.0
LEAST_WRITES = 20

Fault = Callable[[random.Random], None]


def make_counters(server: ApiServer) -> None:
    key, value = LABEL.split("=")
    for name in COUNTERS:
        metadata = {"name": name, "labels": {key: value}}
        send(server, "POST", MAPS, {"metadata": metadata, "data": {"n": "0"}})


@contextmanager
def clients(servers: Sequence[ApiServer], history: History, seed: int) -> Iterator[list[Client]]:
    """Run writers, listers and watchers; tell of any that failed."""
    Writer.counters = COUNTERS
    kinds = (Writer, Writer, Writer, Lister, Lister, Watcher, Watcher)
    running = [
        kind(f"{kind.__name__}-{number}", servers, history, seed)
        for number, kind in enumerate(kinds)
    ]
    for client in running:
        client.start()
    try:
        yield running
    finally:
        for client in running:
            client.stop()
        for client in running:
            client.join()


def settled(server: ApiServer, running: Sequence[Client]) -> dict[str, int]:
    """Stop who writes, wait until the watchers have seen all; return what a list has."""
    for client in running:
        if not isinstance(client, Watcher):
            client.stop()
            client.join()
    final = values_of(send(server, "GET", f"{MAPS}?labelSelector={LABEL}")["items"])
    watchers = [client for client in running if isinstance(client, Watcher)]
    # If not in time, the checker says so.
    is_met(lambda: all(watcher.values == final for watcher in watchers), SETTLED_S)
    return final


def faults_of_servers(servers: Sequence[ApiServer]) -> list[Fault]:
    """What may happen to an API server."""

    def kill(rng: random.Random) -> None:
        server = rng.choice(servers)
        server.kill()
        server.start()

    def pause(rng: random.Random) -> None:
        server = rng.choice(servers)
        server.pause()
        time.sleep(PAUSE_S)
        server.go_on()

    return [kill, pause]


def faults_of_stores(stores: Sequence[Server]) -> list[Fault]:
    """What may happen to a member of the store."""

    def kill(rng: random.Random) -> None:
        store = rng.choice(stores)
        store.kill()
        store.start()

    return [kill]


def faults_of_links(links: StoreLinks, count: int) -> list[Fault]:
    """What may happen between an API server and its store."""

    def partition(rng: random.Random) -> None:
        number = rng.randrange(count)
        links.stall(number)
        time.sleep(PARTITION_S)
        if rng.random() < 0.5:
            links.cut(number)
        links.flow(number)

    def cut(rng: random.Random) -> None:
        links.cut(rng.randrange(count))

    return [partition, cut]


def play(servers: Sequence[ApiServer], faults: Sequence[Fault], seed: int, count: int) -> History:
    """Let clients work while so many faults happen; check everything they saw."""
    history, dice = History(), random.Random(seed)
    make_counters(servers[0])
    with clients(servers, history, seed) as running:
        for _ in range(count):
            time.sleep(CALM_S)
            dice.choice(faults)(dice)
        for server in servers:
            server.wait_ready()
        wait_for(lambda: len(history.writes) > LEAST_WRITES, "writes go on", SETTLED_S)
        final = settled(servers[0], running)
    assert faults_of(history, final) == []
    return history


def test_api_servers_on_one_store_are_killed_and_paused(tmp_path: Path) -> None:
    with cluster(tmp_path, count=2) as stack:
        play(stack.servers, faults_of_servers(stack.servers), seed=1, count=4)


def test_api_servers_are_cut_off_from_their_store(tmp_path: Path) -> None:
    files = SharedFiles.make(tmp_path / "files")
    store = ours(tmp_path / "store", extra=["--unsafe-no-fsync", "--log-level=warn"])
    with (
        running(store),
        store_links(store.client_port, 2) as links,
        ExitStack() as stack,
    ):
        servers = [
            stack.enter_context(serving(ApiServer(tmp_path / f"api{number}", files, [url])))
            for number, url in enumerate(links.urls)
        ]
        play(servers, faults_of_links(links, 2), seed=2, count=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_api_servers_on_three_stores_under_faults_of_both(tmp_path: Path, seed: int) -> None:
    files = SharedFiles.make(tmp_path / "files")
    stores = [
        ours(tmp_path / f"store{number}", name=f"s{number}", extra=["--log-level=warn"])
        for number in range(3)
    ]
    with together(stores), ExitStack() as stack:
        urls = [store.client_url for store in stores]
        servers = [
            stack.enter_context(serving(ApiServer(tmp_path / f"api{number}", files, urls)))
            for number in range(3)
        ]
        faults = [*faults_of_servers(servers), *faults_of_stores(stores)]
        play(servers, faults, seed=seed, count=20)
