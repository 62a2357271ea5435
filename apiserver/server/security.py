"""Authentication, authorization and token issuing as the flags configure them.

    security = Security(options, registry, table, clock, new_uid, random, logger)
    security.authenticator, security.authorizer, security.reviews, …

Files are read at construction; configurations and client CAs are read again when they change.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apimachinery.schema.table import Table
from kvstack.apiserver.policy.admission.assembly import BUILT, Parts, admission_chain
from kvstack.apiserver.policy.admission.chain import AdmissionChain
from kvstack.apiserver.policy.admission.metrics import AdmissionMetrics
from kvstack.apiserver.policy.admission.plugins.optional.namespaces import MakeNamespace
from kvstack.apiserver.policy.admission.plugins.optional.owner_references_permission_enforcement import (  # noqa: E501
    KindMapping,
)
from kvstack.apiserver.policy.admission.policies.parameters import FindKind
from kvstack.apiserver.policy.admission.webhooks.plugins import WebhookParts
from kvstack.apiserver.policy.authorization.rbac.escalation import EscalationCheck
from kvstack.apiserver.policy.expressions.match_conditions import RequestConditions
from kvstack.apiserver.policy.remote.connection import Connection
from kvstack.apiserver.policy.remote.kubeconfig import read_kubeconfig
from kvstack.apiserver.policy.remote.webhook import Webhook
from kvstack.apiserver.policy.reviews.reviews import Reviews
from kvstack.apiserver.policy.service_accounts.issuer import TokenIssuer, TokenSettings
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.server.authenticators import AuthenticatorParts, Authenticators
from kvstack.apiserver.server.authorizers import RBAC, AuthorizerParts, Authorizers
from kvstack.apiserver.server.manifests import ManifestFiles
from kvstack.apiserver.server.settings.options import Options, file_bytes
from kvstack.apiserver.webhooks.client import WebhookClient
from kvstack.component.certs.service_account_keys import (
    SigningKey,
)
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilySamples

UNBUILT_AND_HARMLESS: Final = frozenset(("PodGroupProtection",))
"""Plugins that may be enabled although they are not implemented: they would admit everything, since
the APIs that they need are not served."""
_IMAGES_TIMEOUT_S: Final = 30.0


class Security:
    """The parts of policy."""

    def __init__(
        self,
        options: Options,
        registry: Registry,
        table: Table,
        clock: Clock,
        new_uid: Callable[[], str],
        random: Callable[[], float],
        logger: Logger,
    ) -> None:
        """Read files and assemble the parts; raises ConfigError."""
        self._options: Final = options
        self._registry: Final = registry
        self._clock: Final = clock
        self._logger: Final = logger
        self._new_uid: Final = new_uid
        self._random: Final = random
        self.authorizers: Final = Authorizers(options, AuthorizerParts(clock, random, logger))
        self.authorizer: Final = self.authorizers.chain
        self.authenticators: Final = Authenticators(
            options.authentication,
            AuthenticatorParts(
                registry.view,
                registry.live,
                clock,
                random,
                logger,
                allows_all="AlwaysAllow" in self.authorizers.types,
            ),
        )
        authenticators = self.authenticators
        self.authenticator: Final = authenticators.requests
        self.reviews: Final = Reviews(
            self.authorizer,
            lambda: self.authorizers.rule_sources,
            authenticators.tokens,
            authenticators.audiences,
            clock,
        )
        self.issuer: Final = self._issuer(new_uid)
        self._images: Connection | None = None
        self.manifests: Final = ManifestFiles(options.admission, table, clock, logger)

    def follow(self) -> None:
        """Start watching the objects that authorizers read."""
        self.authorizers.follow(self._registry.view)

    @property
    def reloads(self) -> bool:
        """Whether there is anything to reload."""
        given = self._options
        return bool(
            given.authorization.config_file
            or given.authentication.config_file
            or given.authentication.oidc
            or given.admission.manifest_folders
        )

    async def reload(self) -> None:
        """Reload configuration files that may have changed."""
        await self.manifests.reload()
        await self.authorizers.reload()
        await self.authenticators.reload()

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families of metrics."""
        yield from self.authorizers.readings()
        yield from self.authenticators.readings()

    async def close(self) -> None:
        """Close connections."""
        if self._images is not None:
            await self._images.close()
        await self.authenticators.close()
        await self.authorizers.close()

    def admission(
        self,
        new_name: Callable[[str], str],
        make_namespace: MakeNamespace,
        resources_of: KindMapping,
        client: WebhookClient,
        metrics: AdmissionMetrics,
        find_kind: FindKind,
    ) -> AdmissionChain:
        """Return the enabled admission plugins; raises ConfigError. Parameters: see `Parts`."""
        options = self._options
        registry = self._registry
        unbuilt = [each for each in options.enabled_plugins if each not in BUILT]
        unsafe = [each for each in unbuilt if each not in UNBUILT_AND_HARMLESS]
        if unsafe:
            raise ConfigError(f"admission plugins are not supported here: {', '.join(unsafe)}")
        if unbuilt:
            self._logger.warning("these admission plugins have no effect here", plugins=unbuilt)
        webhooks = WebhookParts(
            registry.view,
            registry.live,
            client,
            self._clock,
            self._new_uid,
            RequestConditions(self.authorizer),
            metrics.webhooks,
            self._logger,
            self.manifests.manifests,
        )
        parts = Parts(
            registry.view,
            registry.live,
            self._clock,
            self.authorizer,
            new_name,
            make_namespace,
            resources_of,
            webhooks,
            find_kind,
            metrics,
            options.admission,
            self._image_reviewer(),
        )
        authorizers = self.authorizers
        check = EscalationCheck(
            authorizers.chain, authorizers.rbac, authorizers.grants, registry.live
        )
        return admission_chain(
            parts,
            [each for each in options.enabled_plugins if each in BUILT],
            [each for each in options.disabled_plugins if each in BUILT],
            after_mutation=[check] if RBAC in authorizers.types else [],
        )

    def _image_reviewer(self) -> Webhook | None:
        """Return the image review webhook; None if not configured. Raises ConfigError."""
        settings = self._options.admission.image_policy
        if "ImagePolicyWebhook" not in self._options.enabled_plugins:
            return None
        if settings is None:
            raise ConfigError("ImagePolicyWebhook: no config specified")
        path = Path(settings.kubeconfig)
        try:
            target = read_kubeconfig(file_bytes(str(path)), path.parent)
        except DocumentError as error:
            raise ConfigError(f"ImagePolicyWebhook: {path}: {error}") from None
        self._images = Connection(target)
        return Webhook(
            self._images,
            timeout_s=_IMAGES_TIMEOUT_S,
            clock=self._clock,
            random=self._random,
            first_pause_s=settings.first_pause_s,
        )

    def _issuer(self, new_uid: Callable[[], str]) -> TokenIssuer | None:
        accounts, registry = self._options.authentication.accounts, self._registry
        if not accounts.signing_key_file:
            return None
        try:
            key = SigningKey(_read(accounts.signing_key_file))
        except ValueError as error:
            raise ConfigError(f"{accounts.signing_key_file}: {error}") from None
        settings = TokenSettings(
            issuer=accounts.issuers[0],
            api_audiences=tuple(self.authenticators.audiences),
            longest_seconds=accounts.longest_s,
            extends=accounts.extends,
        )
        return TokenIssuer(key, settings, registry.view, registry.live, self._clock, new_uid)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
