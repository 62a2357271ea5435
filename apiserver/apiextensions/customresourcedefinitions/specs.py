"""Validation of a definition's spec: group, names, versions with their schemas, conversion.

spec_errors(spec, demands)
→ spec.group: Invalid value: "example": should be a domain with at least one dot
"""

from collections.abc import Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns1035_label, check_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.apiextensions.customresourcedefinitions.defaults import default_errors
from kvstack.apiserver.apiextensions.customresourcedefinitions.fields import (
    check_columns,
    check_selectable_fields,
    check_subresources,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.layout import (
    API,
    Layout,
    Part,
    layout_of,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.names import (
    missing_name_errors,
    name_errors,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.ratchet import (
    REVIEW_VERSIONS,
    Demands,
    has_defaults,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.schema_rules import (
    Options,
    check_schema,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import (
    Schema,
    any_schema,
    unsupported,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.structural import structural_errors
from kvstack.apiserver.apiextensions.customresourcedefinitions.warnings import schemas_of
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.webhook_clients import check_service, check_url
from kvstack.component.certs.ca_bundles import bundle_problem

SCOPES: Final = ("Cluster", "Namespaced")
STRATEGIES: Final = ("None", "Webhook")

_WARNING_MAX: Final = 256
_EXTENSIONS: Final = (
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)
_POINTER_EXTENSIONS: Final = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type")
_ROOT_FIELDS: Final = {
    "description": "Description",
    "type": "Type",
    "format": "Format",
    "title": "Title",
    "maximum": "Maximum",
    "exclusiveMaximum": "ExclusiveMaximum",
    "minimum": "Minimum",
    "exclusiveMinimum": "ExclusiveMinimum",
    "maxLength": "MaxLength",
    "minLength": "MinLength",
    "pattern": "Pattern",
    "maxItems": "MaxItems",
    "minItems": "MinItems",
    "uniqueItems": "UniqueItems",
    "multipleOf": "MultipleOf",
    "required": "Required",
    "items": "Items",
    "properties": "Properties",
    "externalDocs": "ExternalDocs",
    "example": "Example",
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}
"""Keywords allowed in a root schema of objects with the status subresource, and Go's names."""
_BEFORE_TYPE: Final = ("id", "$schema", "$ref")
"""Keywords before the type in upstream's order that are not allowed in such a root."""


def spec_errors(spec: Object, demands: Demands) -> list[FieldError]:
    """Return the errors of a spec."""
    errors: Errors = []
    _check_group(spec.get("group", ""), errors)
    scope = spec.get("scope", "")
    _check_choice(scope, SCOPES, "spec.scope", errors)
    layout = layout_of(spec)
    preserves = bool(spec.get("preserveUnknownFields"))
    _check_schemas_given(layout, demands, errors, preserves=preserves)
    schemas = schemas_of(spec)
    if any(has_defaults(each) for each in schemas):
        demands = demands._replace(needs_structure=True)
        if preserves:
            detail = "must be false in order to use defaults in the schema"
            errors.append(invalid("spec.preserveUnknownFields", True, detail))
    if not preserves or any(any_schema(each, _has_extension) for each in schemas):
        demands = demands._replace(needs_structure=True)
    for position, part in enumerate(layout.versions):
        wrong = check_dns1035_label(part.name)
        if wrong:
            where = child(index("spec.versions", position), "name")
            errors.append(invalid(where, part.name, ",".join(wrong)))
        version = spec["versions"][position]
        _check_deprecation(version, part.path, errors)
        _check_part(part, _has_status(version), demands, errors)
    _check_versions(spec, layout, errors)
    names = spec.get("names") or {}
    errors += missing_name_errors(names, "spec.names")
    errors += name_errors(names, "spec.names")
    versions = spec.get("versions") or ()
    _check_part(layout.whole, any(map(_has_status, versions)), demands, errors)
    conversion = spec.get("conversion")
    if conversion is not None:
        _check_conversion(conversion, demands, errors, preserves=preserves)
    return errors


def _check_group(group: str, errors: Errors) -> None:
    path = "spec.group"
    if not group:
        errors.append(required(path))
    elif wrong := check_dns_subdomain(group):
        errors.append(invalid(path, group, ",".join(wrong)))
    elif "." not in group:
        errors.append(invalid(path, group, "should be a domain with at least one dot"))


def _check_choice(value: str, choices: Sequence[str], path: str, errors: Errors) -> None:
    if not value:
        errors.append(required(path))
    elif value not in choices:
        errors.append(not_supported(path, value, choices))


def _check_schemas_given(
    layout: Layout, demands: Demands, errors: Errors, *, preserves: bool
) -> None:
    if _schema_of(layout.whole) is not None or (not demands.needs_schema and preserves):
        return
    for part in layout.versions:
        if _schema_of(part) is None:
            path = f"{part.path}.schema.openAPIV3Schema"
            why = "" if demands.needs_schema else "because otherwise all fields are pruned"
            errors.append(required(path, why))


def _schema_of(part: Part) -> Schema | None:
    schema: Schema | None = (part.fields.get("schema") or {}).get("openAPIV3Schema")
    return schema


def _has_extension(schema: Schema) -> bool:
    return any(schema.get(name) for name in _EXTENSIONS) or any(
        schema.get(name) is not None for name in _POINTER_EXTENSIONS
    )


def _has_status(version: Object) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _check_deprecation(version: Object, path: str, errors: Errors) -> None:
    text = version.get("deprecationWarning")
    if text is not None:
        wrong = _deprecation_problems(text, is_deprecated=bool(version.get("deprecated")))
        add_invalid(errors, child(path, "deprecationWarning"), JsonText(text), wrong)


def _deprecation_problems(text: str, *, is_deprecated: bool) -> list[str]:
    if not is_deprecated:
        return ["can only be set for deprecated versions"]
    wrong: list[str] = []
    if len(text.encode()) > _WARNING_MAX:
        wrong.append(f"must be <= {_WARNING_MAX} characters long")
    if not text:
        wrong.append("must not be an empty string")
    position = 0
    for character in text:
        if not character.isprintable():
            wrong.append(
                "must only contain printable UTF-8 characters; non-printable character found at"
                f" index {position}"
            )
            break
        position += len(character.encode())
    return wrong


def _check_part(part: Part, has_status: bool, demands: Demands, errors: Errors) -> None:  # noqa: FBT001
    """Check a version's own part, or the shared part."""
    if "schema" in part.fields:
        _check_validation(part, demands, errors, has_status=has_status)
    check_subresources(part.fields.get("subresources"), part.path_of("subresources"), errors)
    columns = part.fields.get("additionalPrinterColumns") or ()
    check_columns(columns, part.path_of("additionalPrinterColumns"), errors)
    selectable = part.fields.get("selectableFields")
    if selectable:
        _check_selectable(part, selectable, demands, errors)


def _check_selectable(
    part: Part, selectable: list[Object], demands: Demands, errors: Errors
) -> None:
    path, schema = part.path_of("selectableFields"), _schema_of(part)
    if schema is None:
        if part.is_whole:
            detail = "may only be set when validations.schema is included"
        else:
            detail = "may only be set when `version.schema.openAPIV3Schema` is not included"
        errors.append(invalid(path, "", detail))
        return
    problem = unsupported(schema)
    if problem:
        errors.append(invalid(f"{part.path}.schema.openAPIV3Schema", "", problem))
        return
    name = "" if part.is_whole else part.name
    is_limited = name not in demands.many_fields and part.name not in demands.many_fields
    check_selectable_fields(selectable, schema, path, errors, is_limited=is_limited)


def _check_validation(part: Part, demands: Demands, errors: Errors, *, has_status: bool) -> None:
    schema, path = _schema_of(part), f"{part.path_of('schema')}.openAPIV3Schema"
    if schema is None:
        return
    own_errors: Errors = []
    if has_status:
        _check_root_fields(schema, path, own_errors)
    if schema.get("nullable"):
        where = child(path, "nullable")
        own_errors.append(forbidden(where, "nullable cannot be true at the root"))
    problem, is_structural = "", False
    if demands.needs_structure:
        problem = unsupported(schema)
        if not problem:
            wrong = structural_errors(schema, path) or default_errors(
                schema,
                path,
                needs_pruned=demands.needs_pruned_defaults,
                expressions=demands.expressions,
            )
            own_errors += wrong
            is_structural = not wrong
    checked = check_schema(schema, path, _options(part, demands, is_structural=is_structural))
    own_errors += checked.errors
    if not own_errors and problem:
        own_errors.append(invalid(path, "", problem))
    errors += own_errors + checked.budget.errors(path)


def _options(part: Part, demands: Demands, *, is_structural: bool) -> Options:
    return Options(
        expressions=demands.expressions,
        stored_rules=demands.stored_rules,
        stored_messages=demands.stored_messages,
        needs_valid_types=demands.needs_valid_types,
        needs_atomic_sets=demands.needs_atomic_sets,
        needs_good_keys=demands.needs_good_keys,
        limits_rules=part.name not in demands.unchanged_schemas,
        compiles_rules=is_structural,
    )


def _check_root_fields(schema: Schema, path: str, errors: Errors) -> None:
    """Check that the root schema has no keywords that the status subresource does not support."""
    type_name = schema.get("type", "")
    is_refused = any(name not in _ROOT_FIELDS for name in schema)
    told_first = any(schema.get(name) for name in _BEFORE_TYPE)
    if type_name not in {"", "object"} and not told_first:
        detail = (
            'only "object" is allowed as the type at the root of the schema if the status'
            " subresource is enabled"
        )
        errors.append(invalid(child(path, "type"), type_name, detail))
    elif is_refused:
        names = " ".join(_ROOT_FIELDS.values())
        detail = (
            f"only [{names}] fields are allowed at the root of the schema if the status"
            " subresource is enabled"
        )
        errors.append(invalid(path, internal_value(schema, f"{API}.JSONSchemaProps"), detail))


def _check_versions(spec: Object, layout: Layout, errors: Errors) -> None:
    path, versions = "spec.versions", spec.get("versions") or []
    names = [part.name for part in layout.versions]
    if len(set(names)) != len(names):
        detail = "must contain unique version names"
        errors.append(invalid(path, layout.printed_versions(spec), detail))
    if sum(bool(each.get("storage")) for each in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        errors.append(invalid(path, layout.printed_versions(spec), detail))
    name = layout.whole.name
    if name and (wrong := check_dns1035_label(name)):
        errors.append(invalid("spec.version", name, ",".join(wrong)))


def _check_conversion(
    conversion: Object, demands: Demands, errors: Errors, *, preserves: bool
) -> None:
    path, strategy = "spec.conversion", conversion.get("strategy", "")
    where = child(path, "strategy")
    if strategy != "None" and preserves:
        detail = "must be None if spec.preserveUnknownFields is true"
        errors.append(invalid(where, JsonText(strategy), detail))
    _check_choice(strategy, STRATEGIES, where, errors)
    webhook = conversion.get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    client_path = child(path, "webhookClientConfig")
    versions_path = child(path, "conversionReviewVersions")
    if strategy != "Webhook":
        detail = "should not be set when strategy is not set to Webhook"
        if client is not None:
            errors.append(forbidden(client_path, detail))
        if versions:
            errors.append(forbidden(versions_path, detail))
        return
    if client is None:
        errors.append(required(client_path, "required when strategy is set to Webhook"))
    else:
        _check_client(client, client_path, demands, errors)
    _check_reviews(versions, versions_path, demands, errors)


def _check_client(client: Object, path: str, demands: Demands, errors: Errors) -> None:
    url, service, bundle = (client.get(name) for name in ("url", "service", "caBundle"))
    if (url is None) == (service is None):
        errors.append(required(path, "exactly one of url or service is required"))
    elif url is not None:
        check_url(url, child(path, "url"), errors)
    elif service is not None:
        check_service(service, child(path, "service"), errors)
    if bundle and demands.needs_good_bundle and (problem := bundle_problem(bundle)):
        errors.append(invalid(child(path, "caBundle"), JsonText(bundle), problem))


def _check_reviews(versions: list[Any], path: str, demands: Demands, errors: Errors) -> None:
    if not versions:
        errors.append(required(path))
        return
    for position, version in enumerate(versions):
        where = index(path, position)
        if version in versions[:position]:
            errors.append(invalid(where, version, "duplicate version"))
        else:
            add_invalid(errors, where, version, check_dns1035_label(version))
    if demands.needs_known_review and not any(each in REVIEW_VERSIONS for each in versions):
        detail = f"must include at least one of {', '.join(REVIEW_VERSIONS)}"
        errors.append(invalid(path, versions, detail))
