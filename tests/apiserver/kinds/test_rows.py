"""Rows of Tables that a real kube-apiserver answered, and what the schema says of all kinds."""

import re
from collections import Counter
from typing import Any, Final

import pytest

from kvstack.apimachinery.schema.decode import normalize
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.kinds.strategy import Strategy
from kvstack.apiserver.kinds.table import strategy_of
from tests.apiserver.kinds.replay import TABLE, recorded, target_of

LATER_SECONDS: Final = 1795374000
"""Half a day after the rows were recorded."""

AGE: Final = re.compile(r"(\d+[smhdy])+$")

NEVER_SET: Final = {"status.podIPs"}
"""What selectors may name without ever finding anything."""

STRATEGIES: Final = [
    (row, strategy) for row in TABLE if (strategy := strategy_of(row.group, row.name)) is not None
]


def without_ages(cells: list[Any]) -> list[Any]:
    """Return the cells of a row but for times that went by."""
    return ["<age>" if isinstance(each, str) and AGE.match(each) else each for each in cells]


def test_recorded_rows() -> None:
    """All cells are equal but for ages."""
    seen: Counter[str] = Counter()
    for line in recorded("rows"):
        target = target_of(line["path"])
        assert target is not None
        row = target.row
        strategy = strategy_of(row.group, row.name)
        assert strategy is not None
        assert strategy.cells is not None
        obj = normalize(line["object"], row.type)
        conversion = strategy.conversions.get(row.version)
        if conversion is not None:
            obj = conversion.to_stored(obj)
        strategy.default(obj)
        found = strategy.cells(obj, LATER_SECONDS)
        assert without_ages(found) == without_ages(line["cells"]), line["path"]
        seen[row.name] += 1
    assert len(seen) == 36


def stub(row: Resource) -> dict[str, Any]:
    """Return an object that says nothing."""
    name = {"name": "a"}
    return normalize({"metadata": name, "spec": {}, "status": {}}, row.type)


@pytest.mark.parametrize(
    ("row", "strategy"), STRATEGIES, ids=[f"{row.group}/{row.name}" for row, _ in STRATEGIES]
)
def test_columns_and_fields_are_those_of_the_schema(row: Resource, strategy: Strategy) -> None:
    """As many cells as columns (IPAddresses have one more); a value of each selectable field."""
    obj = stub(row)
    strategy.default(obj)
    if strategy.cells is not None:
        more = 1 if row.name == "ipaddresses" else 0
        assert len(strategy.cells(obj, 0)) == len(row.columns) + more
    fields = set() if strategy.selectable is None else set(strategy.selectable(obj))
    missing = set(row.selectable.fields) - {"metadata.name", "metadata.namespace"} - fields
    assert missing <= NEVER_SET


UNSTABLE: Final = re.compile(r"v\d+(alpha|beta)\d+")
"""Versions that are not served unless somebody asks for them."""


def test_no_row_is_without_a_strategy() -> None:
    """All that is served and stored has hooks, each of its written subresources, too."""
    rows = [row for row in TABLE if not UNSTABLE.fullmatch(row.version)]
    assert len(rows) > 60
    without = {row.qualified_name for row in rows if strategy_of(row.group, row.name) is None}
    # These are answered and never stored.
    assert without == {row.qualified_name for row in rows if row.verbs == ("create",)}
    for row in rows:
        strategy = strategy_of(row.group, row.name)
        written = {name for name, each in row.subresources.items() if "update" in each.verbs}
        missing = written - {"proxy", "scale"} - set(strategy.subresources if strategy else ())
        assert missing == set(), row.qualified_name
