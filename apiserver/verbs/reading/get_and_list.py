"""Get and list."""

from typing import TYPE_CHECKING, Final

from kvstack.apimachinery.objects import fields, status
from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apimachinery.objects.fields import FieldSelector, Requirement
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_uint
from kvstack.apiserver.registry import continue_token, errors
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.registry.reads import EXACT, ListOptions, Page
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.options import ListParameters
from kvstack.apiserver.verbs.results import Listing, Stored

if TYPE_CHECKING:
    from kvstack.apiserver.registry.record import Record

_PATH: Final = "resourceVersion"


async def get(call: Call) -> Stored:
    """Return one object; raises ApiError."""
    collection, key = call.collection, object_key(call.namespace, call.info.name)
    reads = call.env.registry.reads
    revision = None
    if call.at_revision:
        record = await reads.get_at(collection, key, call.at_revision)
    else:
        if call.query:
            revision = _revision(options.get_resource_version(call.query))
        record = await reads.get(collection, key, revision)
    if record is None:
        raise status.not_found(call.endpoint.resource, call.info.name)
    if record.error:
        raise errors.unreadable(collection.prefix, record)
    endpoint = call.endpoint
    if endpoint.converted_version is None:
        return Stored(record)
    # With a resourceVersion the watch cache suffices.
    is_any = not call.at_revision and revision is not None
    return Stored(await endpoint.read(record, may_be_old=is_any))


async def list_objects(call: Call) -> Listing:
    """Return the listed objects; raises ApiError."""
    given = options.list_options(call.query)
    selection = selection_of(call, given)
    asked = read_options(given)
    if call.at_revision:
        asked = _of_the_past(asked, call.at_revision)
    return Listing(await page_of(call, selection, asked))


async def page_of(call: Call, selection: Selection, list_options: ListOptions) -> Page:
    """Return the objects of a selection in the version of the endpoint; raises ApiError."""
    reads, collection = call.env.registry.reads, call.collection
    converted, matches = call.endpoint.converted_version, selection.matches
    if converted is None or matches is None or not selection.needs_converted:
        return await call.endpoint.read_all(await reads.list(collection, selection, list_options))
    kept_records: list[Record] = []
    while True:
        page = await reads.list(collection, selection.unfiltered(), list_options)
        records = await converted.records(page.records)
        for position, each in enumerate(records):
            if not matches(each):
                continue
            kept_records.append(each)
            is_last = position + 1 == len(records) and not page.continue_token
            if len(kept_records) == list_options.limit and not is_last:
                last = each.key.removeprefix(selection.prefix)
                token = continue_token.after(page.revision, last)
                return Page(kept_records, page.revision, token)
        if not page.continue_token:
            return Page(kept_records, page.revision)
        list_options = ListOptions(None, "", list_options.limit, page.continue_token)


def selection_of(call: Call, parameters: ListParameters) -> Selection:
    """Return the selection of a list or watch; raises ApiError."""
    selector = supported(call, parameters.fields)
    name = call.info.name
    if name and selector.exact_value("metadata.name") is None:
        selector = fields.parse(
            f"{parameters.fields},metadata.name={fields.escape(name)}".lstrip(",")
        )
    return Selection.of(
        call.collection,
        call.namespace,
        parameters.labels,
        selector,
        call.endpoint.fields_of(),
        is_converted=call.endpoint.converted_version is not None,
    )


def supported(call: Call, selector: FieldSelector) -> FieldSelector:
    """Return a selector with current field names; raises ApiError if it names unknown fields."""
    if selector.is_everything:
        return selector
    known = call.endpoint.row.selectable
    renamed: list[Requirement] = []
    for each in selector.requirements:
        field = known.resolve(each.field)
        if field is None:
            raise status.bad_request(known.refusal(each.field))
        renamed.append(each._replace(field=field))
    return FieldSelector(renamed)


def read_options(parameters: ListParameters) -> ListOptions:
    """Return the consistency options of a list; raises ApiError."""
    try:
        revision = parameters.revision
    except NumberError as error:
        found = invalid(_PATH, parameters.resource_version, str(error))
        raise status.bad_request(f"invalid resource version: {found}") from None
    return ListOptions(revision, parameters.match, parameters.limit, parameters.continue_token)


def _of_the_past(asked: ListOptions, revision: int) -> ListOptions:
    """Return the options of a list at a revision; its pages continue at their own."""
    if asked.revision is not None or asked.match:
        raise status.bad_request("a resourceVersion cannot be combined with a path to a past state")
    return asked if asked.continue_token else asked._replace(revision=revision, match=EXACT)


def _revision(text: str) -> int | None:
    if not text:
        return None
    try:
        return parse_uint(text)
    except NumberError as error:
        raise bad_version(text, error) from None


def bad_version(text: str, error: NumberError) -> ApiError:
    """Return the 500 of a get or watch with an invalid resourceVersion."""
    return status.unknown(str(invalid(_PATH, text, str(error))))
