"""Objects that a webhook converts.

    record = await served(endpoint, record)        as the endpoint shows it
    obj = await stored(endpoint, obj)              as it is to be written

Such objects are handled in the version of the request, and stay in the store as they were written
until they are written again. Other endpoints pass through here without waiting.

Synchronous code (managed fields of other versions) may need a conversion that is not cached;
`settled` calls it again once the conversion is available.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.decode import DecodeError, decode
from kvstack.apiserver.apiextensions.customresources.resource import Converter, CustomResource
from kvstack.apiserver.apply.endpoint import ConversionError
from kvstack.apiserver.registry.record import Record

T = TypeVar("T")


class NeedsConversionError(Exception):
    """A conversion is required first."""

    def __init__(self, converted: "ConvertedVersion", obj: Object) -> None:
        """converted: the version to convert to."""
        super().__init__(converted.api_version)
        self._converted = converted
        self._obj = obj

    async def hold(self) -> Callable[[], None]:
        """Wait for the conversion; return a function that drops it. Raises ApiError."""
        return await self._converted.hold(self._obj)


class ConvertedVersion:
    """One version of a resource that a webhook converts."""

    def __init__(self, row: CustomResource, converter: Converter) -> None:
        self.row = row
        self.api_version = row.group_version
        self._converter = converter
        self._opening = b'"apiVersion":"%b",' % row.group_version.encode()
        self._form = f"converted {row.group_version} {row.fingerprint}"

    def ready(self, record: Record) -> Record | None:
        """Return a record in this version, if its conversion is cached."""
        if record.error or record.body.startswith(self._opening):
            return record
        kept = record.encodings
        text = None if kept is None else kept.get(self._form)
        return None if text is None else self._record(record, text)

    async def records(self, records: Sequence[Record]) -> list[Record]:
        """Return records in this version, from the cache where possible; raises ApiError.

        Those that are not cached are converted by one call. So lists and watches see an object as
        it was when it was first listed or watched, as with a watch cache.
        """
        await self._convert([each for each in records if self.ready(each) is None])
        found = [self.ready(each) for each in records]
        return [each for each in found if each is not None]

    async def fresh(self, record: Record) -> Record:
        """Return a record in this version by calling the webhook now; raises ApiError."""
        if not (record.error or record.body.startswith(self._opening)):
            await self._convert([record])
        found = self.ready(record)
        assert found is not None, "it was just converted"
        return found

    async def _convert(self, records: Sequence[Record]) -> None:
        if not records:
            return
        objects = await self._converter.convert(
            [each.parse() for each in records], self.api_version
        )
        for record, obj in zip(records, objects, strict=True):
            if record.encodings is None:
                record.encodings = {}
            record.encodings[self._form] = json_text.write_sorted(self._prune(obj))[1:]

    async def hold(self, obj: Object) -> Callable[[], None]:
        """Convert and cache an object; return a function that drops it. Raises ApiError."""
        held = await self._converter.hold(obj, self.api_version)
        return lambda: self._converter.release(held)

    async def object(self, obj: Object) -> Object:
        """Return an object in this version; raises ApiError."""
        if obj.get("apiVersion") == self.api_version:
            return obj
        [found] = await self._converter.convert([obj], self.api_version)
        return self._prune(found)

    def from_cache(self, obj: Object) -> Object:
        """Return an object in this version from the cache; raises NeedsConversionError."""
        found = self._converter.find(obj, self.api_version)
        if found is None:
            raise NeedsConversionError(self, obj)
        try:
            return self._prune(found)
        except status.ApiError as error:
            raise ConversionError(str(error)) from error

    def _prune(self, obj: Object) -> Object:
        """Return a converted object after pruning by the schema of this version."""
        try:
            found = decode(obj, self.row.type).obj
        except DecodeError as error:
            raise status.unknown(f"invalid converted object: {error}") from error
        self.row.strategy.default(found)
        return found

    @staticmethod
    def _record(record: Record, text: bytes) -> Record:
        return Record(
            record.key,
            record.revision,
            record.head,
            text,
            -1,
            record.labels,
            record.fields,
            lease=record.lease,
        )


async def settled(make: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a function, which is called again after each conversion that it needs.

    Raises ApiError.
    """
    releases: list[Callable[[], None]] = []
    try:
        while True:
            try:
                return await make()
            except NeedsConversionError as needed:
                releases.append(await needed.hold())
    finally:
        for forget in releases:
            forget()
