"""An API server over a store, for programs that are built on it.

    async with connect(["http://127.0.0.1:2379"]) as store:
        server = ApiServer(store, options, logger)
        await server.start()          listens; server.urls says where
        await server.ready()          until the objects of the start are there
        await server.stop()

Several can run in one process and on one store. An ApiServer installs no signal handlers and does
not change global state. Clock, randomness and store are passed in, so that a simulation can replace
them. One that does not listen (`ServingOptions.listens`) is reached by agents of the process and by
`loopback` only.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random, SystemRandom
from typing import Final
from urllib.parse import urlsplit

from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.apiextensions.serving.conversion import WebhookConverter
from kvstack.apiserver.apiextensions.serving.definitions import Definitions
from kvstack.apiserver.apiextensions.serving.metrics import ConversionMetrics, rule_readings
from kvstack.apiserver.http.browsers import BrowserRules
from kvstack.apiserver.http.limits.in_flight import InFlight
from kvstack.apiserver.http.site import Site
from kvstack.apiserver.policy.admission.chain import AdmissionChain
from kvstack.apiserver.policy.admission.metrics import AdmissionMetrics
from kvstack.apiserver.policy.audit.sinks import Sink
from kvstack.apiserver.policy.flow_control.control import FlowControl
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.watch_cache import BehindError
from kvstack.apiserver.server import encryption, review_handlers
from kvstack.apiserver.server.addresses import advertised_address
from kvstack.apiserver.server.aggregator import Aggregator
from kvstack.apiserver.server.audit import Audit
from kvstack.apiserver.server.certificates_page import PATH as CERTIFICATES
from kvstack.apiserver.server.certificates_page import CertificatesPage
from kvstack.apiserver.server.certs.serving_certificate import ServingCertificate
from kvstack.apiserver.server.component_pages import add_component_pages
from kvstack.apiserver.server.components import ComponentStatuses
from kvstack.apiserver.server.health_checks import HealthChecks
from kvstack.apiserver.server.identity_pages import add_identity_pages
from kvstack.apiserver.server.local_port import LocalPort
from kvstack.apiserver.server.loopback import Loopback
from kvstack.apiserver.server.parameter_kinds import parameter_kind
from kvstack.apiserver.server.security import Security
from kvstack.apiserver.server.served import served_as, served_rows
from kvstack.apiserver.server.settings.options import Options, ServingOptions
from kvstack.apiserver.server.upkeep.jobs import Cluster, make_jobs
from kvstack.apiserver.server.upkeep.loop import Job, Jobs
from kvstack.apiserver.streams.kubelets import Kubelets
from kvstack.apiserver.verbs.endpoint import Endpoints
from kvstack.apiserver.verbs.environment import Environment, Settings
from kvstack.apiserver.verbs.writing.identifiers import Identifiers
from kvstack.apiserver.webhooks.client import WebhookClient
from kvstack.apiserver.webhooks.outbound import Outbound
from kvstack.apiserver.webhooks.services import Services
from kvstack.component.clock import Clock, SystemClock
from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.http.serving.listeners import (
    ClientAuth,
    KeyPair,
    Listener,
    ListenerLimits,
    ServerTls,
)
from kvstack.component.http.serving.notices import log_notice
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.logger import Logger
from kvstack.component.net.hosts import join_host_port, listen_url
from kvstack.component.units import SECOND_NS
from kvstore.client.errors import StoreError
from kvstore.client.store import Store

_RETRY_S: Final = 0.2
_LOOK_AGAIN_S: Final = 0.1
REQUESTS_S: Final = 60.0
"""How long `stop` waits for requests that are being answered."""


class ApiServer:
    """One API server."""

    def __init__(
        self,
        store: Store,
        options: Options,
        logger: Logger,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        renew: Callable[[], None] | None = None,
        changes: Sink | None = None,
    ) -> None:
        """Assemble the server; the store must be connected. Raises ConfigError.

        renew: called periodically to renew the certificates of the embedding program. changes:
        audit sink of all requests that change something.
        """
        self._renew: Final = renew
        self._options: Final = options
        self._logger: Final = logger
        self._clock: Final = clock or SystemClock()
        self._table: Final = load()
        rows = served_rows(self._table, options.runtime_config)
        self._random: Final = random or SystemRandom()
        self._identifiers: Final = Identifiers(self._random)
        self.encryption: Final = encryption.make(
            options.encryption, self._clock, self._identifiers.new_uid, logger
        )
        self.registry: Final = self._registry(store, rows)
        self.security: Final = self._security()
        services = Services(self.registry.view)
        self.outbound: Final = Outbound(self._clock.unix_ms, is_open=options.asks_others)
        """Whether webhooks, aggregated servers and nodes are called, and the calls that were
        suppressed."""
        self.webhooks: Final = WebhookClient(services, self.outbound)
        admissions, conversions = AdmissionMetrics(self._clock), ConversionMetrics(self._clock)
        self.env: Final = self._environment(rows)
        self.loopback: Final = Loopback(self.env)
        self.env.admission = self._admission(admissions)
        review_handlers.add_reviews(self.env, rows, self.security.reviews)
        self.components: Final = ComponentStatuses.of(store, options.store.root)
        self.env.sources["", "componentstatuses"] = self.components
        if self.security.issuer is not None:
            review_handlers.add_tokens(self.env, self.security.issuer)
        self.advertised: Final = advertised_address(options.serving)
        self.port = options.serving.port
        """The port it listens on, once it does."""
        self.audit: Final = Audit(options.audit, self._clock, logger, changes)
        self.flow_control: Final = _flow_control(options.serving, self._clock)
        self.site: Final = self._site()
        self._tell_metrics(admissions, conversions)
        self.definitions: Final = self._definitions(conversions)
        self.aggregator: Final = Aggregator(
            self.site, self.registry, services, options.proxy_certificate, self.outbound, logger
        )
        self.local: Final = LocalPort(self.site, self.security.authenticators.local_tokens)
        self._certificate = ServingCertificate(
            options.serving, self.advertised, options.service_ranges, self._clock, logger
        )
        shown = self._certificate.files[0] if options.serving.listens else ""
        self.certificates: Final = CertificatesPage(options, str(shown))
        self.site.pages.add(CERTIFICATES, self.certificates, is_listed=False)
        self._health = self._health_checks()
        self._http: HttpServer | None = None
        self._jobs: Jobs | None = None

    def _registry(self, store: Store, rows: list[Resource]) -> Registry:
        """Return the cluster in memory, and the way to the store."""
        options = self._options
        return Registry(
            store,
            self._table,
            rows,
            self._clock,
            self._logger,
            root=options.store.root,
            transformers=self.encryption,
            keeps_times=not options.is_read_only,
            is_alone=options.is_alone,
        )

    def _environment(self, rows: list[Resource]) -> Environment:
        """Return what verbs work with; its admission comes later, since plugins use verbs."""
        return Environment(
            self.registry,
            Endpoints(rows, self.registry),
            self.security.authorizer,
            self._clock,
            self._random,
            self._identifiers,
            _settings(self._options),
        )

    def _health_checks(self) -> HealthChecks:
        return HealthChecks(
            self.site.health,
            self.registry,
            self._options.store,
            self._certificate.fault,
            None if self.encryption is None else self.encryption.rules,
        )

    def _security(self) -> Security:
        """Return authentication, authorization and token issuing."""
        return Security(
            self._options,
            self.registry,
            self._table,
            self._clock,
            self._identifiers.new_uid,
            self._random.random,
            self._logger,
        )

    def _definitions(self, metrics: ConversionMetrics) -> Definitions:
        """Return the custom resources, whose objects are converted by webhooks."""
        return Definitions(
            self.registry,
            self.site.set_custom,
            lambda definition: WebhookConverter(
                definition, self.webhooks, self._identifiers.new_uid, metrics
            ),
            self._logger,
        )

    def _admission(self, metrics: AdmissionMetrics) -> AdmissionChain:
        """Return admission plugins, some of which write through the verbs; raises ConfigError."""
        endpoints = self.env.endpoints
        return self.security.admission(
            self._identifiers.new_name,
            self.loopback.create_namespace,
            partial(served_as, endpoints),
            self.webhooks,
            metrics,
            partial(parameter_kind, endpoints),
        )

    def _site(self) -> Site:
        """Return the pages and the request pipeline in front of them."""
        serving = self._options.serving
        site = Site(
            self.env,
            self._table,
            self.security.authenticator,
            self._logger,
            address=lambda: self.address,
            in_flight=InFlight(
                self._clock,
                reads_max=0 if serving.is_fair else serving.reads_max,
                writes_max=0 if serving.is_fair else serving.writes_max,
            ),
            flow_control=self.flow_control,
            auditing=self.audit.auditing,
            request_timeout_ns=int(serving.request_timeout_s * SECOND_NS),
            streams=Kubelets(self._options.kubelets, self.outbound),
        )
        if serving.cors_origins or serving.transport_security:
            site.api.browsers = BrowserRules(serving.cors_origins, serving.transport_security)
        return site

    def _tell_metrics(self, admissions: AdmissionMetrics, conversions: ConversionMetrics) -> None:
        sources = self.site.metrics.more
        sources += [
            admissions.readings,
            self.security.readings,
            conversions.readings,
            rule_readings,
        ]
        if self.encryption is not None:
            sources.append(partial(encryption.readings, self.encryption))

    @property
    def options(self) -> Options:
        """The server's settings."""
        return self._options

    @property
    def address(self) -> str:
        """The host and port that are advertised to clients."""
        host = self._options.serving.external_host or self.advertised
        return join_host_port(host, self.port)

    @property
    def urls(self) -> list[str]:
        """The URLs it listens on, with the port that was bound."""
        return [] if self._http is None else self._http.urls

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The background jobs; none before start."""
        return () if self._jobs is None else self._jobs.jobs

    async def start(self) -> None:
        """Read the cluster, listen unless the options say not to, and start the background jobs.

        Raises ConfigError for invalid settings, and ComponentError if the store does not answer in
        time.
        """
        if self.encryption is not None:
            await self.encryption.start()
        await self.registry.__aenter__()
        try:
            await self._reach_store()
            self.security.follow()
            self.aggregator.follow()
            if self.flow_control is not None:
                self.flow_control.follow(self.registry.view)
            self.definitions.follow()
            await self.definitions.settled()
            if self._options.serving.listens:
                await self.listen()
            else:
                self.local.attach_alone()
            await self.local.start()
        except BaseException:
            await self.definitions.stop()
            await self.webhooks.close()
            await self.registry.__aexit__(None, None, None)
            raise
        self._begin_upkeep()
        self._logger.info("ready to serve API requests", urls=self.urls, advertised=self.address)

    async def listen(self, port: int | None = None) -> None:
        """Listen, for callers that started without, for instance to fork first; raises ConfigError.

        port: 0 is any free port; None is that of the options.
        """
        assert self._http is None, "the server does not listen yet"
        serving = self._options.serving
        port = serving.port if port is None else port
        self._certificate.ensure()
        tls = None if serving.is_plain else self._tls()
        hosts = (serving.bind_address, *serving.also_bind_addresses)
        urls = [listen_url(each, port, is_plain=serving.is_plain) for each in hosts]
        limits = ListenerLimits(streams_max=serving.streams_max)
        http = HttpServer(
            [Listener(url, "secure", tls, limits) for url in urls],
            self.site.api,
            on_notice=partial(log_notice, self._logger),
        )
        self.local.attach(http)
        await http.start()
        self._http = http
        self.port = urlsplit(http.urls[0]).port or self.port
        add_component_pages(self.site.pages, self.site.health, self._clock, self._options.flags)
        add_identity_pages(
            self.site.pages, self._options, self.security, self.address, self._logger
        )

    async def ready(self) -> None:
        """Wait until the objects that are made at start exist."""
        for each in self.jobs:
            if each.hooks:
                await each.done.wait()

    async def serve(self) -> None:
        """Wait until the server was stopped; raises ComponentError if it ended otherwise."""
        assert self._http is not None, "a server that listens was started"
        await self._http.serve()

    async def stop(self, grace_s: float = REQUESTS_S) -> None:
        """Drain requests for up to grace_s, then stop; further calls do nothing."""
        http, jobs, self._jobs = self._http, self._jobs, None
        if jobs is None:
            return
        self._health.is_stopping = True
        await jobs.stop()  # removes this server from the endpoints of the Service `kubernetes`
        if http is not None:
            await asyncio.sleep(self._options.serving.shutdown_delay_s)
            http.drain()
            await self._watches_over(self._options.serving.watch_grace_s)
        await self.local.stop(grace_s)
        if http is not None:
            await http.stop(grace_s)
        await self.definitions.stop()
        await self.security.close()
        await self.webhooks.close()
        await self.registry.__aexit__(None, None, None)
        if self.encryption is not None:
            await self.encryption.stop()
        await self.audit.stop()
        self.env.large_objects.close()
        self._logger.info("closed the API server", urls=self.urls)

    async def _watches_over(self, grace_s: float) -> None:
        """Wait up to grace_s until clients have ended their watches."""
        try:
            async with asyncio.timeout(grace_s):
                while grace_s and self.site.watches.count:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            self._logger.info("ending the remaining watches", count=self.site.watches.count)

    async def _reach_store(self) -> None:
        """Wait until the watch cache is filled."""
        timeout_s = self._options.store.start_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        await self.registry.watch_cache.latest(timeout_s)
                    except (StoreError, BehindError) as error:
                        self._logger.warning("the store is not reachable yet", error=str(error))
                        await asyncio.sleep(_RETRY_S)
                    else:
                        return
        except TimeoutError:
            raise ComponentError(f"the store did not answer within {timeout_s} s") from None

    def _renew_certificates(self) -> None:
        try:
            if self._renew is not None:
                self._renew()
            self._certificate.ensure()
        except ConfigError as error:
            self._logger.error("failed to renew certificates", error=str(error))

    def _tls(self) -> ServerTls:
        serving, authentication = self._options.serving, self._options.authentication
        cert, key = self._certificate.files
        authorities = {
            name: path
            for name, path in (
                ("clients", authentication.client_ca_file),
                ("front-proxy", authentication.proxy_ca_file),
            )
            if path
        }
        return ServerTls(
            KeyPair(str(cert), str(key)),
            tuple(KeyPair(each.cert_file, each.key_file, each.names) for each in serving.others),
            client_auth=ClientAuth.REQUEST if authorities else ClientAuth.NONE,
            authorities=authorities,
            min_version=serving.min_version,
            cipher_suites=serving.cipher_suites,
            http2=serving.http2,
        )

    def _begin_upkeep(self) -> None:
        cluster = Cluster(
            self._options,
            self._table,
            self.registry,
            self.env,
            self.loopback,
            self.security,
            self.site,
            self.advertised,
            self.port,
            self._renew_certificates,
            self.aggregator,
            self._logger,
            self.encryption,
        )
        self._jobs = Jobs(make_jobs(cluster), self._logger)
        self._health.begin(self._jobs.jobs)
        self._jobs.start()


def _settings(options: Options) -> Settings:
    return Settings(
        event_ttl_s=options.event_ttl_s,
        allow_privileged=options.allow_privileged,
        service_ranges=options.service_ranges,
        node_ports=options.node_ports,
        kubelet_addresses=options.kubelet_addresses,
        proxies_to_loopback=options.proxies_to_loopback,
        min_request_timeout_s=options.min_watch_s,
        is_read_only=options.is_read_only,
    )


def _flow_control(serving: ServingOptions, clock: Clock) -> FlowControl | None:
    """Return priority and fairness; None: limits of requests in flight apply instead."""
    if not serving.is_fair:
        return None
    return FlowControl(serving.reads_max + serving.writes_max, clock)
