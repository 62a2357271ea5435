"""`--prune`: what was applied earlier and files have no more goes, as with kubectl."""

import os
import shutil
from pathlib import Path

import pytest

from kvstack.clusters.comparison.comparison import compare
from kvstack.clusters.contents import Contents
from kvstack.clusters.plan.command_change import CommandChange
from kvstack.clusters.plan.file_change import FileChange
from kvstack.clusters.plan.printing import as_table
from kvstack.clusters.plan.pruning import KINDS, Pruning, kinds_of
from kvstack.clusters.plan.report import report_of
from kvstack.clusters.sources.manifest_files import manifests_of
from kvstack.component.errors import ConfigError
from tests.clusters.plan.planning import SHOP, applied, at_rest, contents_of, plan, without_events

pytestmark = pytest.mark.slow

LAST = "kubectl.kubernetes.io/last-applied-configuration"


def meta(name: str, namespace: str = "shop", labels: str = "app: shop", note: str = LAST) -> str:
    return (
        f"metadata: {{name: {name}, namespace: {namespace}, labels: {{{labels}}}, "
        f"annotations: {{{note}: '{{}}'}}}}\n"
    )


def config_map(name: str, **more: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\n{meta(name, **more)}---\n"


KEPT = config_map("kept")
EARLIER = "".join(
    (
        KEPT,
        config_map("old"),
        config_map("of-another-app", labels="app: other"),
        config_map("by-hand", note="who"),
        config_map("elsewhere", namespace="default"),
        f"apiVersion: batch/v1\nkind: Job\n{meta('once')}"
        "spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: once}]}}}\n"
        f"---\napiVersion: v1\nkind: ServiceAccount\n{meta('robot')}",
    )
)


@pytest.fixture(scope="module")
def before() -> Contents:
    return without_events(plan(at_rest(contents_of(SHOP)), applied(EARLIER)).after)


def gone(contents: Contents, pruning: Pruning) -> set[str]:
    change = FileChange(list(manifests_of(KEPT, "kept.yaml")), pruning)
    result = plan(contents, change)
    return {
        f"{each.kind} {each.path}"
        for each in compare(result.before, result.after).differences
        if each.change.value == "removed" and each.kind != "Pod"
    }


def test_what_files_have_no_more_goes(before: Contents) -> None:
    found = gone(before, Pruning("app=shop"))
    assert found == {"ConfigMap shop/old", "Job shop/once"}  # its pod went with it
    assert gone(before, Pruning("")) == found | {"ConfigMap shop/of-another-app"}
    chosen = Pruning("app=shop", kinds_of(["core/v1/ServiceAccount"]))
    assert gone(before, chosen) == {"ServiceAccount shop/robot"}


def test_a_report_tells_that_you_delete_it(before: Contents) -> None:
    change = FileChange(list(manifests_of(KEPT, "kept.yaml")), Pruning("app=shop"))
    report = report_of(plan(before, change))
    table = as_table(report)
    assert "- configmap shop/old" in table
    assert "2 by you, 1 deleted" in table
    assert report.fails(frozenset(("delete",))) == ["delete"]


def test_it_is_as_with_kubectl(before: Contents, tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl: a plan of one of its commands")
    (tmp_path / "kept.yaml").write_text(KEPT)
    words = ("apply", "-f", str(tmp_path / "kept.yaml"), "--prune", "-l", "app=shop")
    result = plan(before, CommandChange(("kubectl", *words), os.environ))
    assert result.outcome.exit_code == 0
    removed = {
        f"{each.kind} {each.path}"
        for each in compare(result.before, result.after).differences
        if each.change.value == "removed" and each.kind != "Pod"
    }
    assert removed == gone(before, Pruning("app=shop"))


def test_kinds_by_name() -> None:
    assert kinds_of([]) == KINDS
    assert [each.name for each in kinds_of(["apps/v1/Deployment"])] == ["deployments"]
    for wrong in ("Deployment", "apps/v1/Deploymentt", "apps/v1", ""):
        with pytest.raises(ConfigError, match="--prune-allowlist"):
            kinds_of([wrong])
