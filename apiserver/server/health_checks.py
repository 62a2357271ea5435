"""The checks of /healthz, /livez and /readyz.

    ping log [loopback-serving-certificate] etcd [etcd-readiness informer-sync]
    poststarthook/… [shutdown]

Checks have upstream's names and order, because monitors request them one by one. A start hook that
is a job here is done when the job has succeeded once. What upstream's other hooks wait for
(informers are synced, filters are in place) is true here once the server has started, since the
whole cluster was read. A hook that was done stays done: a store that has to be read again is no
reason to restart the server.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from kvstack.apiserver.http.pages.health import PAGES, READY_ONLY, Check, Health
from kvstack.apiserver.registry.encryption.at_rest import AtRest
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.server.settings.options import StoreOptions
from kvstack.apiserver.server.upkeep.loop import Job
from kvstore.client.errors import StoreError

ALIVE_ONLY: Final = tuple(each for each in PAGES if each not in READY_ONLY)
HOOKS: Final = (
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
)
"""The hooks in upstream's order."""
_ONE_MODE: Final = frozenset(("poststarthook/rbac/bootstrap-roles",))
"""Hooks that exist only if their job does."""


class HealthChecks:
    """The checks of a server."""

    def __init__(
        self,
        health: Health,
        registry: Registry,
        options: StoreOptions,
        certificate: Callable[[], str],
        encryption: AtRest | None = None,
    ) -> None:
        """Add checks; certificate: returns what is wrong with the serving certificate."""
        self._health: Final = health
        self._registry: Final = registry
        self._key: Final = f"{options.root}health".encode()
        self.is_stopping = False
        health.add("log", lambda: "")
        health.add("loopback-serving-certificate", certificate, ALIVE_ONLY)
        health.add("etcd", lambda: self._ask(options.health_timeout_s))
        health.add("etcd-readiness", lambda: self._ask(options.ready_timeout_s), READY_ONLY)
        if encryption is not None:
            health.add("kms-providers", lambda: encryption.error)
        health.add("informer-sync", self._copy, READY_ONLY)

    def begin(self, jobs: Iterable[Job]) -> None:
        """Add the checks of start hooks, and the final one."""
        by_hook: dict[str, list[Job]] = {}
        for each in jobs:
            for hook in each.hooks:
                by_hook.setdefault(hook, []).append(each)
        unknown = by_hook.keys() - set(HOOKS)
        assert not unknown, f"upstream has no such hooks: {unknown}"
        for name in HOOKS:
            belonging = by_hook.get(name, [])
            if belonging or name not in _ONE_MODE:
                check: Check = partial(_hook, belonging)
                self._health.add(name, check)
        self._health.add("shutdown", self._shutdown, READY_ONLY)

    async def _ask(self, timeout_s: float) -> str:
        try:
            async with asyncio.timeout(timeout_s):
                await self._registry.store.get(self._key)
        except TimeoutError:
            return f"the store did not answer within {timeout_s} s"
        except StoreError as error:
            return str(error)
        return ""

    def _copy(self) -> str:
        return "" if self._registry.watch_cache.is_loaded else "the store is being read"

    def _shutdown(self) -> str:
        return "process is shutting down" if self.is_stopping else ""


def _hook(jobs: Iterable[Job]) -> str:
    return "" if all(each.done.is_set() for each in jobs) else "not finished"
