"""What stands in a kubeconfig: names, types, files and their paths."""

import base64
from pathlib import Path

import pytest

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.component.certs.kubeconfig_reader import KubeconfigReader, Pem

DIRECTORY = Path("/etc/k")
PEM = base64.b64encode(b"PEM" * 40).decode()
FILE = f"""
current-context: x
contexts:
- {{name: x, context: {{cluster: c, user: u, namespace: shop}}}}
- {{name: w, context: {{cluster: c}}}}
clusters:
- name: c
  cluster:
    server: https://h
    certificate-authority-data: |
      {PEM[:64]}
      {PEM[64:]}
    tls-server-name: name
    insecure-skip-tls-verify: true
    proxy-url: http://p
- {{name: empty, cluster: null}}
users:
- name: u
  user:
    token: t
    tokenFile: token
    client-certificate: /c.pem
    client-key: keys/k.pem
    as: ""
    as-groups: []
    exec: {{command: p}}
"""


def read(text: str) -> KubeconfigReader:
    return KubeconfigReader(text.encode(), DIRECTORY)


def test_what_a_file_says() -> None:
    file = read(FILE)
    assert (file.current, file.contexts) == ("x", ["x", "w"])
    context = file.context("x")
    assert context is not None
    assert (context.cluster, context.user, context.namespace) == ("c", "u", "shop")
    cluster, user = file.cluster("c"), file.user("u")
    assert cluster is not None
    assert (cluster.server, cluster.server_name, cluster.proxy_url) == (
        "https://h",
        "name",
        "http://p",
    )
    assert cluster.is_insecure
    assert cluster.ca == Pem(b"PEM" * 40)  # in lines, as people wrap it
    assert user is not None
    assert (user.token, user.token_file) == ("t", "/etc/k/token")
    assert (user.cert, user.key) == (Pem(file="/c.pem"), Pem(file="/etc/k/keys/k.pem"))
    assert user.plugin == {"command": "p"}
    assert user.members == {"token", "tokenFile", "client-certificate", "client-key", "exec"}
    assert [each.server for each in file.clusters()] == ["https://h", ""]


def test_what_is_not_there() -> None:
    file = read("apiVersion: v1")
    assert (file.current, file.contexts, list(file.clusters())) == ("", [], [])
    assert file.context("") is file.cluster("c") is file.user("u") is None
    empty = read(FILE).cluster("empty")
    assert empty is not None
    assert not empty.server
    assert not empty.ca


def test_the_last_of_repeated_members_counts_as_upstream() -> None:
    assert read("current-context: a\ncurrent-context: b").current == "b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file must be an object"),
        ("[]", "the file must be an object"),
        ("a: [", "yaml: "),
        ("current-context: 1", "current-context must be of type string"),
        ("contexts: {}", "contexts must be of type list"),
        ("contexts: [1]", r"contexts\[0\] must be an object"),
    ],
)
def test_a_file_that_is_none(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("token: 1", r"users\[0\]\.user\.token must be of type string"),
        ("exec: p", r"users\[0\]\.user\.exec must be an object"),
        ("client-key-data: '*'", r"users\[0\]\.user\.client-key-data: "),
    ],
)
def test_a_member_that_is_none(member: str, message: str) -> None:
    file = read(f"users: [{{name: u, user: {{{member}}}}}]")
    with pytest.raises(DocumentError, match=message):
        file.user("u")


def test_a_pem_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"one")
    file = Pem(file=str(tmp_path / "p"))
    assert (file.read(), Pem(b"two").read(), Pem().read()) == (b"one", b"two", b"")
    (tmp_path / "p").unlink()
    with pytest.raises(FileNotFoundError):
        file.read()
