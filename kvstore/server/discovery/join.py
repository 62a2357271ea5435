"""Joins a new cluster through the registry that --discovery-token names."""

from collections.abc import Callable

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.config.model import Config
from kvstore.server.discovery.discovery import Discovery, DiscoveryError, RegistryError


def discoverer(config: Config, logger: Logger) -> Callable[[int, str], str] | None:
    """Return a function that joins the cluster of --discovery-token; None without that flag.

    It takes (id, name=url) and raises ConfigError if that cluster is full.
    """
    settings = config.discovery
    if not settings.endpoints:
        return None
    token = settings.token
    fields: dict[str, object] = {
        "discovery-token": token,
        "discovery-endpoints": ",".join(settings.endpoints),
    }

    def join(member_id: int, contents: str) -> str:
        from kvstore.server.discovery.registry import open_registry  # loads the client

        logger.info("Bootstrapping cluster using v3 discovery.")
        with open_registry(settings) as registry:
            try:
                cluster = Discovery(registry, token, logger).join(member_id, contents)
            except (DiscoveryError, RegistryError) as error:
                logger.error("discovery failed to join cluster", **fields, error=str(error))
                logger.warning("failed to bootstrap; discovery token was already used", **fields)
                logger.warning(
                    "do not reuse discovery token; generate a new one to bootstrap a cluster"
                )
                raise ConfigError(f"failed to join discovery cluster ({error})") from None
        logger.info("discovery joined cluster successfully", **fields, cluster=cluster)
        return cluster

    return join
