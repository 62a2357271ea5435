"""Definitions that a kube-apiserver stored: in v1beta1, common members once for all versions."""

from typing import Any

import orjson
import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from tests.apiserver.support.registries import world
from tests.apiserver.support.virtual_time import run

DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
SCHEMA = {"openAPIV3Schema": {"type": "object"}}
NAMES = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
V1 = {"name": "v1", "served": True, "storage": True}
V2 = {"name": "v2", "served": True, "storage": False}
NONE = {"strategy": "None"}
CLIENT = {"url": "https://a.b/c"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"validation": SCHEMA, "versions": [V1, V2], "preserveUnknownFields": False},
            {"versions": [V1 | {"schema": SCHEMA}, V2 | {"schema": SCHEMA}], "conversion": NONE},
        ),
        (
            {"version": "v1", "subresources": {"status": {}}},
            {
                "versions": [V1 | {"subresources": {"status": {}}}],
                "conversion": NONE,
                "preserveUnknownFields": True,
            },
        ),
        (
            {
                "versions": [V1 | {"additionalPrinterColumns": [{"name": "A", "JSONPath": ".a"}]}],
                "selectableFields": [{"jsonPath": ".b"}],
                "preserveUnknownFields": False,
            },
            {
                "versions": [
                    V1
                    | {"additionalPrinterColumns": [{"name": "A", "type": "", "jsonPath": ".a"}]}
                    | {"selectableFields": [{"jsonPath": ".b"}]}
                ],
                "conversion": NONE,
            },
        ),
        (
            {
                "versions": [V1],
                "conversion": {
                    "strategy": "Webhook",
                    "webhookClientConfig": CLIENT,
                    "conversionReviewVersions": ["v1"],
                },
                "preserveUnknownFields": False,
            },
            {
                "versions": [V1],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": CLIENT, "conversionReviewVersions": ["v1"]},
                },
            },
        ),
    ],
)
def test_a_stored_definition_is_read_as_v1(given: dict[str, Any], expected: dict[str, Any]) -> None:
    async def main() -> None:
        async with world() as found:
            codec = found.registry.collection(DEFINITIONS).codec
            common = {"group": "a.b", "names": NAMES, "scope": "Namespaced"}
            stored = {
                "kind": "CustomResourceDefinition",
                "apiVersion": "apiextensions.k8s.io/v1beta1",
                "metadata": {"name": "things.a.b"},
                "spec": common | given,
            }
            assert codec.decode(orjson.dumps(stored))["spec"] == common | expected

    run(main())
