"""One cluster of `kvstack up` and one browser for all tests of the page."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from tests.agents.standalone.test_stack import lines_of, up
from tests.agents.standalone.test_ways_in import kubectl, variables
from tests.agents.support.namespaces import has_namespaces
from tests.support.browser import PROGRAM, Browser, Page
from tests.support.network.ports import free_ports

WITHOUT = "proxy,dns,joining,network-policy,local-path,loadbalancer"
HOLLOW = {"kvstack-tests": "hollow"}


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@dataclass
class Cluster:
    """A running cluster."""

    url: str
    exported: dict[str, str]
    token: str = ""

    def kubectl(self, *words: str) -> str:
        """Return what kubectl prints; AssertionError if it fails."""
        code, told = kubectl(self.exported, *words)
        assert code == 0, told
        return told

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects."""
        file = Path(self.exported["KUBECONFIG"]).parent / "applied.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        self.kubectl("apply", "-f", str(file))

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the answer to a request without any credentials but those given."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        asked = urllib.request.Request(self.url + path, body, named, method=method)
        try:
            with urllib.request.urlopen(asked, context=context, timeout=60) as answer:
                return answer.status, _lower(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, _lower(error.headers), error.read()

    def account(self, name: str, *, is_admin: bool = False) -> str:
        """Return a token of a new service account."""
        self.kubectl("create", "serviceaccount", name)
        if is_admin:
            self.kubectl(
                "create", "clusterrolebinding", name, "--clusterrole=cluster-admin",
                f"--serviceaccount=default:{name}",
            )  # fmt: skip
        return self.kubectl("create", "token", name).strip()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with three hollow nodes and, where that can be, one of processes."""
    directory = tmp_path_factory.mktemp("page") / "data"
    (port,) = free_ports(1)
    without = WITHOUT if has_namespaces() else f"{WITHOUT},node"
    flags = (f"--secure-port={port}", f"--without={without}", "--nodes=h1,h2,h3")
    with up(directory, *flags) as process:
        found = Cluster(f"https://127.0.0.1:{port}", variables(lines_of(process)))
        found.token = found.account("viewer", is_admin=True)
        # Pods go to the node of processes only if they ask for it.
        found.kubectl("wait", "nodes", "h1", "h2", "h3", "--for=condition=Ready", "--timeout=60s")
        yield found


@pytest.fixture(scope="session")
def real_node(cluster: Cluster) -> str:
    """The name of the node that runs pods as processes."""
    if not has_namespaces():
        pytest.skip("a node of processes needs root and namespaces")
    names = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
    (name,) = set(names) - {"h1", "h2", "h3"}
    cluster.kubectl("wait", "node", name, "--for=condition=Ready", "--timeout=60s")
    return name


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A running browser."""
    if PROGRAM is None:
        pytest.skip("there is no chromium")
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def page(browser: Browser, cluster: Cluster) -> Iterator[Page]:
    """The page, of an administrator."""
    opened = signed_in(browser, cluster.url, cluster.token)
    yield opened
    opened.close()


def signed_in(browser: Browser, url: str, token: str) -> Page:
    """Return a page whose user has signed in."""
    page = browser.open(f"{url}/ui/")
    sign_in(page, token)
    return page


def sign_in(page: Page, token: str) -> None:
    """Give a page a token."""
    page.until("document.getElementById('token')")
    page.run(f"document.getElementById('token').value = {json.dumps(token)}")
    page.run("document.querySelector('form.login').requestSubmit()")
    page.until("!document.getElementById('token') && document.querySelector('main h1')")


def go(page: Page, hash_: str) -> None:
    """Go to an address of the page."""
    page.run(f"location.hash = {json.dumps(hash_)}")


def click(page: Page, text: str, within: str = "body") -> None:
    """Click on the button or link with a text, once it is there."""
    find = (
        f"[...document.querySelectorAll({within!r} + ' button, ' + {within!r} + ' a')]"
        f".find((each) => each.textContent.trim() === {json.dumps(text)} && !each.disabled)"
    )
    page.until(find)
    page.run(f"{find}.click()")


def shows(page: Page, text: str, within: str = "main") -> None:
    """Wait until a text is shown."""
    page.until(f"document.querySelector({within!r})?.innerText.includes({json.dumps(text)})")


def encoded(text: str) -> str:
    """Return a text in base64."""
    return base64.b64encode(text.encode()).decode()
