"""Definitions as a kube-apiserver stores them: in v1beta1, which is no longer served.

    v1beta1   spec: {validation: {openAPIV3Schema: …}, versions: [{name: v1, …}], …}
    v1        spec: {versions: [{name: v1, schema: {openAPIV3Schema: …}, …}], …}

The shared part of all versions is above them. They are only read here: this server stores v1, which
a kube-apiserver can read.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apiserver.kinds.strategy import Conversion

_COMMON: Final = {
    "validation": "schema",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
"""Members for all versions, and their names within a version."""
_WEBHOOK: Final = {
    "webhookClientConfig": "clientConfig",
    "conversionReviewVersions": "conversionReviewVersions",
}


def to_v1(obj: Object) -> Object:
    """Return a v1beta1 definition as v1; the argument is not changed."""
    obj = json_text.copied(obj)
    spec: Object = obj["spec"]
    name = spec.pop("version", "")
    versions: list[Object] = spec.get("versions") or []
    if not versions and name:
        versions = [{"name": name, "served": True, "storage": True}]
    for common, own in _COMMON.items():
        value = spec.pop(common, None)
        if value is not None:
            for each in versions:
                each[own] = value
    for each in versions:
        if each.get("additionalPrinterColumns"):
            columns = each["additionalPrinterColumns"]
            each["additionalPrinterColumns"] = [_column(column) for column in columns]
    spec["versions"] = versions
    if spec.get("conversion"):
        spec["conversion"] = _conversion(spec["conversion"])
    if not spec.setdefault("preserveUnknownFields", True):
        del spec["preserveUnknownFields"]
    return obj


def _column(given: Object) -> Object:
    return {"jsonPath" if name == "JSONPath" else name: each for name, each in given.items()}


def _conversion(given: Object) -> Object:
    webhook: dict[str, Any] = {
        ours: given[name] for name, ours in _WEBHOOK.items() if given.get(name) is not None
    }
    found = {name: each for name, each in given.items() if name not in _WEBHOOK}
    return {**found, "webhook": webhook} if webhook else found


def _not_served(_obj: Object) -> Object:
    raise ValueError("definitions are not served in v1beta1")


V1BETA1: Final = Conversion(to_stored=to_v1, to_served=_not_served)
