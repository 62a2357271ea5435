"""The status page in a real browser, and who may see it."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.transport import native
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.http.browser import Browser, Page, browsing
from tests.support.http.plain_client import ask
from tests.support.rpc_client import Client
from tests.support.servers import Server, ours, running

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.xdist_group("status page"),
    pytest.mark.skipif(not native.is_available(), reason="needs the native transport"),
]

PHONE, DESK = (390, 844), (1280, 900)
HOSTILE = b"/<img src=x onerror=document.title='taken'>/"
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = ours(tmp_path_factory.mktemp("ui"), name="seven", extra=["--transport=native"])
    with running(made), Client(made.endpoint) as client:
        for number in range(300):
            client.put(b"/registry/pods/default/%d" % number, b"v" * 100)
        for number in range(20):
            client.put(HOSTILE + b"%d" % number, b"v")
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as made:
        yield made


@pytest.fixture(scope="module")
def phone(browser: Browser, server: Server) -> Page:
    page = browser.open(f"{server.client_url}/ui", width=PHONE[0], height=PHONE[1])
    page.wait_for("document.querySelectorAll('#members .row').length > 0")
    return page


def port_of(server: Server) -> int:
    return int(server.endpoint.rpartition(":")[2])


def data_of(server: Server) -> dict[str, object]:
    status, _, body = ask(port_of(server), "GET", "/ui/data")
    assert status == 200, body
    return json.loads(body)


def test_the_page_shows_members_and_figures(phone: Page) -> None:
    text = phone.text()
    assert "seven" in phone.evaluate("document.querySelector('#members').innerText")
    assert "leader" in phone.evaluate("document.querySelector('#members').innerText")
    for expected in ("revision", "of quota", "log sync", "alarms", "Slow requests"):
        assert expected in text
    assert "/registry/pods/" in phone.evaluate("document.querySelector('#writes').innerText")
    phone.wait_for("document.querySelector('#sizes').innerText.includes('/registry/pods/')")


def test_rates_are_drawn(phone: Page, server: Server) -> None:
    phone.wait_for("document.querySelectorAll('#rates svg').length >= 4")
    assert "puts" in phone.evaluate("document.querySelector('#rates').innerText")
    phone.wait_for("document.querySelectorAll('#stages .bar').length >= 4")


def test_it_fits_a_phone_and_a_desk(phone: Page) -> None:
    assert phone.evaluate("innerWidth") == PHONE[0]
    assert phone.evaluate(FITS)
    size = {"deviceScaleFactor": 1, "mobile": False}
    phone.call("Emulation.setDeviceMetricsOverride", width=DESK[0], height=DESK[1], **size)
    assert phone.evaluate(FITS)
    phone.call("Emulation.setDeviceMetricsOverride", width=PHONE[0], height=PHONE[1], **size)


def test_it_is_light_or_dark_as_the_reader_likes(phone: Page) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    phone.prefer("light")
    light = phone.evaluate(back)
    phone.prefer("dark")
    assert phone.evaluate(back) != light


def test_keys_are_shown_as_text(phone: Page) -> None:
    assert "onerror" in phone.evaluate("document.querySelector('#writes').innerText")
    assert phone.evaluate("document.images.length") == 0
    assert "taken" not in phone.evaluate("document.title")


def test_it_loads_nothing_else_and_nothing_is_refused(phone: Page, server: Server) -> None:
    asked = [event["request"]["url"] for event in phone.events("Network.requestWillBeSent")]
    assert any(url.endswith("/ui/data") for url in asked)
    assert all(url.startswith((server.client_url, "data:")) for url in asked)
    assert phone.events("Runtime.exceptionThrown") == []
    assert phone.events("Log.entryAdded") == []  # a policy that forbids too much shows here


def test_it_tells_when_the_member_is_gone(browser: Browser, tmp_path: Path) -> None:
    with running(ours(tmp_path, extra=["--transport=native"])) as server:
        page = browser.open(f"{server.client_url}/ui", width=PHONE[0], height=PHONE[1])
        page.wait_for("document.querySelectorAll('#members .row').length > 0")
        assert page.evaluate("document.querySelector('#trouble').hidden")
        server.kill()
        page.wait_for("!document.querySelector('#trouble').hidden")
        assert page.evaluate("document.querySelectorAll('#members .row').length") == 1


def test_data(server: Server) -> None:
    data = data_of(server)
    members = data["members"]
    assert isinstance(members, list)
    assert [(each["name"], each["is_leader"], each["behind"]) for each in members] == [
        ("seven", True, 0)
    ]
    database = data["db"]
    assert isinstance(database, dict)
    assert database["keys"] == 320
    assert data["written"] == 320
    writes, sizes = data["writes"], data["sizes"]
    assert isinstance(writes, list)
    assert isinstance(sizes, list)
    assert writes[0]["prefix"] == sizes[0]["prefix"] == "/registry/pods/"
    assert 200 <= writes[0]["count"] <= 320
    assert sizes[0]["keys"] + sizes[1]["keys"] == 320


def test_only_get(server: Server) -> None:
    for path in ("/ui", "/ui/data"):
        status, headers, _ = ask(port_of(server), "POST", path, b"{}")
        assert (status, headers["allow"]) == (405, "GET")


def basic(user: str, password: str) -> tuple[str, str]:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return "Authorization", f"Basic {encoded}"


def test_with_authentication_only_root_sees_it(tmp_path: Path) -> None:
    extra = ["--transport=native", "--bcrypt-cost=4"]
    with running(ours(tmp_path, extra=extra)) as server, Client(server.endpoint) as client:
        port = port_of(server)
        for name in ("root", "alice"):
            client.call(rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name=name, password=f"{name}-pw"))
        grant = pb.AuthUserGrantRoleRequest(user="root", role="root")
        client.call(rpc.AUTH_USER_GRANT_ROLE, grant)
        client.call(rpc.AUTH_ENABLE, pb.AuthEnableRequest())

        for path in ("/ui", "/ui/data"):
            status, headers, _ = ask(port, "GET", path)
            assert (status, headers["www-authenticate"]) == (
                401,
                'Basic realm="kvstore", charset="UTF-8"',
            )
            for _ in range(2):  # the second time it is known
                assert ask(port, "GET", path, headers=(basic("root", "root-pw"),))[0] == 200
            assert ask(port, "GET", path, headers=(basic("root", "wrong"),))[0] == 401
            assert ask(port, "GET", path, headers=(basic("alice", "alice-pw"),))[0] == 403
            for nonsense in ("Basic %%%", "Basic bm9jb2xvbg==", "x", "Bearer", "Basic /w=="):
                assert ask(port, "GET", path, headers=(("Authorization", nonsense),))[0] == 401

        request = pb.AuthenticateRequest(name="root", password="root-pw")
        token = client.call(rpc.AUTHENTICATE, request).token
        for value in (token, f"Bearer {token}"):
            assert ask(port, "GET", "/ui/data", headers=(("Authorization", value),))[0] == 200
        assert "root-pw" not in server.log()
