"""What several kinds share: names of resources, amounts, generations, texts of cells."""

from typing import TYPE_CHECKING

import pytest

from kvstack.apimachinery.objects.core.pod_resources import is_native
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.cells import bool_text, first_of, pairs_text
from kvstack.apiserver.kinds.generation import raise_generation, set_first_generation
from kvstack.apiserver.kinds.resource_names import (
    can_be_overcommitted,
    check_amount,
    check_container_resource_name,
    check_quota_resource_name,
    check_resource_name,
    is_extended,
    is_quota_resource,
)
from kvstack.apiserver.kinds.status_metadata import keep_metadata
from tests.apiserver.kinds.hooks import context_of

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.json_object import Object
    from kvstack.apiserver.kinds.rules import Errors


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("1", "1"), ("1u", "1m"), ("1500u", "2m"), ("1n", "1m"), ("1e-4", "1e-3"), ("2m", "2m")],
)
def test_amounts_are_rounded_up(amount: str, expected: str) -> None:
    """To thousandths."""
    amounts = {"cpu": amount}
    round_up_amounts(amounts)
    assert amounts == {"cpu": expected}


def test_no_amounts() -> None:
    """Are fine."""
    round_up_amounts(None)


@pytest.mark.parametrize(
    ("name", "native", "extended", "overcommitted", "quota"),
    [
        ("cpu", True, False, True, True),
        ("storage", True, False, True, False),
        ("hugepages-2Mi", True, False, False, True),
        ("requests.hugepages-2Mi", True, False, True, True),
        ("example.com/gpu", False, True, False, False),
        ("requests.example.com/gpu", False, False, False, False),
        ("kubernetes.io/x", True, False, True, False),
        ("example.com/" + "a" * 64, False, False, False, False),
        ("pods", True, False, True, True),
    ],
)
def test_kinds_of_resources(
    name: str,
    native: bool,  # noqa: FBT001
    extended: bool,  # noqa: FBT001
    overcommitted: bool,  # noqa: FBT001
    quota: bool,  # noqa: FBT001
) -> None:
    """By the form of their names."""
    found = is_native(name), is_extended(name), can_be_overcommitted(name), is_quota_resource(name)
    assert found == (native, extended, overcommitted, quota)


STANDARD = "must be a standard resource type or fully qualified"
CONTAINER = "must be a standard resource for containers"


@pytest.mark.parametrize(
    ("name", "for_any", "for_containers", "for_quotas"),
    [
        ("cpu", [], [], []),
        ("storage", [], [CONTAINER], ["must be a standard resource for quota"]),
        ("pods", [], [CONTAINER], []),
        (
            "foo",
            [STANDARD],
            [STANDARD, CONTAINER],
            [STANDARD, "must be a standard resource for quota"],
        ),
        ("example.com/gpu", [], [], []),
        (
            "requests.example.com/gpu",
            [],
            ["doesn't follow extended resource name standard"],
            [],
        ),
    ],
)
def test_names_of_resources(
    name: str, for_any: list[str], for_containers: list[str], for_quotas: list[str]
) -> None:
    """Containers and quotas each have theirs."""
    for check, expected in (
        (check_resource_name, for_any),
        (check_container_resource_name, for_containers),
        (check_quota_resource_name, for_quotas),
    ):
        errors: Errors = []
        check(errors, "p", name)
        assert [str(each) for each in errors] == [
            f'p: Invalid value: "{name}": {each}' for each in expected
        ]


@pytest.mark.parametrize(
    ("name", "amount", "expected"),
    [
        ("cpu", "500m", []),
        ("pods", "500m", ["must be an integer"]),
        ("example.com/gpu", "500m", ["must be an integer"]),
        ("example.com/gpu", "2", []),
        ("cpu", "-1", ["must be greater than or equal to 0"]),
    ],
)
def test_amounts(name: str, amount: str, expected: list[str]) -> None:
    """Pieces are whole."""
    errors: Errors = []
    check_amount(errors, "p", name, amount)
    assert [str(each) for each in errors] == [
        f'p: Invalid value: "{amount}": {each}' for each in expected
    ]


def test_generation() -> None:
    """Amounts count by what they mean."""
    obj: Object = {"metadata": {}, "spec": {"capacity": {"storage": "1Gi"}}}
    set_first_generation(obj, context_of())
    assert obj["metadata"]["generation"] == 1
    type_name = "io.k8s.api.core.v1.PersistentVolumeSpec"
    for size, expected in (("1024Mi", 1), ("2Gi", 2)):
        new: Object = {"metadata": {"generation": 1}, "spec": {"capacity": {"storage": size}}}
        raise_generation(new, obj, type_name)
        assert new["metadata"]["generation"] == expected


def test_metadata_kept_by_writes_of_a_status() -> None:
    """All but names, versions and managed fields."""
    old: Object = {"metadata": {"name": "a", "labels": {"a": "b"}, "generation": 3}}
    new: Object = {
        "metadata": {
            "name": "a",
            "labels": {"a": "c"},
            "finalizers": ["f"],
            "managedFields": [1],
            "resourceVersion": "2",
        }
    }
    keep_metadata(new, old)
    assert new["metadata"] == {
        "name": "a",
        "labels": {"a": "b"},
        "generation": 3,
        "managedFields": [1],
        "resourceVersion": "2",
    }


def test_texts_of_cells() -> None:
    """Lists end where there is no room."""
    assert first_of(2, ["a", "b"]) == "a,b"
    assert first_of(2, ["a", "b", "c"], "; ") == "a; b + 1 more..."
    assert pairs_text({"b": "c", "a": ""}) == "a=,b=c"
    assert pairs_text(None) == "<none>"
    assert [bool_text(each) for each in (None, True, False)] == ["<unset>", "True", "False"]
