"""Patches that a real server applied or refused: the part of it that needs no server."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kvstack.apimachinery.objects import json_patch, merge_patch
from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apimachinery.objects.groups import GroupKind
from kvstack.apimachinery.objects.status import ApiError, bad_request, generic
from kvstack.apimachinery.objects.status import invalid as invalid_object
from kvstack.apimachinery.objects.text.go_text import go_plain
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.json_text import (
    has_repeated,
    parse,
    parse_repeated,
    repeated_fields,
    type_word,
    write,
)
from kvstack.apimachinery.schema import strategic_merge
from kvstack.apimachinery.schema.decode import DecodeError, decode
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.verbs.forms import from_plain
from tests.apimachinery.schema.recordings import lines

TABLE = load()
STEPS = list(lines("patches"))

SET_BY_SERVER = {
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
}
DEFAULTS = {
    "allocateLoadBalancerNodePorts", "apiVersion", "clusterIP", "clusterIPs", "creationTimestamp",
    "defaultMode", "dnsPolicy", "externalTrafficPolicy", "healthCheckNodePort", "imagePullPolicy",
    "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "kind", "maxSurge", "maxUnavailable",
    "nodePort", "operator", "path", "pathType", "progressDeadlineSeconds", "protocol", "replicas",
    "requests", "restartPolicy", "revisionHistoryLimit", "rollingUpdate", "scheme", "selector",
    "securityContext", "schedulerName", "sessionAffinity", "status", "strategy", "targetPort",
    "terminationGracePeriodSeconds", "terminationMessagePath", "terminationMessagePolicy", "type",
}  # fmt: skip
"""What the server may add that no patch brought."""


LATER = {
    "patch-merge-kind-change/2": "the kind of the body is checked",
    "patch-secrets/2": "stringData becomes data",
    "patch-serviceaccounts/5": "only names of secrets are kept",
    "patch-services/5": "a target port of 0 becomes the port",
    "patch-services/10": "what only other types of services have is dropped",
    "patch-services/13": "a client IP's time-out has a default",
    "patch-services/14": "what belongs to another affinity is dropped",
    "patch-smp-apiversion-change/2": "the version is that of the endpoint",
    "patch-smp-apiversion-change/3": "the version is that of the endpoint",
    "patch-smp-apiversion-change/5": "the version is that of the endpoint",
    "patch-types/20": "the answer is a table",
}
"""What the server does after a patch and before it answers, where it shows."""


class Outcome:
    """What a patch comes to: an object and findings, or a refusal."""

    def __init__(self, obj: dict[str, Any], findings: list[str]) -> None:
        self.obj = obj
        self.findings = findings


def type_of(step: dict[str, Any]) -> Type | None:
    """Return the type of the object; None for a kind of a definition."""
    api_version, kind = step["kind"]
    group, _, version = api_version.rpartition("/")
    resource = TABLE.kind(group, version, kind)
    return None if resource is None else resource.type


def outcome(step: dict[str, Any], type_: Type) -> Outcome:
    """Return what comes out; raises ApiError."""
    data, is_strict = step["patch"].encode(), step["validation"] != "Ignore"
    try:
        parse(data)
    except JsonError:
        raise bad_request("invalid JSON patch") from None
    if step["type"] == "strategic":
        patched, quoted, findings = strategic(step["before"], data, type_)
    else:
        patched, quoted, findings = plain(step, data, is_strict=is_strict)
    unknown: list[str] = []
    try:
        if step["type"] == "strategic":
            read = from_plain.read(patched, type_)
            unknown, patched = sorted(read.unknown), read.obj
        decoded = decode(patched, type_)
    except DecodeError as error:
        raise refusal(quoted, str(error)) from None
    findings = [*findings, *(unknown or decoded.unknown)]
    if findings and step["validation"] == "Strict":
        raise refusal(quoted, f"strict decoding error: {', '.join(findings)}")
    return Outcome(decoded.obj, findings)


def strategic(
    before: dict[str, Any], data: bytes, type_: Type
) -> tuple[dict[str, Any], str, list[str]]:
    patch = parse(data)
    if not isinstance(patch, (dict, type(None))):
        raise bad_request(
            f"json: cannot unmarshal {type_word(patch)} into Go value of type"
            " map[string]interface {}"
        )
    findings = repeated_fields(parse_repeated(data)) if has_repeated(data, patch) else []
    patched = strategic_merge.apply(before, patch or {}, type_)
    return patched.obj, go_plain(patched.rest), findings


def plain(step: dict[str, Any], data: bytes, *, is_strict: bool) -> tuple[Any, str, list[str]]:
    if step["type"] == "merge":
        patch, findings = merge_patch.parse(data, is_strict=is_strict)
        patched = merge_patch.apply(step["before"], patch)
    else:
        operations, findings = json_patch.parse(data, is_strict=is_strict)
        try:
            patched = json_patch.apply(step["before"], operations)
        except json_patch.JsonPatchError:
            raise generic(422) from None
    return patched, write(patched).decode(), findings


def refusal(quoted: str, detail: str) -> ApiError:
    return invalid_object(GroupKind("", ""), "", [invalid("patch", quoted, detail)])


def named(*statuses: int) -> list[Any]:
    return [
        pytest.param(step, id=step["name"])
        for step in STEPS
        if step["status"] in statuses and type_of(step) is not None and step["name"] not in LATER
    ]


@pytest.mark.parametrize("step", named(200))
def test_a_patch_that_was_applied(step: dict[str, Any]) -> None:
    type_ = type_of(step)
    assert type_ is not None
    found = outcome(step, type_)
    assert list(differences(found.obj, step["after"], "")) == []
    told = re.findall(r'299 - "((?:[^"\\]|\\.)*)"', str(step.get("warning", "")))
    warnings = [each.replace('\\"', '"').replace("\\\\", "\\") for each in told]
    expected = found.findings if step["validation"] == "Warn" else []
    assert [each for each in warnings if " field " in each.split('"')[0]] == expected


@pytest.mark.parametrize("step", named(400, 413, 422, 500))
def test_a_patch_that_was_refused(step: dict[str, Any]) -> None:
    type_ = type_of(step)
    assert type_ is not None
    if not is_refused_by_patching(step["message"]):
        outcome(step, type_)
        return
    with pytest.raises(ApiError) as caught:
        outcome(step, type_)
    assert caught.value.message == step["message"]
    assert caught.value.code == step["status"]


def is_refused_by_patching(message: str) -> bool:
    """Tell apart what later steps refuse: metadata, defaults, validation."""
    later = (
        r"^\S+ \"[^\"]+\" is invalid", r"^the name of the object", r"^the namespace of the",
        r"^the API version in the data", r"^strconv", r"does not match the (name|expected)",
        r"^Operation cannot", r"in version .* cannot be handled", r"^admission",
    )  # fmt: skip
    return not any(re.search(each, message) for each in later)


def differences(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """Return where our object, before defaults, contradicts the recorded one."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours.keys() | theirs.keys():
            where = f"{path}.{name}"
            if path == ".metadata" and name in SET_BY_SERVER:
                continue
            if path == "" and name == "status":
                continue
            if name not in theirs:
                yield f"{where}: only ours: {ours[name]!r}"
            elif name not in ours or ours[name] is None:
                if name not in DEFAULTS and theirs[name] is not None:
                    yield f"{where}: only theirs: {theirs[name]!r}"
            else:
                yield from differences(ours[name], theirs[name], where)
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} and {len(theirs)} items"
        for position, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(one, other, f"{path}[{position}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} and {theirs!r}"
