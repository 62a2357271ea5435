"""The page in a real browser, before a cluster of `kvstack up` with hollow nodes."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from tests.agents.standalone.test_stack import lines_of, up
from tests.agents.standalone.test_ways_in import kubectl, variables
from tests.support.browser import PROGRAM, Browser, Page
from tests.support.network.ports import free_ports
from tests.support.network.tcp_proxy import TcpProxy

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.xdist_group("dashboard"),
]
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="there is no chromium")

MARKUP = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
NAMED = {"name": "hostile", "namespace": "default"}
CONFIG_MAPS = 1200
ACTIONS = "[...document.querySelectorAll('#actions button')]"


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@dataclass
class Cluster:
    """A running cluster."""

    url: str
    exported: dict[str, str]

    def kubectl(self, *words: str) -> str:
        code, told = kubectl(self.exported, *words)
        assert code == 0, told
        return told

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        asked = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(asked, context=context) as answer:
                return answer.status, _lower(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, _lower(error.headers), error.read()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("page") / "data"
    (port,) = free_ports(1)
    with up(directory, f"--secure-port={port}", "--without=node,proxy", "--nodes=3") as process:
        yield Cluster(f"https://127.0.0.1:{port}", variables(lines_of(process)))


@pytest.fixture(scope="module")
def token(cluster: Cluster) -> str:
    cluster.kubectl("create", "serviceaccount", "viewer")
    cluster.kubectl(
        "create", "clusterrolebinding", "viewer", "--clusterrole=cluster-admin",
        "--serviceaccount=default:viewer",
    )  # fmt: skip
    return cluster.kubectl("create", "token", "viewer").strip()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path) as running:
        yield running


def signed_in(browser: Browser, cluster: Cluster, token: str) -> Page:
    page = browser.open(f"{cluster.url}/ui/")
    page.until("document.getElementById('token')")
    page.run(f"document.getElementById('token').value = {json.dumps(token)}")
    page.run("document.querySelector('form').requestSubmit()")
    page.until("document.querySelector('.card')")
    return page


def go(page: Page, hash_: str) -> None:
    page.run(f"location.hash = {json.dumps(hash_)}")


def test_the_files_are_open_and_nothing_else_is(cluster: Cluster) -> None:
    code, headers, body = cluster.ask("/ui/")
    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert b"main.js" in body
    assert cluster.ask("/ui")[2] == body  # by a redirect that holds below a prefix
    for path in ("/ui/../api/v1/secrets", "/ui/%2e%2e/pages.py", "/ui/x", "/ui/static/main.js"):
        assert cluster.ask(path)[0] in (403, 404), path
    assert cluster.ask("/api/v1/secrets")[0] == 403
    assert cluster.ask("/metrics")[0] == 403


@needs_browser
def test_a_wrong_token_is_told_and_none_is_kept(
    cluster: Cluster, token: str, browser: Browser
) -> None:
    page = browser.open(f"{cluster.url}/ui/")
    page.until("document.getElementById('token')")
    page.run("document.getElementById('token').value = 'wrong'")
    page.run("document.querySelector('form').requestSubmit()")
    page.until("document.querySelector('form .bad').textContent.includes('Unauthorized')")
    page = signed_in(browser, cluster, token)
    page.call("Page.reload")
    page.until("document.getElementById('token')")


@needs_browser
def test_a_page_that_did_not_come_whole_is_loaded_again(cluster: Cluster, browser: Browser) -> None:
    page = browser.open(f"{cluster.url}/ui/")
    page.until("document.getElementById('token')")
    page.call("Network.setBlockedURLs", urls=["*/live.js"])
    page.call("Page.reload", ignoreCache=True)
    page.until("document.getElementById('view').innerText.includes('did not come whole')")
    page.call("Network.setBlockedURLs", urls=[])
    page.until("document.getElementById('token')")


@needs_browser
def test_every_view_shows_hostile_text_as_text(
    cluster: Cluster, token: str, browser: Browser, tmp_path: Path
) -> None:
    hostile: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**NAMED, "annotations": {"a": MARKUP}},
                "data": {"text": MARKUP, "lines": f"one\n{MARKUP}\n"},
            },
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": NAMED,
                "involvedObject": {"kind": MARKUP, "namespace": "default", "name": MARKUP},
                "type": "Warning",
                "reason": MARKUP,
                "message": MARKUP,
            },
        ],
    }  # fmt: skip
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps(hostile))
    cluster.kubectl("apply", "-f", str(file))
    page = signed_in(browser, cluster, token)
    page.until("document.getElementById('warnings').innerText.includes('onerror')")
    for hash_ in (
        "#/kind/-/v1/events",
        "#/kind/-/v1/configmaps",
        "#/object/-/v1/configmaps/default/hostile",
        "#/object/-/v1/configmaps/default/hostile/yaml",
    ):
        go(page, hash_)
        shown = "hostile" if "kind" in hash_ and "configmaps" in hash_ else "onerror"
        page.until(f"document.getElementById('view').innerText.includes({shown!r})")
    assert page.run("document.title") == "kvstack"
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.complaints() == []
    for asked in page.requested():
        assert asked["url"].startswith(cluster.url), asked["url"]
        if "/ui/" not in asked["url"] and "Authorization" not in asked["headers"]:
            assert asked["url"].endswith("/selfsubjectreviews")  # before the token was known


@needs_browser
def test_a_list_is_live_and_long_and_keys_lead_through_it(
    cluster: Cluster, token: str, browser: Browser
) -> None:
    cluster.kubectl("create", "namespace", "many")
    page = signed_in(browser, cluster, token)
    go(page, "#/kind/-/v1/configmaps")
    page.until("document.querySelector('#count')")
    body = "".join(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number}, namespace: many}}\n---\n"
        for number in range(CONFIG_MAPS)
    )
    file = Path(cluster.exported["KUBECONFIG"]).parent / "many.yaml"
    file.write_text(body)
    cluster.kubectl("create", "-f", str(file))
    page.until(f"parseInt(document.querySelector('#count').textContent) >= {CONFIG_MAPS}")
    drawn = page.run("document.querySelectorAll('.grid-row').length")
    assert 10 < drawn < 120, "only what is in sight is made"
    page.run("document.querySelector('.grid-body').focus()")
    page.press("/")
    page.write("c1199")
    page.until("document.querySelector('#count').textContent.startsWith('1 of')")
    page.run("document.querySelector('.grid-body').focus()")
    page.press("y")
    page.until("document.querySelector('#yaml')?.innerText.includes('name: c1199')")
    cluster.kubectl("delete", "namespace", "many", "--wait=false")
    page.press(":")
    page.until("document.getElementById('chooser')")
    page.write("deploy")
    page.run("document.querySelector('dialog form').requestSubmit()")
    page.until("location.hash === '#/kind/apps/v1/deployments'")


@needs_browser
def test_a_list_goes_on_after_its_connection_was_lost(
    cluster: Cluster, token: str, browser: Browser
) -> None:
    """In the middle of its watch, as of a server that cuts who reads too slowly."""
    with TcpProxy(int(cluster.url.rpartition(":")[2])) as proxy:
        near = replace(cluster, url=f"https://127.0.0.1:{proxy.port}")
        page = signed_in(browser, near, token)
        go(page, "#/kind/-/v1/configmaps")
        for name in ("first", "second"):
            cluster.kubectl("create", "configmap", f"{name}-after-a-cut")
            # What is shown came by the watch, or by a list before one.
            page.until(f"document.getElementById('view').innerText.includes('{name}-after')")
            proxy.cut()
        page.until("document.getElementById('state').textContent === ''")
        assert page.run("document.getElementById('toasts').innerText") == ""


@needs_browser
def test_yaml_is_tried_saved_and_refused_when_another_was_first(
    cluster: Cluster, token: str, browser: Browser
) -> None:
    cluster.kubectl("create", "configmap", "edited", "--from-literal=a=1")
    page = signed_in(browser, cluster, token)
    go(page, "#/object/-/v1/configmaps/default/edited/yaml")
    page.until("document.querySelector('#yaml .manager')?.parentElement")
    page.until(
        "[...document.querySelectorAll('.line')].some((each) => each.innerText.includes("
        "'kubectl-create') && each.innerText.includes('a: \"1\"'))"
    )
    page.run("document.getElementById('edit').click()")
    replace = (
        "document.querySelector('.editor').value = document.querySelector('.editor').value.replace"
    )
    page.run(f"{replace}('a: \"1\"', 'a: \"2\"')")
    page.run("document.getElementById('try').click()")
    page.until("document.getElementById('toasts').innerText.includes('would take it')")
    assert cluster.kubectl("get", "configmap", "edited", "-o", "jsonpath={.data.a}") == "1"
    cluster.kubectl("annotate", "configmap", "edited", "another=was-first")
    page.run("document.getElementById('save').click()")
    page.until(
        "document.querySelector('p.bad').textContent.includes('the object has been modified')"
    )
    go(page, "#/object/-/v1/configmaps/default/edited/summary")
    go(page, "#/object/-/v1/configmaps/default/edited/yaml")
    page.until("document.querySelector('#yaml')?.innerText.includes('was-first')")
    page.run("document.getElementById('edit').click()")
    page.run(f"{replace}('a: \"1\"', 'a: \"2\"')")
    page.run("document.getElementById('save').click()")
    page.until("document.querySelector('#yaml')?.innerText.includes('a: \"2\"')")
    assert cluster.kubectl("get", "configmap", "edited", "-o", "jsonpath={.data.a}") == "2"


@needs_browser
def test_secrets_are_hidden_until_asked_for(cluster: Cluster, token: str, browser: Browser) -> None:
    cluster.kubectl("create", "secret", "generic", "hidden", "--from-literal=key=value")
    page = signed_in(browser, cluster, token)
    go(page, "#/object/-/v1/secrets/default/hidden/yaml")
    page.until("document.querySelector('#yaml')?.innerText.includes('key: hidden')")
    assert "dmFsdWU" not in page.text()
    page.run("document.getElementById('edit').click()")
    page.until("document.querySelector('.editor').value.includes('dmFsdWU')")


@needs_browser
def test_a_deployment_is_scaled_its_pods_seen_and_the_past_looked_at(
    cluster: Cluster, token: str, browser: Browser
) -> None:
    cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=2")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    before = cluster.kubectl(
        "get", "deployment", "web", "-o", "jsonpath={.metadata.resourceVersion}"
    )
    page = signed_in(browser, cluster, token)
    page.until("document.getElementById('view').innerText.includes('settled')")
    go(page, "#/object/apps/v1/deployments/default/web")
    page.until(f"{ACTIONS}.some((one) => one.textContent === 'Scale…')")
    page.run("window.prompt = () => '3'")
    page.run(f"{ACTIONS}.find((one) => one.textContent === 'Scale…').click()")
    ready = "--for=jsonpath={.status.readyReplicas}=3"
    cluster.kubectl("wait", "deployment/web", ready, "--timeout=60s")
    go(page, "#/kind/-/v1/pods")
    page.until("document.querySelectorAll('.grid-row').length === 3")
    page.run("document.querySelector('.grid-row a').click()")
    page.until("document.getElementById('view').innerText.includes('ReplicaSet web-')")
    page.until("document.getElementById('view').innerText.includes('Deployment web')")
    go(page, "#/kind/apps/v1/deployments")
    page.until("document.querySelector('.grid-row')?.innerText.includes('3/3')")
    page.run(f"document.getElementById('moment').value = {before!r}")
    page.run("document.getElementById('when').requestSubmit()")
    page.until("document.querySelector('.grid-row')?.innerText.includes('2/2')")
    assert page.run("document.body.classList.contains('past')")
