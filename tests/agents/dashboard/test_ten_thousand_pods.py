"""Ten thousand pods on the page: only rows in sight are elements, and nothing holds it up.

The pods are made as rows of a store, and run nowhere. Times are those that the page's thread had a
processor for, since how long it waits for one is the machine's affair.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import orjson
import pytest

from kvstack.agents.dashboard.access import OBJECTS
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Rows, Settings
from kvstack.agents.standalone.pages.dashboard import add_dashboard
from kvstack.agents.standalone.parts import PARTS
from kvstore.client.values import KeyValue
from tests.agents.dashboard.conftest import click, go, sign_in
from tests.agents.standalone.test_pytest_plugin import call
from tests.support.browser import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("dashboard")]

COUNT: Final = 10_000
SPACES: Final = 10
ROWS_MAX: Final = 120
STEPS: Final = 100
BURST: Final = 200
MOMENT: Final = "2026-01-01T00:00:00Z"
FRAME_MS: Final = 50
"""How much of a processor one frame of scrolling may cost; 15 was measured."""
UPDATE_MS: Final = 100
"""The same of one redrawing of a sorted list, of which there are four a second; 14 was measured."""
OPENED_MS: Final = 2000
SCROLL: Final = """(async () => {
  const body = document.querySelector(".grid-body");
  const seen = { rows: 0, blanks: 0, frames: 0 };
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  for (let step = 0; step <= STEPS; step += 1) {
    body.scrollTop = ((body.scrollHeight - body.clientHeight) * step) / STEPS;
    await frame();
    await frame();
    const box = body.getBoundingClientRect();
    const middle = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    seen.rows = Math.max(seen.rows, document.querySelectorAll(".grid-row").length);
    seen.blanks += middle?.closest(".grid-row") ? 0 : 1;
    seen.frames += 1;
  }
  return seen;
})()""".replace("STEPS", str(STEPS))


def pod(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{number:05}",
            "namespace": f"space-{number % SPACES}",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "creationTimestamp": MOMENT,
            "labels": {"app": f"app-{number % 100}"},
        },
        "spec": {
            "nodeName": f"node-{number % 100}",
            "containers": [{"name": "web", "image": "registry.example/team/web:1.4.2"}],
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.{number >> 8}.{number & 255}.9",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": MOMENT}],
            "containerStatuses": [
                {
                    "name": "web",
                    "image": "registry.example/team/web:1.4.2",
                    "imageID": "",
                    "ready": True,
                    "restartCount": number % 3,
                    "state": {"running": {"startedAt": MOMENT}},
                }
            ],
        },
    }


def rows() -> Rows:
    objects = {
        f"/registry/pods/{each['metadata']['namespace']}/{each['metadata']['name']}": each
        for each in map(pod, range(COUNT))
    }
    for space in (f"space-{number}" for number in range(SPACES)):
        objects[f"/registry/namespaces/{space}"] = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": space, "uid": space, "creationTimestamp": MOMENT},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
    records = [
        KeyValue(key.encode(), orjson.dumps(value) + b"\n", revision, revision, 1, 0)
        for revision, (key, value) in enumerate(sorted(objects.items()), 2)
    ]
    revision = len(records) + 1
    return Rows(records, revision, readable_from=revision)


def path_of(number: int) -> str:
    return f"/api/v1/namespaces/space-{number % SPACES}/pods/web-{number:05}"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    directory = tmp_path_factory.mktemp("many")
    settings = Settings(nodes=0, without=frozenset(PARTS), rows=rows())
    with BackgroundCluster(directory, settings) as running:
        add_dashboard(running._live.server.site.pages)
        for each in OBJECTS:
            group = "/apis/rbac.authorization.k8s.io/v1"
            call(running, "POST", f"{group}/{each['kind'].lower()}s", each)
        yield running


def token_of_viewer(cluster: BackgroundCluster) -> str:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    call(cluster, "POST", accounts, {"metadata": {"name": "viewer"}})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
    }
    call(cluster, "POST", f"/apis/{group}/v1/clusterrolebindings", binding)
    answer = call(cluster, "POST", f"{accounts}/viewer/token", {"spec": {}})
    return str(answer["status"]["token"])


def fail(cluster: BackgroundCluster, number: int) -> None:
    """Let a pod fail, with a reason that its row shows."""
    obj = call(cluster, "GET", path_of(number))
    obj["status"] |= {"phase": "Failed", "reason": f"Reason{number}"}
    call(cluster, "PUT", f"{path_of(number)}/status", obj)


def busy_ms(page: Page) -> float:
    """Return for how long the page's thread has had a processor."""
    listed = page.call("Performance.getMetrics")["metrics"]
    return 1000 * next(each["value"] for each in listed if each["name"] == "TaskDuration")


def is_last(number: int, count: int) -> str:
    """Return whether the last row of so many is in sight, and that of a pod."""
    return (
        "[...document.querySelectorAll('.grid-row')].some((each) =>"
        f" each.getAttribute('aria-rowindex') === '{count}'"
        f" && each.innerText.includes('web-{number:05}'))"
    )


def test_ten_thousand_pods(cluster: BackgroundCluster, browser: Browser) -> None:
    page = browser.open(f"{cluster.url}/ui/")
    sign_in(page, token_of_viewer(cluster))
    page.call("Performance.enable", timeDomain="threadTicks")
    begun = busy_ms(page)
    go(page, "#/kind/-/v1/pods")
    page.until(f"document.querySelector('#count')?.textContent === '{COUNT}'")
    opened = busy_ms(page) - begun
    assert page.run("document.querySelectorAll('.grid-row').length") < ROWS_MAX
    assert page.run("document.querySelectorAll('*').length") < 20 * ROWS_MAX

    before = busy_ms(page)
    seen = page.run(SCROLL)
    a_frame = (busy_ms(page) - before) / seen["frames"]
    assert seen["rows"] < ROWS_MAX
    assert seen["blanks"] == 0
    page.until(is_last(COUNT - 1, COUNT))
    page.run("document.querySelector('.grid-body').focus()")
    page.press("Home")
    page.until("document.querySelector('.grid-row.chosen').getAttribute('aria-rowindex') === '1'")
    page.press("End")
    page.until(f"{is_last(COUNT - 1, COUNT)} && document.querySelector('.grid-row.chosen')")

    fail(cluster, COUNT - 1)
    page.until(
        f"document.querySelector('.grid-row.chosen').innerText.includes('Reason{COUNT - 1}')"
    )
    call(cluster, "DELETE", f"{path_of(COUNT - 1)}?gracePeriodSeconds=0")
    page.until(f"document.querySelector('#count').textContent === '{COUNT - 1}'")

    # Sorted, while many change.
    click(page, "Name", ".grid-head")
    click(page, "Name ↑", ".grid-head")
    page.until(is_last(0, COUNT - 1))
    before, sorted_at = busy_ms(page), page.run("performance.now()")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: fail(cluster, number), range(BURST)))
    page.run("document.querySelector('.grid-body').focus()")
    page.press("End")
    page.until("document.querySelector('.grid-row.chosen').innerText.includes('Reason0')")
    updates = max(1.0, (page.run("performance.now()") - sorted_at) / 250)
    an_update = (busy_ms(page) - before) / updates

    page.press("/")
    before = busy_ms(page)
    page.write("reason77")
    page.until("document.querySelector('#count').textContent === '1 of 9999'")
    filtered = busy_ms(page) - before
    cost = {"opened": opened, "a frame": a_frame, "an update": an_update, "filtered": filtered}
    assert a_frame < FRAME_MS, cost
    assert an_update < UPDATE_MS, cost
    assert max(opened, filtered) < OPENED_MS, cost
    assert page.complaints() == []
    page.close()
