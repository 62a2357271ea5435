"""Options of requests: the parameters of a query, and their valid combinations.

    write_options(CREATE, query)   → WriteOptions(dry_run=False, manager="", validation="Warn", …)
    list_options(query, …)         → what to list or watch
    delete_options(query, body)    → DeleteOptions

Unreadable parameters are 400, invalid combinations 422. The first value of a parameter counts;
`dryRun` may be repeated.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import fields, labels, status
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.fields import FieldSelector, FieldSelectorError
from kvstack.apimachinery.objects.groups import GroupKind
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector, SelectorError
from kvstack.apimachinery.objects.metadata import validate_field_manager
from kvstack.apimachinery.objects.request_info import Query, is_true
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int, parse_uint
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.registry.reads import EXACT, NOT_OLDER_THAN

META_GROUP: Final = "meta.k8s.io"
CREATE: Final = "CreateOptions"
UPDATE: Final = "UpdateOptions"
PATCH: Final = "PatchOptions"
UNSAFE: Final = "ignoreStoreReadErrorWithClusterBreakingPotential"
STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"

_ALL: Final = "All"
_VALIDATIONS: Final = ("", IGNORE, STRICT, WARN)
_FOREGROUND, _BACKGROUND, _ORPHAN = "Foreground", "Background", "Orphan"
_POLICIES: Final = (_FOREGROUND, _BACKGROUND, _ORPHAN, "nil")


class WriteOptions(NamedTuple):
    """Options of create, update and patch."""

    dry_run: bool = False
    manager: str = ""
    """The given field manager; empty: that of the User-Agent."""
    validation: str = WARN
    force: bool = False
    given_validation: str = ""
    """The given value of fieldValidation."""

    def to_object(self, kind: str) -> Object:
        """Return the options as admission sees them: those of a create or an update."""
        options: Object = {"kind": kind, "apiVersion": f"{META_GROUP}/v1"}
        if self.dry_run:
            options["dryRun"] = [_ALL]
        if self.manager:
            options["fieldManager"] = self.manager
        if self.given_validation:
            options["fieldValidation"] = self.given_validation
        return options


class ListParameters(NamedTuple):
    """Options of list, watch and deletecollection."""

    labels: Selector
    fields: FieldSelector
    is_watch: bool = False
    bookmarks: bool = False
    resource_version: str = ""
    match: str = ""
    timeout_s: int | None = None
    limit: int = 0
    continue_token: str = ""
    send_initial_events: bool | None = None

    @property
    def revision(self) -> int | None:
        """Return the resourceVersion as a number, None if there is none; raises NumberError."""
        return parse_uint(self.resource_version) if self.resource_version else None


class DeleteOptions(NamedTuple):
    """Options of delete and deletecollection."""

    grace_seconds: int | None = None
    uid: str | None = None
    """The required UID; None: any."""
    resource_version: str | None = None
    orphan_dependents: bool | None = None
    policy: str = ""
    dry_run: bool = False
    ignores_read_errors: bool = False

    def to_object(self) -> Object:
        """Return the options as admission sees them."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": f"{META_GROUP}/v1"}
        if self.grace_seconds is not None:
            options["gracePeriodSeconds"] = self.grace_seconds
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        given = {name: value for name, value in preconditions.items() if value is not None}
        if given:
            options["preconditions"] = given
        if self.orphan_dependents is not None:
            options["orphanDependents"] = self.orphan_dependents
        if self.policy:
            options["propagationPolicy"] = self.policy
        if self.dry_run:
            options["dryRun"] = [_ALL]
        return options


DEFAULT_WRITE: Final = WriteOptions()
DEFAULT_DELETE: Final = DeleteOptions()


def write_options(kind: str, query: Query, *, is_apply: bool = False) -> WriteOptions:
    """Return the options of a write; kind: CREATE, UPDATE or PATCH. Raises ApiError."""
    if not query and not is_apply:
        return DEFAULT_WRITE
    manager = _text(query, "fieldManager")
    validation = _text(query, "fieldValidation")
    dry_run = query.get("dryRun") or []
    errors: list[FieldError] = []
    force = False
    if kind == PATCH:
        force = _flag(query, "force") or False
        if is_apply and not manager:
            errors.append(required("fieldManager", "is required for apply patch"))
        elif not is_apply and "force" in query:
            errors.append(forbidden("force", "may not be specified for non-apply patch"))
    errors += validate_field_manager("fieldManager", manager)
    errors += _dry_run_errors(dry_run)
    if validation not in _VALIDATIONS:
        errors.append(not_supported("fieldValidation", validation, _VALIDATIONS))
    _refuse(kind, errors)
    return WriteOptions(bool(dry_run), manager, validation or WARN, force, validation)


def get_resource_version(query: Query) -> str:
    """Return the resourceVersion of a get; raises ApiError."""
    if _flag(query, "export"):
        raise status.bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported"
        )
    return _text(query, "resourceVersion")


def list_options(query: Query, *, is_watch: bool = False, is_list: bool = True) -> ListParameters:
    """Return the options of a list, watch or deletecollection; raises ApiError.

    is_watch: whether the request is a watch whatever its options say.
    """
    if not query:
        return ListParameters(_EVERY_LABEL, _EVERY_FIELD, is_watch=is_watch)
    parameters = ListParameters(
        _labels(query),
        _fields(query),
        is_watch or bool(_flag(query, "watch")),
        _flag(query, "allowWatchBookmarks") or False,
        _text(query, "resourceVersion"),
        _text(query, "resourceVersionMatch"),
        _integer(query, "timeoutSeconds"),
        _integer(query, "limit") or 0,
        _text(query, "continue"),
        _flag(query, "sendInitialEvents"),
    )
    if is_list and _flag(query, "watch") and _begins_now(parameters):
        parameters = parameters._replace(send_initial_events=True, match=NOT_OLDER_THAN)
    errors = (
        _watch_errors(parameters) if parameters.is_watch and is_list else _list_errors(parameters)
    )
    _refuse("ListOptions", errors)
    return parameters


def delete_options(query: Query, body: Object | None) -> DeleteOptions:
    """Return the options of a delete: of the body if there is one; raises ApiError."""
    if body is None:
        if not query:
            return DEFAULT_DELETE
        body = _delete_query(query)
    preconditions = body.get("preconditions") or {}
    parsed = DeleteOptions(
        body.get("gracePeriodSeconds"),
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        body.get("orphanDependents"),
        body.get("propagationPolicy") or "",
        bool(body.get("dryRun")),
        bool(body.get(UNSAFE)),
    )
    _refuse("DeleteOptions", _delete_errors(parsed, body))
    return parsed


def check_of_collection(given: DeleteOptions) -> None:
    """Refuse options that only the delete of one object takes; raises ApiError."""
    if given.ignores_read_errors:
        text = "is not allowed with DELETECOLLECTION, try again after removing the option"
        _refuse("DeleteOptions", [invalid(UNSAFE, True, text)])


def _delete_query(query: Query) -> Object:
    content: Object = {
        "gracePeriodSeconds": _integer(query, "gracePeriodSeconds"),
        "orphanDependents": _flag(query, "orphanDependents"),
        "dryRun": query.get("dryRun"),
        UNSAFE: _flag(query, UNSAFE),
    }
    if "propagationPolicy" in query:
        content["propagationPolicy"] = query["propagationPolicy"][0]
    given = {name: _text(query, name) for name in ("uid", "resourceVersion")}
    preconditions = {name: value for name, value in given.items() if value}
    if preconditions:
        content["preconditions"] = preconditions
    return content


def _delete_errors(options: DeleteOptions, body: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    policy = body.get("propagationPolicy")
    if options.orphan_dependents is not None and policy is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", JsonText(policy), text))
    if policy is not None and policy not in _POLICIES[:3]:
        errors.append(not_supported("propagationPolicy", JsonText(policy), _POLICIES))
    errors += _dry_run_errors(body.get("dryRun") or ())
    if options.ignores_read_errors:
        errors += [
            invalid(UNSAFE, True, f"{_ALONE} .{name}")
            for name, is_set in (
                ("propagationPolicy", policy is not None),
                ("orphanDependents", options.orphan_dependents is not None),
                ("gracePeriodSeconds", options.grace_seconds is not None),
                ("preconditions", bool(body.get("preconditions"))),
            )
            if is_set
        ]
    return errors


_ALONE: Final = "cannot be set together with"


def _begins_now(options: ListParameters) -> bool:
    """Return whether sendInitialEvents and bookmarks are the default for a watch."""
    if options.send_initial_events is not None or options.match:
        return False
    return options.resource_version in ("", "0")


def _watch_errors(options: ListParameters) -> list[FieldError]:
    errors: list[FieldError] = []
    match, path = options.match, "resourceVersionMatch"
    if options.send_initial_events is not None and match != NOT_OLDER_THAN:
        text = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
        errors.append(forbidden(path, text))
    if match:
        if options.send_initial_events is None:
            text = f"{path} is forbidden for watch unless sendInitialEvents is provided"
            errors.append(forbidden(path, text))
        if match != NOT_OLDER_THAN:
            errors.append(not_supported(path, match, (NOT_OLDER_THAN,)))
    if options.continue_token and match:
        errors.append(forbidden(path, f"{path} is forbidden when continue is provided"))
    return errors


def _list_errors(options: ListParameters) -> list[FieldError]:
    errors: list[FieldError] = []
    match, path = options.match, "resourceVersionMatch"
    if match:
        if not options.resource_version:
            text = f"{path} is forbidden unless resourceVersion is provided"
            errors.append(forbidden(path, text))
        if options.continue_token:
            errors.append(forbidden(path, f"{path} is forbidden when continue is provided"))
        if match not in (EXACT, NOT_OLDER_THAN):
            errors.append(not_supported(path, match, (EXACT, NOT_OLDER_THAN, "")))
        if match == EXACT and options.resource_version == "0":
            text = f'{path} "exact" is forbidden for resourceVersion "0"'
            errors.append(forbidden(path, text))
    if options.send_initial_events is not None:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _dry_run_errors(values: Sequence[str]) -> list[FieldError]:
    if all(each == _ALL for each in values):
        return []
    return [not_supported("dryRun", list(values), (_ALL,))]


def _refuse(kind: str, errors: list[FieldError]) -> None:
    if errors:
        raise status.invalid(GroupKind(META_GROUP, kind), "", errors)


def _text(query: Query, name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""


def _flag(query: Query, name: str) -> bool | None:
    values = query.get(name)
    return is_true(values[0]) if values else None


def _integer(query: Query, name: str) -> int | None:
    values = query.get(name)
    if not values:
        return None
    try:
        return parse_int(values[0], 64)
    except NumberError as error:
        raise status.bad_request(str(error)) from None


_EVERY_LABEL: Final = labels.parse("")
_EVERY_FIELD: Final = fields.parse("")


def _labels(query: Query) -> Selector:
    try:
        return labels.parse(_text(query, "labelSelector"))
    except SelectorError as error:
        raise status.bad_request(str(error)) from None


def _fields(query: Query) -> FieldSelector:
    try:
        return fields.parse(_text(query, "fieldSelector"))
    except FieldSelectorError as error:
        raise status.bad_request(str(error)) from None
