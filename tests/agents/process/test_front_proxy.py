"""Users whom an API server tells in headers, and what is asked about them."""

import asyncio
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kvstack.agents.process.access import Access
from kvstack.agents.process.front_proxy import FrontProxy
from kvstack.agents.process.settings import PageSettings
from kvstack.component.certs.certificates import Profile, issue, new_authority
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError

PATH = "/apis/metrics.k8s.io/v1/namespaces/d/pods"
TOLD = {
    "x-remote-user": ["bob"],
    "x-remote-group": ["devs", "system:authenticated"],
    "x-remote-extra-scopes.a%2fb": ["view"],
}
DATA = {
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


class Connection:
    def __init__(self, name: str, verified_by: tuple[str, ...]) -> None:
        now_s = SystemClock().now_s()
        made = issue(new_authority("ca", now_s), Profile(name), now_s)
        certificate = x509.load_pem_x509_certificate(made.cert)
        self.certificates = (certificate.public_bytes(Encoding.DER),)
        self.verified_by = verified_by


class Request:
    method = "GET"

    def __init__(self, connection: Connection, headers: dict[str, list[str]]) -> None:
        self.connection = connection
        self._headers = headers

    def header(self, name: str, default: str = "") -> str:
        return self._headers.get(name, [default])[0]

    def header_values(self, name: str) -> list[str]:
        return self._headers.get(name, [])

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(name, each) for name, values in self._headers.items() for each in values]


class Reviewer:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def create(self, _resource: object, _namespace: str, review: Any) -> Any:
        self.asked.append(review["spec"])
        return {"status": {"allowed": review["spec"]["user"] == "bob"}}


def refusal(name: str, verified_by: tuple[str, ...]) -> tuple[str, list[Any]]:
    reviewer: Any = Reviewer()
    access = Access(reviewer, reviewer, SystemClock(), PageSettings())
    access.front_proxy = FrontProxy.of_config_map(DATA)
    request: Any = Request(Connection(name, verified_by), TOLD)
    found = asyncio.run(access.refusal(request, PATH, {}))
    return "" if found is None else str(found), reviewer.asked


def test_a_proxy_tells_the_user_and_the_resource_is_asked_about() -> None:
    text, [asked] = refusal("front-proxy-client", ("front-proxies",))
    assert not text
    assert asked == {
        "user": "bob",
        "groups": ["devs", "system:authenticated"],
        "extra": {"scopes.a/b": ["view"]},
        "resourceAttributes": {
            "verb": "list",
            "group": "metrics.k8s.io",
            "version": "v1",
            "resource": "pods",
            "subresource": "",
            "namespace": "d",
            "name": "",
        },
    }


@pytest.mark.parametrize(
    ("name", "verified_by", "user"),
    [
        ("other", ("front-proxies",), "system:anonymous"),
        ("front-proxy-client", (), "system:anonymous"),
        ("front-proxy-client", ("clients",), "front-proxy-client"),
    ],
)
def test_nobody_else_may_tell(name: str, verified_by: tuple[str, ...], user: str) -> None:
    text, [asked] = refusal(name, verified_by)
    assert asked["user"] == user
    told = f'User "{user}" cannot list resource "pods" in API group "metrics.k8s.io"'
    assert told in text
    assert 'in the namespace "d"' in text


@pytest.mark.parametrize("value", ["[", "{}", "[1]"])
def test_a_config_map_that_cannot_be_read(value: str) -> None:
    with pytest.raises(ConfigError, match="requestheader-allowed-names of ConfigMap"):
        FrontProxy.of_config_map({**DATA, "requestheader-allowed-names": value})
