"""Conversion of custom resources by a webhook.

    converter = WebhookConverter(definition, client, new_uid)
    converted = await converter.convert([obj, …], "g.io/v2")      one call for all

What was converted is kept, by what it was made of, so that an object that is read again and again
is converted once. A converter belongs to one state of its definition: another one begins anew.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from kvstack.apiserver.extension.metrics import (
    INVALID,
    MALFORMED,
    PARTIAL,
    ConversionCall,
    ConversionMetrics,
)
from kvstack.apiserver.kinds.strategy import Obj
from kvstack.apiserver.objects import status
from kvstack.apiserver.objects.metadata import validate_annotations, validate_labels
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.objects.text import json_text
from kvstack.apiserver.webhooks.client import CallError, WebhookClient
from kvstack.apiserver.webhooks.conversion_reviews import VERSIONS, read_objects, review_body
from kvstack.apiserver.webhooks.places import place_of

TIMEOUT_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 256 << 20
KEPT_BYTES_MAX: Final = 32 << 20
_QUERY: Final = "?timeout=30s"
_SAME: Final = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))


class WebhookConverter:
    """Converts the objects of one definition."""

    def __init__(
        self,
        definition: Obj,
        client: WebhookClient,
        new_uid: Callable[[], str],
        metrics: ConversionMetrics,
    ) -> None:
        """Take the webhook of a definition; ValueError: it names none that can be called."""
        spec = definition["spec"]
        self._name: Final[str] = definition["metadata"]["name"]
        self._metrics: Final = metrics
        webhook = (spec.get("conversion") or {}).get("webhook") or {}
        self._place: Final = place_of(webhook.get("clientConfig") or {})
        versions = webhook.get("conversionReviewVersions") or ()
        self._version: Final = next((each for each in versions if each in VERSIONS), "")
        if not self._version:
            raise ValueError("no supported conversion review versions")
        self._client: Final = client
        self._new_uid: Final = new_uid
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._kept_bytes = 0

    def known(self, obj: Obj, api_version: str) -> Obj | None:
        """Return an object in a version, if that needs no call."""
        if obj.get("apiVersion") == api_version:
            return obj
        kept = self._kept.get(_key(obj, api_version))
        if kept is None:
            return None
        found: Obj = orjson.loads(kept)
        return found

    async def convert(self, objects: Sequence[Obj], api_version: str) -> list[Obj]:
        """Return objects in a version, those that are in it already as they are; ApiError."""
        found = [self.known(each, api_version) for each in objects]
        missing = [position for position, each in enumerate(found) if each is None]
        if missing:
            made = await self._call([objects[each] for each in missing], api_version)
            for position, converted in zip(missing, made, strict=True):
                self._keep(_key(objects[position], api_version), converted)
                found[position] = converted
        return [each for each in found if each is not None]

    async def _call(self, objects: list[Obj], api_version: str) -> list[Obj]:
        before = objects[0].get("apiVersion") or ""
        with self._metrics.timed(self._name, _version(before), _version(api_version)) as call:
            return await self._converted(objects, api_version, call)

    async def _converted(
        self, objects: list[Obj], api_version: str, call: ConversionCall
    ) -> list[Obj]:
        first = objects[0]
        about = f"conversion webhook for {first.get('apiVersion')}, Kind={first.get('kind')}"
        uid = self._new_uid()
        try:
            answer = await self._client.post(
                self._place,
                _QUERY,
                review_body(objects, api_version, uid, self._version),
                timeout_s=TIMEOUT_S,
                bytes_max=ANSWER_BYTES_MAX,
            )
            call.failure = MALFORMED
            made = read_objects(answer, uid, self._version)
        except CallError as error:
            raise status.unknown(f"{about} failed: {error}") from error
        if len(made) != len(objects):
            call.failure = PARTIAL
            raise status.unknown(f"{about} returned {len(made)} objects, expected {len(objects)}")
        call.failure = INVALID
        return [
            _checked(given, converted, api_version, f"{about} returned", position)
            for position, (given, converted) in enumerate(zip(objects, made, strict=True))
        ]

    def _keep(self, key: bytes, obj: Obj) -> None:
        text = orjson.dumps(obj)
        if len(text) > KEPT_BYTES_MAX // 4 or key in self._kept:
            return
        self._kept[key] = text
        self._kept_bytes += len(text)
        while self._kept_bytes > KEPT_BYTES_MAX:
            _, gone = self._kept.popitem(last=False)
            self._kept_bytes -= len(gone)


def _version(api_version: str) -> str:
    return api_version.rpartition("/")[2]


def _key(obj: Obj, api_version: str) -> bytes:
    return hashlib.blake2b(orjson.dumps(obj) + api_version.encode(), digest_size=24).digest()


def _checked(given: Obj, made: object, api_version: str, told: str, position: int) -> Obj:
    """Return a converted object with the metadata of the one it was made of; raises ApiError."""

    def wrong(text: str) -> ApiError:
        return status.unknown(f"{told} invalid object at index {position}: {text}")

    if not isinstance(made, dict):
        raise wrong(f"invalid type, expected an object, got {json_text.type_word(made)}")
    for name, word, expected in (
        ("apiVersion", "groupVersion", api_version),
        ("kind", "kind", given.get("kind")),
    ):
        if made.get(name) != expected:
            got = made.get(name, "")
            raise wrong(f"invalid {word} (expected {expected}, received {got})")
    metadata = made.get("metadata")
    if not isinstance(metadata, dict):
        raise status.unknown(
            f"{told} invalid metadata in object at index {position}: missing metadata in converted"
            " object"
        )
    before = given.get("metadata") or {}
    for name, word in _SAME:
        expected, got = before.get(name, ""), metadata.get(name, "")
        if expected != got:
            raise wrong(f"must have the same {word}: {expected} != {got}")
    return {**made, "metadata": _restored(before, metadata, told, position)}


def _restored(before: Obj, made: Obj, told: str, position: int) -> Obj:
    """Return the metadata of a converted object: only labels and annotations are its own."""
    found = dict(before)
    for name, validate in (("labels", validate_labels), ("annotations", validate_annotations)):
        given = made.get(name)
        if given is None:
            found.pop(name, None)
            continue
        errors = _text_errors(given, name)
        if not errors and given != before.get(name):
            errors = [str(each) for each in validate(f"metadata.{name}", given)]
        if errors:
            raise status.unknown(
                f"{told} invalid metadata in object at index {position}: {', '.join(errors)}"
            )
        found[name] = given
    return found


def _text_errors(given: object, name: str) -> list[str]:
    if not isinstance(given, dict):
        word = json_text.type_word(given)
        return [f"invalid metadata.{name} of type {word} in converted object"]
    return [
        f"metadata.{name}[{each}] must be a string, but is {json_text.type_word(value)} in"
        " converted object"
        for each, value in given.items()
        if not isinstance(value, str)
    ]
