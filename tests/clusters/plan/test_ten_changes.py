"""What a reviewer reads of ten changes: the tables of golden/, and that they are the same twice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kvstack.agents.client.built_in import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from kvstack.clusters.contents import Contents
from kvstack.clusters.plan.change import Change
from kvstack.clusters.plan.printing import as_json, as_markdown, as_table
from kvstack.clusters.plan.report import report_of
from tests.clusters.plan.planning import SHOP, Deletion, at_rest, contents_of, edited, plan

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).with_name("golden")
CHANGES: dict[str, Callable[[], Change]] = {
    "image": edited(("web:1.4", "web:1.5"), kind="Deployment"),
    "replicas": edited(("replicas: 4", "replicas: 6"), kind="Deployment"),
    "resources_that_do_not_fit": edited(("cpu: 500m", 'cpu: "3"'), kind="Deployment"),
    "selector_of_a_service": edited(("app: web", "app: wep"), kind="Service", name="web"),
    "type_of_a_service": edited(
        ("spec:\n", "spec:\n  type: LoadBalancer\n"), kind="Service", name="web"
    ),
    "template_of_a_stateful_set": edited(("db:15", "db:16"), kind="StatefulSet"),
    "schedule_of_a_cron_job": edited(("0 3 * * *", "*/30 * * * *"), kind="CronJob"),
    "deletion_of_a_namespace": lambda: Deletion(NAMESPACES, "", "shop"),
    "rights_of_an_agent": edited(("[get, update, patch]", "[get]"), kind="Role"),
    "deletion_of_a_definition": lambda: Deletion(
        CUSTOM_RESOURCE_DEFINITIONS, "", "certificates.example.com"
    ),
}


@pytest.fixture(scope="module")
def shop() -> Contents:
    return at_rest(contents_of(SHOP))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change(shop: Contents, name: str, request: pytest.FixtureRequest) -> None:
    table = as_table(report_of(plan(shop, CHANGES[name]())))
    path = GOLDEN / f"{name}.txt"
    if request.config.getoption("--rewrite"):
        path.write_text(table)
    assert table == path.read_text()


def test_the_same_plan_twice_is_the_same_text(shop: Contents) -> None:
    first, second = (report_of(plan(shop, CHANGES["image"]())) for _ in range(2))
    for shown in (as_table, as_json, as_markdown):
        assert shown(first) == shown(second)


def test_what_changes_nothing(shop: Contents) -> None:
    report = report_of(plan(shop, edited(kind="Namespace")()))
    assert not report.is_different
    assert as_table(report).startswith("nothing would change\n")
