"""What users do every day: CronJobs, graphs, slow requests, growth of the store, kubectl proxy."""

import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.agents.dashboard.conftest import Cluster, click, go, shows, sign_in
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.browser import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("dashboard")]

CRON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "yearly", "namespace": "default"},
    "spec": {
        "schedule": "0 0 1 1 *",
        "jobTemplate": {
            "spec": {
                "template": {
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
                }
            }
        },
    },
}
MEASURED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "measured",
        "namespace": "default",
        "annotations": {"hollow/cpu": "250m", "hollow/memory": "64Mi"},
    },
    "spec": {
        "nodeSelector": {"kubernetes.io/hostname": "h1"},
        "containers": [{"name": "c", "image": "x"}],
    },
}
GROWS = """
const before = window.fetch;
window.fetch = async (target, options) => {
  const answer = await before(target, options);
  if (!String(target.url || target).includes("/etcd/ui/data")) return answer;
  const data = await answer.json();
  const forecast = { bytes_per_day: 5 * 2 ** 20, full_in_s: 3 * 86400, span_s: 7200 };
  data.growth = { ...data.growth, forecast };
  return new Response(JSON.stringify(data), { status: 200, headers: answer.headers });
};
"""
INSECURE = "Object.defineProperty(window, 'isSecureContext', { value: false });"


def test_a_cron_job_is_run_suspended_and_resumed(cluster: Cluster, page: Page) -> None:
    cluster.apply(CRON_JOB)
    go(page, "#/object/batch/v1/cronjobs/default/yearly")
    click(page, "Run now", "main")
    shows(page, "is created", "body")
    jobs = json.loads(cluster.kubectl("get", "jobs", "-o=json"))["items"]
    (job,) = [each for each in jobs if each["metadata"]["name"].startswith("yearly-manual-")]
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("CronJob", "yearly")
    for button, suspended, after in (("Suspend", "true", "Resume"), ("Resume", "false", "Suspend")):
        click(page, button, "main")
        page.until(
            "[...document.querySelectorAll('main button')]"
            f".some((each) => each.textContent === {after!r})"
        )
        told = cluster.kubectl("get", "cronjob", "yearly", "-o", "jsonpath={.spec.suspend}")
        assert told == suspended
    cluster.kubectl("delete", "cronjob", "yearly")


def test_what_a_pod_used_is_drawn(cluster: Cluster, page: Page) -> None:
    cluster.apply(MEASURED)
    cluster.kubectl("wait", "pod/measured", "--for=condition=Ready", "--timeout=60s")
    go(page, "#/object/-/v1/pods/default/measured")
    for name in ("CPU", "Memory"):
        page.until(
            "[...document.querySelectorAll('main svg')]"
            f".some((each) => each.closest('figure, div').innerText.includes('{name}'))"
        )
    shows(page, "64 MiB")
    cluster.kubectl("delete", "pod", "measured", "--grace-period=0")


def test_slow_requests_are_shown_by_stage(cluster: Cluster, page: Page) -> None:
    _send_slowly(cluster)
    go(page, "#/nodes")
    go(page, "#/")
    row = "POST /api/v1/namespaces/default/configmaps 201"
    page.until(
        "[...document.querySelectorAll('#details tr')].some((each) =>"
        f" each.textContent.includes({row!r}) && each.textContent.includes('body '))"
    )


def _send_slowly(cluster: Cluster) -> None:
    """Create an object whose body takes longer than half a second."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # A small one is read before the request counts as begun.
    data = {"a": "x" * 300_000}
    body = json.dumps({"metadata": {"generateName": "slow-"}, "data": data}).encode()
    address = urlsplit(cluster.url)
    with (
        socket.create_connection((address.hostname, address.port), timeout=60) as plain,
        context.wrap_socket(plain) as sent,
    ):
        sent.sendall(
            b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n"
            + f"Authorization: Bearer {cluster.token}\r\n".encode()
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
        )
        time.sleep(0.7)  # what is tested
        sent.sendall(body)
        assert sent.recv(100).startswith(b"HTTP/1.1 201")


def test_the_growth_of_the_store_is_shown_with_its_end(cluster: Cluster, browser: Browser) -> None:
    """The page's part: the store itself needs ten minutes for a forecast."""

    def before(page: Page) -> None:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=GROWS)

    page = browser.open(f"{cluster.url}/ui/", before=before)
    sign_in(page, cluster.token)
    shows(page, "+5.0 MiB a day, full in 3d", "#cards")
    text = "grows by 5.0 MiB a day and is full in 3d"
    page.until(f"document.getElementById('details').textContent.includes({text!r})")
    page.close()


def test_over_plain_http_no_token_is_asked_for(cluster: Cluster, browser: Browser) -> None:
    def before(page: Page) -> None:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=INSECURE)

    page = browser.open(f"{cluster.url}/ui/", before=before)
    shows(page, "This page came over plain HTTP. A token is not asked for here")
    assert page.run("document.querySelectorAll('input').length") == 0
    page.close()


@contextmanager
def kubectl_proxy(cluster: Cluster) -> Iterator[str]:
    """Run a real one; give its URL."""
    try:
        program = clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    home = str(Path(cluster.exported["KUBECONFIG"]).parent)
    process = subprocess.Popen(
        [program, "proxy", "--port=0"],
        env={**os.environ, **cluster.exported, "HOME": home},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # Starting to serve on 127.0.0.1:PORT
        yield f"http://{line.split()[-1]}"
    finally:
        process.kill()
        process.communicate()


def test_through_kubectl_proxy_one_is_the_user_of_the_kubeconfig(
    cluster: Cluster, browser: Browser
) -> None:
    cluster.kubectl("create", "configmap", "by-proxy")
    with kubectl_proxy(cluster) as url:
        page = browser.open(f"{url}/ui/")
        page.until("document.querySelector('main h1')")
        assert page.run("document.getElementById('token')") is None
        go(page, "#/object/-/v1/configmaps/default/by-proxy")
        click(page, "Delete…", "main")
        page.until("document.getElementById('confirm')")
        page.run("document.getElementById('confirm').click()")
        page.until("location.hash === '#/kind/-/v1/configmaps'")
        assert "by-proxy" not in cluster.kubectl("get", "configmaps", "-o", "name")
        page.close()
