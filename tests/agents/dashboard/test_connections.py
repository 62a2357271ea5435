"""Connections that are cut, servers that are slow, tokens that end, history that is gone."""

import base64
from dataclasses import replace

import pytest

from tests.agents.dashboard.conftest import Cluster, go, shows, sign_in, signed_in
from tests.support.browser import Browser, Page
from tests.support.network.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("dashboard")]


def test_a_page_that_did_not_come_whole_is_loaded_again(cluster: Cluster, browser: Browser) -> None:
    page = browser.open(f"{cluster.url}/ui/")
    page.until("document.getElementById('token')")
    page.call("Network.setBlockedURLs", urls=["*/live.js"])
    page.call("Page.reload", ignoreCache=True)
    page.until("document.getElementById('view').innerText.includes('did not come whole')")
    page.call("Network.setBlockedURLs", urls=[])
    page.until("document.getElementById('token')")
    page.close()


def test_a_list_goes_on_after_its_connection_was_lost(cluster: Cluster, browser: Browser) -> None:
    """In the middle of its watch, as of a server that cuts who reads too slowly."""
    with TcpProxy(int(cluster.url.rpartition(":")[2])) as proxy:
        near = replace(cluster, url=f"https://127.0.0.1:{proxy.port}")
        page = signed_in(browser, near.url, near.token)
        go(page, "#/kind/-/v1/configmaps")
        for name in ("first", "second"):
            cluster.kubectl("create", "configmap", f"{name}-after-a-cut")
            # What is shown came by the watch, or by a list before one.
            shows(page, f"{name}-after")
            proxy.cut()
        page.until("document.getElementById('state').textContent === ''")
        shows(page, "second-after")
        page.close()


def fulfil(page: Page, request: str, code: int, body: str) -> None:
    """Answer a request in the place of the server."""
    page.call(
        "Fetch.fulfillRequest",
        requestId=request,
        responseCode=code,
        responseHeaders=[{"name": "Content-Type", "value": "application/json"}],
        body=base64.b64encode(body.encode()).decode(),
    )


UNAUTHORIZED = '{"kind":"Status","status":"Failure","message":"Unauthorized","code":401}'
GONE = '{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}'


def test_a_token_that_ends_in_the_middle_is_asked_for_again(
    cluster: Cluster, browser: Browser
) -> None:
    page = signed_in(browser, cluster.url, cluster.token)
    go(page, "#/kind/-/v1/configmaps")
    shows(page, "kube-root-ca.crt")
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/services?*"}])
    go(page, "#/kind/-/v1/services")
    fulfil(page, page.paused("services"), 401, UNAUTHORIZED)
    page.call("Fetch.disable")
    page.until("document.getElementById('wrong')?.textContent.includes('not valid any more')")
    # What the page knew is gone, what was looked at is not.
    assert "kube-root-ca" not in page.run("document.querySelector('main').innerText")
    before = len(page.requested())
    page.run("new Promise((resolve) => setTimeout(resolve, 300))")
    late = [each["url"] for each in page.requested()[before:] if "/ui/" not in each["url"]]
    assert not late, "nothing is asked without a credential"
    sign_in(page, cluster.token)
    assert page.run("location.hash") == "#/kind/-/v1/services"
    shows(page, "kubernetes")
    page.close()


@pytest.mark.parametrize("reported_by", ["event", "answer"])
def test_expired_watch_lists_again(cluster: Cluster, page: Page, reported_by: str) -> None:
    """A 410, as the answer to a watch or as its event."""
    name = f"after-410-{reported_by}"
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/configmaps?*watch=1*"}])
    go(page, "#/kind/-/v1/configmaps")
    request = page.paused("watch=1")
    shows(page, "kube-root-ca.crt")
    cluster.kubectl("create", "configmap", name)
    if reported_by == "event":
        fulfil(page, request, 200, f'{{"type":"ERROR","object":{GONE}}}\n')
    else:
        fulfil(page, request, 410, GONE)
    shows(page, name)
    page.call("Fetch.disable")
    cluster.kubectl("delete", "configmap", name)
    page.until(f"!document.querySelector('.grid-place').innerText.includes({name!r})")
    assert page.run("document.getElementById('state').textContent") == ""


def test_a_watch_that_ends_in_the_middle_of_an_event_goes_on(cluster: Cluster, page: Page) -> None:
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/configmaps?*watch=1*"}])
    go(page, "#/kind/-/v1/configmaps")
    request = page.paused("watch=1")
    fulfil(page, request, 200, '{"type":"ADDED","object":{"kind":"Ta')
    page.until("document.getElementById('state').textContent.includes('cut off')")
    page.call("Fetch.disable")
    cluster.kubectl("create", "configmap", "after-half-an-event")
    shows(page, "after-half-an-event")
    page.until("document.getElementById('state').textContent === ''")


def test_a_slow_server_holds_up_what_is_asked_and_nothing_else(
    cluster: Cluster, page: Page
) -> None:
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/api/v1/configmaps?*"}])
    go(page, "#/kind/-/v1/configmaps")
    page.paused("configmaps")
    shows(page, "ConfigMap")
    page.press("g")
    shows(page, "The cluster")
    page.until("document.querySelectorAll('.card').length >= 4")
    page.press(":")
    page.until("document.getElementById('chooser')")
    page.press("Escape")
    # What was left is not waited for.
    left = [each for each in page.unanswered() if "/configmaps?" in each]
    assert all("ERR_ABORTED" in each for each in left), left
    page.call("Fetch.disable")


def test_an_answer_that_is_no_json_is_reported(cluster: Cluster, page: Page) -> None:
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/services?*"}])
    go(page, "#/kind/-/v1/services")
    request = page.paused("services")
    fulfil(page, request, 502, "<html>bad gateway <script>document.title='taken'</script>")
    page.until("document.getElementById('state').textContent.includes('bad gateway')")
    assert page.run("document.title") != "taken"
    page.call("Fetch.disable")
    shows(page, "kubernetes")  # it is tried again
