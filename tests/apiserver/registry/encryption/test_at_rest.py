import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.registry.encryption.at_rest import AtRest
from kvstack.apiserver.registry.encryption.configuration import (
    IDENTITY,
    Key,
    Keys,
    Kms,
    ProviderConfig,
    Rule,
)
from kvstack.apiserver.registry.encryption.kms import (
    WRITE_NS,
    Encrypted,
    EncryptedObject,
    KmsProvider,
    write_object,
)
from kvstack.apiserver.registry.encryption.kms_client import GrpcKms
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.transformer import TransformError
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.registry.encryption.plugin import Plugin, listening
from tests.apiserver.support.memory_store import MemoryStore
from tests.apiserver.support.registries import CONFIG_MAPS, Lines, config_map
from tests.apiserver.support.virtual_time import LoopClock, run

PLACE = b"/registry/configmaps/"
KMS = Kms("vault", "/unused", 3.0)


def rule(*providers: ProviderConfig) -> list[Rule]:
    return [Rule((CONFIG_MAPS,), providers)]


def keys(name: str, kind: str = "aesgcm") -> Keys:
    return Keys(kind, (Key(name, name.encode().ljust(32, b".")),))


def at_rest(
    rules: list[Rule], plugin: Plugin | None = None, clock: FakeClock | None = None
) -> AtRest:
    found = plugin or Plugin()
    return AtRest(rules, clock or FakeClock(), lambda: "uid", Lines(), lambda _config: found)


def run_story(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


# KMS


def test_a_seed_is_made_once_and_kept() -> None:
    async def story() -> None:
        plugin = Plugin()
        transformers = at_rest(rule(KMS), plugin)
        await transformers.start()
        transformer = transformers.of(CONFIG_MAPS, PLACE)
        sealed = [transformer.to_storage(f"a/{n}", b"plain") for n in range(5)]
        assert sealed[0].startswith(b"k8s:enc:kms:v2:vault:")
        assert transformer.from_storage("a/0", sealed[0]) == (b"plain", False)
        assert plugin.asked == ["status", "encrypt"]
        other = at_rest(rule(KMS), plugin)
        with pytest.raises(TransformError, match="failed to decrypt DEK"):
            other.of(CONFIG_MAPS, PLACE).from_storage("a/0", sealed[0])
        await other.prepare(sealed)
        assert [
            other.of(CONFIG_MAPS, PLACE).from_storage(f"a/{n}", e).value
            for n, e in enumerate(sealed)
        ]
        assert plugin.asked.count("decrypt") == 1
        with pytest.raises(TransformError, match="message authentication failed"):
            transformer.from_storage("a/1", sealed[0])

    run_story(story)


def test_a_new_key_of_the_plugin_makes_values_stale() -> None:
    async def story() -> None:
        plugin = Plugin()
        transformers = at_rest(rule(KMS), plugin)
        await transformers.start()
        transformer = transformers.of(CONFIG_MAPS, PLACE)
        sealed = transformer.to_storage("a/b", b"plain")
        plugin.key_id = "key-2"
        assert await transformers.check() == ""
        assert transformer.from_storage("a/b", sealed) == (b"plain", True)
        assert transformer.from_storage("a/b", transformer.to_storage("a/b", b"x")) == (b"x", False)

    run_story(story)


def test_a_seed_is_not_written_with_for_ever() -> None:
    async def story() -> None:
        plugin, clock = Plugin(), FakeClock()
        transformers = at_rest(rule(KMS), plugin, clock)
        plugin.failing = "no"
        assert "is not healthy, error: no" in await transformers.check()
        transformer = transformers.of(CONFIG_MAPS, PLACE)
        with pytest.raises(TransformError, match="is not ready"):
            transformer.to_storage("a/b", b"x")
        plugin.failing = ""
        await transformers.check()
        sealed = transformer.to_storage("a/b", b"x")
        clock.seconds += WRITE_NS / 1e9 + 1
        with pytest.raises(TransformError, match="expired"):
            transformer.to_storage("a/b", b"x")
        assert transformer.from_storage("a/b", sealed).value == b"x"
        await transformers.check()
        assert transformer.to_storage("a/b", b"x")

    run_story(story)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"healthz": "ill"}, "got unexpected healthz status: ill"),
        ({"version": "v1"}, "expected KMSv2 API version v2, got v1"),
        ({"key_id": ""}, "keyID is empty"),
        ({"key_id": "x" * 1025}, "keyID is 1025 bytes, which exceeds the max size of 1024"),
    ],
)
def test_what_a_plugin_may_not_say(change: dict[str, Any], text: str) -> None:
    async def story() -> None:
        transformers = at_rest(rule(KMS), Plugin(**change))
        assert text in await transformers.check()
        assert text in transformers.error

    run_story(story)


def test_a_key_of_an_older_format_is_read() -> None:
    async def story() -> None:
        plugin, clock = Plugin(), FakeClock()
        provider = KmsProvider("vault", plugin, clock, lambda: "uid", lambda size: b"7" * size)
        await provider.check()
        from kvstack.apiserver.registry.encryption.ciphers import AesGcm

        encrypted = await plugin.encrypt("uid", b"k" * 32)
        stored = write_object(EncryptedObject(AesGcm(b"k" * 32).seal(b"x", b"c"), encrypted, 0))
        await provider.fetch([stored])
        assert provider.open(stored, b"c") == (b"x", True)

    run_story(story)


@pytest.mark.parametrize("value", [b"", b"\xff", b"\x0a\x05ab", b"\x08\x01", b"\x0a\x01x\x28\x07"])
def test_any_bytes_may_be_stored(value: bytes) -> None:
    async def story() -> None:
        provider = KmsProvider("vault", Plugin(), FakeClock(), lambda: "uid")
        await provider.fetch([value])
        with pytest.raises(TransformError):
            provider.open(value, b"")

    run_story(story)


def test_a_plugin_is_reached_over_its_socket(tmp_path: Path) -> None:
    async def story() -> None:
        plugin, socket = Plugin(), tmp_path / "kms.sock"
        client = GrpcKms(str(socket), 5.0)
        async with listening(plugin, socket):
            assert await client.status() == ("v2", "ok", "key-1")
            encrypted = await client.encrypt("uid", b"seed")
            assert encrypted == Encrypted(
                plugin._mixed(b"seed", "key-1"), "key-1", {"a.example.com": b"\0x"}
            )
            assert await client.decrypt("uid", encrypted) == b"seed"
            plugin.failing = "out of order"
            provider = KmsProvider("vault", client, FakeClock(), lambda: "uid")
            assert "rpc error: code = UNAVAILABLE desc = out of order" in await provider.check()
        await client.close()
        assert "the connection to the plugin is closed" in await provider.check()

    run_story(story)


# Rules that change


def test_new_rules_are_taken_if_their_plugins_are_well() -> None:
    async def story() -> None:
        plugin = Plugin(failing="no")
        transformers = at_rest(rule(keys("a")), plugin)
        transformer = transformers.of(CONFIG_MAPS, PLACE)
        old = transformer.to_storage("a/b", b"x")
        assert await transformers.replace(rule(KMS, keys("a"))) != ""
        assert transformer.to_storage("a/b", b"x").startswith(b"k8s:enc:aesgcm:v1:a:")
        plugin.failing = ""
        assert await transformers.replace(rule(KMS, keys("a"))) == ""
        assert transformer.from_storage("a/b", old) == (b"x", True)
        assert transformer.to_storage("a/b", b"x").startswith(b"k8s:enc:kms:v2:vault:")
        assert transformers.reloads == {"success": 1, "failure": 1}
        assert transformers.provider_of(GroupResource("", "pods")) is None

    run_story(story)


# In the registry


def registry_of(store: MemoryStore, transformers: AtRest | None) -> Registry:
    rows = [each for each in load() if (each.group, each.name) == ("", "configmaps")]
    return Registry(store, load(), rows, LoopClock(), Lines(), transformers=transformers)


async def names_of(registry: Registry) -> dict[str, str]:
    await registry.watch_cache.latest(3)
    return {each.key: each.error for each in registry.collection(CONFIG_MAPS).between()}


def test_objects_are_stored_encrypted_and_read_by_every_way() -> None:
    async def main() -> None:
        store, plugin = MemoryStore(), Plugin()
        transformers = at_rest(rule(KMS, keys("a"), IDENTITY), plugin)
        await transformers.start()
        async with registry_of(store, transformers) as registry, registry_of(store, None) as blind:
            maps = registry.collection(CONFIG_MAPS)
            await registry.watch_cache.latest(3)
            made = await registry.writes.create(maps, "a/x", config_map("x"))
            assert isinstance(made, Record)
            raw = (await store.get(b"/registry/configmaps/a/x")).kv
            assert raw is not None
            assert raw.value.startswith(b"k8s:enc:kms:v2:vault:")
            assert b"uid-a-x" not in raw.value
            async with registry_of(store, at_rest(rule(KMS), plugin)) as other:
                assert await names_of(other) == {"a/x": ""}
                second = other.collection(CONFIG_MAPS)
                assert second.get("a/x").json == made.json  # type: ignore[union-attr]
                await registry.writes.create(maps, "a/y", config_map("y"))
                assert await names_of(other) == {"a/x": "", "a/y": ""}
                live = await other.history.get(second, "a/y")
                assert live is not None
                assert live.name == "y"
            assert set((await names_of(blind)).values()) == {
                "the stored object is encrypted with an unknown key"
            }
            assert not await registry.history.is_stale(maps, "a/x")
            plugin.key_id = "key-2"
            await transformers.check()
            assert await registry.history.is_stale(maps, "a/x")

    run(main())


def test_what_could_not_be_read_is_read_once_the_plugin_is_back() -> None:
    async def main() -> None:
        store, plugin = MemoryStore(), Plugin()
        transformers = at_rest(rule(KMS), plugin)
        await transformers.start()
        async with registry_of(store, transformers) as registry:
            maps = registry.collection(CONFIG_MAPS)
            await registry.watch_cache.latest(3)
            await registry.writes.create(maps, "a/x", config_map("x"))
        later = at_rest(rule(KMS), plugin)
        plugin.failing = "out of order"
        await later.start()
        async with registry_of(store, later) as registry:
            (run_story,) = (await names_of(registry)).values()
            assert run_story.endswith(
                "not transformable revision=0: failed to decrypt DEK, error: out of order"
            )
            plugin.failing = ""
            assert await later.check() == ""
            await registry.read_broken_anew()
            assert await names_of(registry) == {"a/x": ""}

    run(main())
