"""Conversion of custom resources by a webhook.

    converter = WebhookConverter(definition, client, new_uid)
    converted = await converter.convert([obj, …], "g.io/v2")      one call for all

The webhook is called each time: a fixed or newly broken one takes effect at once. Results are only
held if a synchronous part of a request needs them, for as long as the request says:

    held = await converter.hold(obj, "g.io/v2")
    converter.find(obj, "g.io/v2")               what the webhook answered
    converter.release(held)

A converter belongs to one state of its definition: a change starts with a new one.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate_annotations, validate_labels
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text
from kvstack.apiserver.apiextensions.serving.metrics import (
    INVALID,
    MALFORMED,
    PARTIAL,
    ConversionCall,
    ConversionMetrics,
)
from kvstack.apiserver.webhooks.client import CallError, WebhookClient
from kvstack.apiserver.webhooks.client_config import read_client_config
from kvstack.apiserver.webhooks.conversion_reviews import VERSIONS, read_objects, review_body
from kvstack.apiserver.webhooks.outbound import CLOSED, CONVERSION

TIMEOUT_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 256 << 20
_QUERY: Final = "?timeout=30s"
_SAME: Final = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))


class WebhookConverter:
    """Converts the objects of one definition."""

    def __init__(
        self,
        definition: Object,
        client: WebhookClient,
        new_uid: Callable[[], str],
        metrics: ConversionMetrics,
    ) -> None:
        """Take the webhook of a definition; raises ValueError if it cannot be called."""
        spec = definition["spec"]
        self._name: Final[str] = definition["metadata"]["name"]
        self._metrics: Final = metrics
        webhook = (spec.get("conversion") or {}).get("webhook") or {}
        self._client_config: Final = read_client_config(webhook.get("clientConfig") or {})
        versions = webhook.get("conversionReviewVersions") or ()
        self._version: Final = next((each for each in versions if each in VERSIONS), "")
        if not self._version:
            raise ValueError("no supported conversion review versions")
        self._client: Final = client
        self._new_uid: Final = new_uid
        self._held: dict[bytes, list[bytes]] = {}
        """Results that requests hold, by source object; the last one counts."""

    def find(self, obj: Object, api_version: str) -> Object | None:
        """Return an object in a version, if it is in that version or held."""
        if obj.get("apiVersion") == api_version:
            return obj
        held = self._held.get(_key(obj, api_version)) if self._held else None
        if held is None:
            return None
        found: Object = orjson.loads(held[-1])
        return found

    async def hold(self, obj: Object, api_version: str) -> bytes:
        """Convert an object and hold the result until `release`; return the handle.

        Raises ApiError.
        """
        key = _key(obj, api_version)
        [made] = await self.convert([obj], api_version)
        self._held.setdefault(key, []).append(json_text.exact(orjson.dumps(made)))
        return key

    def release(self, held: bytes) -> None:
        """Drop a result that a request held."""
        texts = self._held[held]
        texts.pop()
        if not texts:
            del self._held[held]

    async def convert(self, objects: Sequence[Object], api_version: str) -> list[Object]:
        """Return objects in a version, unchanged if they are in it already; raises ApiError."""
        found = list(objects)
        others = [n for n, each in enumerate(objects) if each.get("apiVersion") != api_version]
        if others:
            made = await self._call([objects[each] for each in others], api_version)
            for position, converted in zip(others, made, strict=True):
                found[position] = converted
        return found

    async def _call(self, objects: list[Object], api_version: str) -> list[Object]:
        before = objects[0].get("apiVersion") or ""
        with self._metrics.timed(self._name, _version(before), _version(api_version)) as call:
            return await self._converted(objects, api_version, call)

    async def _converted(
        self, objects: list[Object], api_version: str, call: ConversionCall
    ) -> list[Object]:
        first = objects[0]
        about = f"conversion webhook for {first.get('apiVersion')}, Kind={first.get('kind')}"
        uid = self._new_uid()
        if not self._client.outbound.may_ask(CONVERSION, self._name, api_version):
            raise status.unknown(f"{about} was not called: {CLOSED}")
        try:
            answer = await self._client.post(
                self._client_config,
                _QUERY,
                review_body(objects, api_version, uid, self._version),
                timeout_s=TIMEOUT_S,
                bytes_max=ANSWER_BYTES_MAX,
            )
            call.failure = MALFORMED
            made_objects = read_objects(answer, uid, self._version)
        except CallError as error:
            raise status.unknown(f"{about} failed: {error}") from error
        if len(made_objects) != len(objects):
            call.failure = PARTIAL
            raise status.unknown(
                f"{about} returned {len(made_objects)} objects, expected {len(objects)}"
            )
        call.failure = INVALID
        return [
            _restore_metadata(given, converted, api_version, f"{about} returned", position)
            for position, (given, converted) in enumerate(zip(objects, made_objects, strict=True))
        ]


def _version(api_version: str) -> str:
    return api_version.rpartition("/")[2]


def _key(obj: Object, api_version: str) -> bytes:
    return hashlib.blake2b(orjson.dumps(obj) + api_version.encode(), digest_size=24).digest()


def _restore_metadata(
    source: Object, converted: object, api_version: str, prefix: str, position: int
) -> Object:
    """Return a converted object with the metadata of its source; raises ApiError."""

    def wrong(text: str) -> ApiError:
        return status.unknown(f"{prefix} invalid object at index {position}: {text}")

    if not isinstance(converted, dict):
        raise wrong(f"invalid type, expected an object, got {json_text.type_word(converted)}")
    for name, word, expected in (
        ("apiVersion", "groupVersion", api_version),
        ("kind", "kind", source.get("kind")),
    ):
        if converted.get(name) != expected:
            got = converted.get(name, "")
            raise wrong(f"invalid {word} (expected {expected}, received {got})")
    metadata = converted.get("metadata")
    if not isinstance(metadata, dict):
        raise status.unknown(
            f"{prefix} invalid metadata in object at index {position}: missing metadata in"
            " converted object"
        )
    before = source.get("metadata") or {}
    for name, word in _SAME:
        expected, got = before.get(name, ""), metadata.get(name, "")
        if expected != got:
            raise wrong(f"must have the same {word}: {expected} != {got}")
    return {**converted, "metadata": _restored(before, metadata, prefix, position)}


def _restored(before: Object, made: Object, prefix: str, position: int) -> Object:
    """Return the metadata of a converted object: only labels and annotations may change."""
    restored = dict(before)
    for name, validate in (("labels", validate_labels), ("annotations", validate_annotations)):
        member = made.get(name)
        if member is None:
            restored.pop(name, None)
            continue
        errors = _text_errors(member, name)
        if not errors and member != before.get(name):
            errors = [str(each) for each in validate(f"metadata.{name}", member)]
        if errors:
            raise status.unknown(
                f"{prefix} invalid metadata in object at index {position}: {', '.join(errors)}"
            )
        restored[name] = member
    return restored


def _text_errors(values: object, name: str) -> list[str]:
    if not isinstance(values, dict):
        word = json_text.type_word(values)
        return [f"invalid metadata.{name} of type {word} in converted object"]
    return [
        f"metadata.{name}[{each}] must be a string, but is {json_text.type_word(value)} in"
        " converted object"
        for each, value in values.items()
        if not isinstance(value, str)
    ]
