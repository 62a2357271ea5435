"""The registry of v3 discovery: an etcd of any version, reached by the project's own client.

Calls block. A call goes to any endpoint that is connected. With --discovery-user the token is
renewed when it has expired.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kvstore.client import ClientOptions, ClientTls, connect
from kvstore.client.blocking import OwnLoop
from kvstore.client.errors import StoreError
from kvstore.client.tls_files import check_files
from kvstore.client.values import Compacted, Events, Interrupted, KeyValue, WatchValue, prefix_end
from kvstore.client.watch import Watch
from kvstore.config.model import DiscoveryConfig
from kvstore.errors import AUTH_FAILED
from kvstore.server.discovery.discovery import DiscoveryError, RegistryError, Row


@contextmanager
def open_registry(config: DiscoveryConfig) -> Iterator["StoreRegistry"]:
    """Yield the registry that the --discovery-* flags name; ConfigError if they are invalid."""
    with OwnLoop() as loop:
        yield StoreRegistry(config, loop)


class StoreRegistry:
    """A Registry; see `kvstore.server.discovery.discovery`."""

    def __init__(self, config: DiscoveryConfig, loop: OwnLoop) -> None:
        """Connect when first called; the connections end with the loop."""
        options = options_of(config)
        check_files(options.tls)
        self._loop = loop
        self._timeout_s: Final = options.timeout_s
        self._store: Final = loop.enter(connect(config.endpoints, options))

    def get(self, key: str) -> Row | None:
        """See Registry."""
        with _failures():
            found = self._loop.run(self._store.get(key.encode())).kv
        return None if found is None else _row(found)

    def list(self, prefix: str) -> tuple[list[Row], int]:
        """See Registry."""
        key = prefix.encode()
        with _failures():
            found = self._loop.run(self._store.range(key, prefix_end(key)))
        return [_row(each) for each in found.kvs], found.revision

    def put(self, key: str, value: str) -> None:
        """See Registry."""
        with _failures():
            self._loop.run(self._store.put(key.encode(), value.encode()))

    def watch(self, prefix: str, revision: int, is_last: Callable[[Row], bool]) -> None:
        """See Registry."""
        key = prefix.encode()
        watch = self._loop.run(self._watch(key, revision))
        try:
            # The watch must be created in time; events may take long.
            is_content = self._take(self._next(watch, self._timeout_s), prefix, is_last)
            while not is_content:
                is_content = self._take(self._next(watch, None), prefix, is_last)
        finally:
            self._loop.run(_cancel(watch))

    async def _watch(self, key: bytes, revision: int) -> Watch:
        return self._store.watch(key, prefix_end(key), start_revision=revision)

    def _next(self, watch: Watch, timeout_s: float | None) -> WatchValue:
        async def read() -> WatchValue:
            async with asyncio.timeout(timeout_s):
                return await anext(watch)

        with _failures():
            try:
                return self._loop.run(read())
            except TimeoutError:
                raise RegistryError(f"no watch within {timeout_s:g} s") from None

    def _take(self, value: WatchValue, prefix: str, is_last: Callable[[Row], bool]) -> bool:
        if isinstance(value, Interrupted):
            raise RegistryError(value.reason)  # logged and retried
        rows: list[Row] = []
        if isinstance(value, Compacted):
            rows = self.list(prefix)[0]
        elif isinstance(value, Events):
            rows = [_row(each.kv) for each in value.events]
        is_content = False
        for row in rows:
            is_content = is_last(row) or is_content
        if isinstance(value, Compacted) and not is_content:
            raise RegistryError("the watched revision has been compacted")
        return is_content


async def _cancel(watch: Watch) -> None:
    watch.cancel()


@contextmanager
def _failures() -> Iterator[None]:
    """Convert errors of a Store to RegistryError and DiscoveryError."""
    try:
        yield
    except StoreError as error:
        if error.text == AUTH_FAILED.text:
            raise DiscoveryError(error.text) from None
        raise RegistryError(error.text) from None


def options_of(config: DiscoveryConfig) -> ClientOptions:
    """Return the client options of the --discovery-* flags."""
    user, password = _user(config)
    return ClientOptions(
        timeout_s=config.request_timeout_s,
        user=user,
        password=password,
        tls=ClientTls(
            cert_file=config.cert_file,
            key_file=config.key_file,
            trusted_ca_file=config.trusted_ca_file,
            is_unverified=config.insecure_skip_tls_verify,
            is_enabled=not config.insecure_transport,
        ),
        dial_timeout_s=config.dial_timeout_s,
        reach_s=config.dial_timeout_s,
        keepalive_interval_s=config.keepalive_time_s,
        keepalive_timeout_s=config.keepalive_timeout_s,
    )


def _user(config: DiscoveryConfig) -> tuple[str, str]:
    if not config.password and ":" in config.user:
        user, _, password = config.user.partition(":")
        return user, password
    return config.user, config.password


def _row(each: KeyValue) -> Row:
    key, value = (part.decode("utf-8", "replace") for part in (each.key, each.value))
    return Row(key, value, each.create_revision)
