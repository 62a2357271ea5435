"""The pictures in docs/dashboard.md. `pytest --rewrite` of this file takes them anew."""

import re
import time
from pathlib import Path

import pytest

from tests.agents.dashboard.conftest import Cluster, click, go, shows
from tests.support.browser import Page

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("dashboard")]

ROOT = Path(__file__).parents[3]
PICTURES = ROOT / "docs" / "pictures"
BYTES_MAX = 210_000
NAMES = {
    "dashboard-overview",
    "dashboard-pods",
    "dashboard-yaml",
    "dashboard-changes",
    "dashboard-terminal",
}
SETTLE_S = 3.0
"""For graphs and ages; it decides nothing."""


def test_the_page_of_the_docs_shows_every_picture_and_they_are_small() -> None:
    page = (ROOT / "docs" / "dashboard.md").read_text()
    assert set(re.findall(r"pictures/([\w-]+)\.png", page)) == NAMES
    for name in NAMES:
        data = (PICTURES / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) <= BYTES_MAX, name


def workload(name: str, script: str, node: str, cpu: str = "100m") -> dict[str, object]:
    labels = {"app": name}
    container = {
        "name": name, "image": "host:latest", "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }  # fmt: skip
    chosen = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **chosen}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def test_pictures_are_taken(cluster: Cluster, page: Page, real_node: str, rewrite: bool) -> None:  # noqa: FBT001
    """Of a shop with one part that crashes, one that no node takes, and one that hangs."""
    if not rewrite:
        return  # the views are tested elsewhere
    cluster.kubectl("create", "namespace", "shop")
    cluster.apply(
        workload("cart", "while true; do date; sleep 1; done", real_node),
        workload("search", "exec sleep 1000000", ""),
        workload("payments", "echo 'no route to the bank'; exit 3", real_node),
        workload("reports", "exec sleep 1000000", "", cpu="64"),
        {
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "shop", "finalizers": ["shop.example/audit"]},
        },
    )  # fmt: skip
    cluster.kubectl("delete", "configmap", "a", "-n", "shop", "--wait=false")
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=1040,
        height=620,
        deviceScaleFactor=1,
        mobile=False,
    )

    def take(name: str) -> None:
        time.sleep(SETTLE_S)
        page.picture(PICTURES / f"dashboard-{name}.png")

    go(page, "#/in/shop/")
    shows(page, "no route to the bank", "#stuck")
    shows(page, "Insufficient cpu", "#stuck")
    take("overview")
    go(page, "#/in/shop/kind/-/v1/pods")
    page.until("document.querySelectorAll('.grid-row').length >= 8")
    take("pods")
    go(page, "#/object/apps/v1/deployments/shop/cart/yaml")
    shows(page, "kubectl-client-side-apply", "#managers")
    take("yaml")
    go(page, "#/in/shop/changes")
    page.until("document.querySelectorAll('.grid-row').length > 15")
    page.until("!/kinds/.test(document.getElementById('count').textContent)")
    take("changes")
    go(page, "#/in/shop/kind/-/v1/pods")
    page.until(
        "[...document.querySelectorAll('.grid-row a')].some((a) => a.innerText.startsWith('cart-'))"
    )
    page.run(
        "[...document.querySelectorAll('.grid-row a')]"
        ".find((a) => a.innerText.startsWith('cart-')).click()"
    )
    click(page, "terminal", "main")
    page.until("document.getElementById('terminal-state')?.textContent.startsWith('Open in')")
    for character in "ls --color /; ps":
        page.press(character)
    page.press("Enter")
    take("terminal")
