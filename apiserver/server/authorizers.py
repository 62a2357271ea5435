"""Authorizers as flags or a configuration file configure them.

    authorizers = Authorizers(options, parts)       raises ConfigError
    authorizers.chain                               calls them in order
    authorizers.reload()                            the file may have changed

The configuration file may change while the server runs. Authorizers that watch objects or read
files of their own must stay if they were configured at start. An invalid file changes nothing and
is logged.
"""

import asyncio
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.policy.authorization.abac import AbacAuthorizer, read_policies
from kvstack.apiserver.policy.authorization.chain import (
    AlwaysAllow,
    AlwaysDeny,
    Chain,
    NamedAuthorizer,
)
from kvstack.apiserver.policy.authorization.configuration import (
    WEBHOOK,
    AuthorizerChoice,
    WebhookChoice,
    of_modes,
    read_authorizers,
)
from kvstack.apiserver.policy.authorization.node.authorizer import NodeAuthorizer
from kvstack.apiserver.policy.authorization.node.graph import NodeGraph
from kvstack.apiserver.policy.authorization.rbac.authorizer import RbacAuthorizer
from kvstack.apiserver.policy.authorization.rbac.bootstrap import default_rules
from kvstack.apiserver.policy.authorization.rbac.grants import Grants
from kvstack.apiserver.policy.authorization.user_rules import RuleSource
from kvstack.apiserver.policy.authorization.webhook import WebhookAuthorizer, WebhookSettings
from kvstack.apiserver.policy.configured_expressions import (
    BadExpressionError,
    RequestConditions,
)
from kvstack.apiserver.policy.interfaces import ObjectView
from kvstack.apiserver.policy.metrics import (
    AuthorizationWebhookMetrics,
    ReloadMetrics,
    decision_readings,
)
from kvstack.apiserver.policy.remote.connection import Connection
from kvstack.apiserver.policy.remote.kubeconfig import read_kubeconfig
from kvstack.apiserver.policy.remote.webhook import Webhook
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilySamples
from kvstack.component.units import NANOSECOND_S, SECOND_NS

RBAC: Final = "RBAC"
NODE: Final = "Node"
_FLAGS_TIMEOUT_NS: Final = 30 * SECOND_NS


class _Member(NamedAuthorizer, RuleSource, Protocol):
    """An authorizer that also lists rules."""


@dataclass(frozen=True, slots=True)
class AuthorizerParts:
    """What authorizers need."""

    clock: Clock
    random: Callable[[], float]
    """Returns a number from 0 to 1."""
    logger: Logger


class Authorizers:
    """All authorizers of a server."""

    def __init__(self, options: Options, parts: AuthorizerParts) -> None:
        """Read files and make the authorizers; raises ConfigError."""
        self._options: Final = options
        self._parts: Final = parts
        self.grants: Final = Grants()
        self.rbac: Final = RbacAuthorizer(self.grants)
        self._graph: Final = NodeGraph()
        self.webhook_metrics: Final = AuthorizationWebhookMetrics()
        self.reload_metrics: Final = ReloadMetrics("authorization")
        self._data = b""
        self._choices: list[AuthorizerChoice] = self._read()
        self.types: Final = frozenset(each.type for each in self._choices)
        self._lasting: Final = {
            each.type: self._lasting_member(each.type)
            for each in self._choices
            if each.type != WEBHOOK
        }
        self._members, self._connections = self._make(self._choices)
        self.chain: Final = Chain(self._members)

    @property
    def rule_sources(self) -> Sequence[RuleSource]:
        """All authorizers, as sources of rules."""
        return self._members

    def follow(self, view: ObjectView) -> None:
        """Start watching the objects that authorizers read."""
        self.grants.follow(view)
        if NODE in self.types:
            self._graph.follow(view)

    async def reload(self) -> None:
        """Read the configuration file again, if there is one."""
        path, logger = self._options.authorization.config_file, self._parts.logger
        if not path:
            return
        try:
            data = await asyncio.to_thread(Path(path).read_bytes)
            if data == self._data:
                return
            self._data = data
            choices = self._parsed(data, needed=self.types - {WEBHOOK})
            if choices == self._choices:
                return
            members, connections = self._make(choices)
        except (OSError, ConfigError, DocumentError) as error:
            logger.error("failed to reload the authorizers", file=path, error=str(error))
            self.reload_metrics.add(self._parts.clock.unix_ms(), is_taken=False)
            return
        old, self._connections = self._connections, connections
        self._choices, self._members = choices, members
        self.chain.replace(members)
        self.reload_metrics.add(self._parts.clock.unix_ms(), is_taken=True)
        logger.info("reloaded the authorizers", file=path, names=[each.name for each in choices])
        for each in old:
            await each.close()

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families of metrics."""
        yield from decision_readings(self.chain.decisions.items())
        yield from self.webhook_metrics.readings()
        yield from self.reload_metrics.readings()

    async def close(self) -> None:
        """Close connections."""
        for each in self._connections:
            await each.close()

    def _read(self) -> list[AuthorizerChoice]:
        options = self._options.authorization
        if not options.config_file:
            settings = WebhookSettings(
                "webhook", options.webhook_version, options.allowed_ns, options.other_ns
            )
            webhook = WebhookChoice(settings, options.webhook_file, _FLAGS_TIMEOUT_NS)
            return of_modes(self._options.authorization_modes, webhook)
        try:
            self._data = Path(options.config_file).read_bytes()
            return self._parsed(self._data)
        except (OSError, DocumentError) as error:
            raise ConfigError(f"{options.config_file}: {error}") from None

    @staticmethod
    def _parsed(data: bytes, needed: frozenset[str] = frozenset()) -> list[AuthorizerChoice]:
        return read_authorizers(data, _file_problem, needed)

    def _lasting_member(self, type_: str) -> _Member:
        """Return an authorizer that is kept when the configuration changes."""
        if type_ == "ABAC":
            path = self._options.authorization.policy_file
            try:
                return AbacAuthorizer(read_policies(Path(path).read_bytes(), path))
            except (OSError, ValueError) as error:
                raise ConfigError(str(error)) from None
        makers: dict[str, Callable[[], _Member]] = {
            "AlwaysAllow": AlwaysAllow,
            "AlwaysDeny": AlwaysDeny,
            NODE: lambda: NodeAuthorizer(self._graph, default_rules("system:node")),
            RBAC: lambda: self.rbac,
        }
        return makers[type_]()

    def _make(self, choices: Sequence[AuthorizerChoice]) -> tuple[list[_Member], list[Connection]]:
        """Return authorizers and the connections that they own; raises ConfigError."""
        members: list[_Member] = []
        connections: list[Connection] = []
        for each in choices:
            if each.webhook is None:
                lasting = self._lasting.get(each.type)
                members.append(lasting or self._lasting_member(each.type))
                continue
            connection = _connection(each.webhook)
            connections.append(connection)
            members.append(self._webhook(each.webhook, connection))
        return members, connections

    def _webhook(self, choice: WebhookChoice, connection: Connection) -> WebhookAuthorizer:
        conditions = None
        try:
            if choice.conditions:
                conditions = RequestConditions(choice.conditions)
        except BadExpressionError as error:
            raise ConfigError(f"{choice.settings.name}: matchConditions: {error}") from None
        parts = self._parts
        timeout_s = choice.timeout_ns * NANOSECOND_S
        name, metrics = choice.settings.name, self.webhook_metrics
        webhook = Webhook(
            connection,
            timeout_s=timeout_s,
            clock=parts.clock,
            random=parts.random,
            noted=lambda _code, result, took_ns: metrics.add(name, result, took_ns),
        )
        return WebhookAuthorizer(
            choice.settings, webhook, parts.clock, conditions, metrics.count_failed_open
        )


def _connection(choice: WebhookChoice) -> Connection:
    path = Path(choice.kubeconfig)
    try:
        return Connection(read_kubeconfig(path.read_bytes(), path.parent))
    except (OSError, DocumentError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _file_problem(path: str) -> str:
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        return f"error loading file: {error}"
    return "" if stat.S_ISREG(mode) else "must be a regular file"
