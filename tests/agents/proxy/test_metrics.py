"""What `/metrics` of a proxy has, by mode: kube-proxy's names, kinds and labels."""

import asyncio
from collections.abc import Mapping
from typing import Final

import pytest
from typing_extensions import override

from kvstack.agents.client.api import Event
from kvstack.agents.proxy.connections import FlowCleaner
from kvstack.agents.proxy.metrics import readings
from kvstack.agents.proxy.modes import IPTABLES, NFTABLES, USERSPACE
from kvstack.component.metrics.exposition import render
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service
from tests.agents.proxy.test_proxier import World, Written
from tests.support.list_log import ListLog

EVERYWHERE: Final = {
    'sync_proxy_rules_duration_seconds_count{ip_family="IPv4"}': 1,
    'sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"}': 1,
    "sync_proxy_rules_service_changes_total": 4,
    "sync_proxy_rules_endpoint_changes_total": 2,
    "sync_proxy_rules_service_changes_pending": 1,
    "sync_proxy_rules_endpoint_changes_pending": 0,
    'sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"}': 1,
    'sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="external"}': 1,
    'proxy_healthz_total{code="200"}': 3,
    'proxy_livez_total{code="503"}': 1,
}
OF_RULES: Final = {
    'conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv4"}': 2,
    'conntrack_reconciler_deleted_entries_total{ip_family="IPv4"}': 7,
}
OF_MODE: Final = {
    NFTABLES: {
        **OF_RULES,
        'sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"}': 3,
        'sync_proxy_rules_nftables_cleanup_failures_total{ip_family="IPv4"}': 5,
    },
    IPTABLES: {
        **OF_RULES,
        'sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"}': 1,
        'sync_proxy_rules_iptables_partial_restore_failures_total{ip_family="IPv4"}': 2,
        'sync_proxy_rules_iptables_total{ip_family="IPv4",table="nat"}': 40,
        'sync_proxy_rules_iptables_last{ip_family="IPv4",table="nat"}': 4,
        'sync_proxy_rules_iptables_last{ip_family="IPv4",table="filter"}': 0,
    },
    USERSPACE: {},
}


class OfMode(Written):
    """A backend that counts as one of a mode does."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self._mode = mode
        self._flows = FlowCleaner(ListLog())
        self._flows.deleted = 7
        for seconds in (0.01, 0.02):
            self._flows.seconds.add(seconds)

    @property
    @override
    def mode(self) -> str:
        return self._mode

    @property
    @override
    def rule_counts(self) -> Mapping[str, int]:
        return {"nat": 40}

    @property
    @override
    def last_rule_counts(self) -> Mapping[str, int]:
        return {"nat": 4, "filter": 0}

    @property
    @override
    def cleanup_failures(self) -> int:
        return 5

    @property
    @override
    def flows(self) -> FlowCleaner | None:
        return None if self._mode == USERSPACE else self._flows


@pytest.mark.parametrize("mode", OF_MODE)
def test_what_is_counted(mode: str) -> None:
    found = asyncio.run(page(mode))
    expected = {**EVERYWHERE, **OF_MODE[mode]}
    assert {name: found.get(name) for name in expected} == expected
    for other, names in OF_MODE.items():
        assert other == mode or not (names.keys() - expected.keys()) & found.keys()


async def page(mode: str) -> dict[str, float]:
    """Return the samples of a proxy that has served three Services, without their prefix."""
    world = World(OfMode(mode))
    outside = balanced("192.0.2.7", externalTrafficPolicy="Local", clusterIP="10.96.0.11")
    outside["metadata"] |= {"name": "outside", "uid": "outside"}
    # Of a Service that has no endpoint anywhere nothing is dropped: it is refused.
    empty = service("empty", clusterIP="10.96.0.12", internalTrafficPolicy="Local")
    world.fill(service("inside", internalTrafficPolicy="Local"), outside, empty)
    elsewhere = endpoint("10.244.0.3", "there")
    slices = [endpoint_slice(elsewhere, name=f"{of}-1", of=of) for of in ("inside", "outside")]
    world.slices.replace(slices, "1")
    try:
        await world.proxier.start()
        world.services.apply([Event("ADDED", service("late", clusterIP="10.96.0.13"))])
        counts = world.proxier.counts
        counts.failures[4], counts.partial_failures[4] = 1, 2
        text = render(readings(world.proxier, {"/healthz": {200: 3}, "/livez": {503: 1}}))
    finally:
        await world.proxier.close()
    samples = (line.rpartition(" ") for line in text.decode().splitlines() if line[0] != "#")
    return {name.removeprefix("kubeproxy_"): float(value) for name, _, value in samples}
