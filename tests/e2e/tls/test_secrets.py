"""No secret is in the log, at debug level, whatever goes wrong: passwords, tokens, keys."""

import json
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from kvstore.wire import rpc
from kvstore.wire.gen import auth_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.certificates import Authority
from tests.support.http.plain_client import ask
from tests.support.rpc_client import Client
from tests.support.servers import Server, free_ports, ours, running

pytestmark = pytest.mark.e2e

ROOT, WRONG, ALICE, NEW = "Zorn-root-9", "Wut-wrong-9", "Neid-alice-9", "Gier-new-9"
DISCOVERY, REBUILD, VALUE = "Geiz-discovery-9", "Trägheit-rebuild-9", "Hochmut-value-9"


def refused(
    client: Client, method: int, request: Message | bytes, *metadata: tuple[str, str]
) -> None:
    found = rpc.METHODS[method]
    body = request if isinstance(request, bytes) else request.SerializeToString()
    with pytest.raises(grpc.RpcError):
        raw_grpc.unary(client.channel, found.path)(body, timeout=20, metadata=metadata)


def post(port: int, path: str, body: object, token: str = "") -> int:
    headers = (("Authorization", token),) if token else ()
    text = json.dumps(body).encode() if not isinstance(body, bytes) else body
    status, _, _ = ask(port, "POST", path, text, headers=headers)
    return int(status)


def use(server: Server, http_port: int) -> list[str]:
    """Make users, log in well and badly, over gRPC and HTTP; return the tokens that were given."""
    with Client(server.endpoint) as client:
        put = pb.PutRequest(key=b"k", value=VALUE.encode())
        client.call(rpc.PUT, put)
        for name, password in (("root", ROOT), ("alice", ALICE)):
            client.call(rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name=name, password=password))
        options = auth_pb2.UserAddOptions(no_password=False)
        add = pb.AuthUserAddRequest(name="", password=WRONG, options=options)
        refused(client, rpc.AUTH_USER_ADD, add)
        change = pb.AuthUserChangePasswordRequest(name="alice", password=NEW)
        client.call(rpc.AUTH_USER_CHANGE_PASSWORD, change)
        grant = pb.AuthUserGrantRoleRequest(user="root", role="root")
        client.call(rpc.AUTH_USER_GRANT_ROLE, grant)
        client.call(rpc.AUTH_ENABLE, pb.AuthEnableRequest())
        login = pb.AuthenticateRequest(name="root", password=ROOT)
        tokens = [client.call(rpc.AUTHENTICATE, login).token]
        wrong = pb.AuthenticateRequest(name="root", password=WRONG)
        refused(client, rpc.AUTHENTICATE, wrong)
        refused(client, rpc.AUTHENTICATE, login.SerializeToString()[:-1])
        refused(client, rpc.AUTHENTICATE, wrong.SerializeToString() + b"\xff")
        for token in (tokens[0] + WRONG, tokens[0][:-1] + "x", WRONG):
            refused(client, rpc.PUT, put, ("token", token))
    login_json = {"name": "alice", "password": NEW}
    assert post(http_port, "/v3/auth/authenticate", login_json) == 200
    assert post(http_port, "/v3/auth/authenticate", {"name": "alice", "password": ALICE}) == 400
    assert post(http_port, "/v3/auth/authenticate", f'{{"password": "{WRONG}'.encode()) == 400
    assert post(http_port, "/v3/auth/authenticate", {"name": [WRONG], "password": WRONG}) == 400
    assert post(http_port, "/v3/kv/put", {"key": "eA=="}, tokens[0] + WRONG) >= 400
    assert post(http_port, "/v3/kv/put", {"key": "eA=="}, tokens[0]) == 200
    return tokens


@pytest.mark.parametrize("kind", ["simple", "jwt"])
def test_what_clients_say(kind: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Unkeuschheit-" * 6)
    method = f"jwt,sign-method=HS256,priv-key={secret}" if kind == "jwt" else "simple"
    (http_port,) = free_ports(1)  # of its own: not every transport serves HTTP beside gRPC
    flags = [
        f"--listen-client-http-urls=http://127.0.0.1:{http_port}",
        *(f"--auth-token={method}", "--log-level=debug", "--bcrypt-cost=4"),
        # Of commands that are not given: their passwords must not be echoed either.
        *(f"--discovery-password={DISCOVERY}", f"--rebuild-user=root:{REBUILD}"),
        # Everything is a slow request.
        *("--warning-unary-request-duration=1ns", "--warning-apply-duration=1ns"),
    ]
    server = ours(tmp_path / "data", extra=flags)
    with running(server):
        tokens = use(server, http_port)
        server.restart()  # what is replayed is told as well
        assert server.stop() == 0
    log = server.log_path.read_text()
    assert '"level":"debug"' in log or '"msg":"request stats"' in log
    secrets = [ROOT, WRONG, ALICE, NEW, DISCOVERY, REBUILD, "Unkeuschheit", *tokens]
    assert [each for each in secrets if each in log] == []
    assert VALUE not in log


def test_keys_that_cannot_be_used(tmp_path: Path) -> None:
    """A key with a byte changed is refused by its name, never by what is in it."""
    cert, key = Authority(tmp_path).issue("server")
    lines = Path(key).read_text().splitlines()
    Path(key).write_text("\n".join([lines[0], lines[1][:-3] + "!!!", *lines[2:]]))
    url = "https://127.0.0.1:0"
    for flags in (
        [f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--cert-file={cert}",
         f"--key-file={key}"],
        [f"--listen-peer-urls={url}", f"--peer-cert-file={cert}", f"--peer-key-file={key}"],
        [f"--auth-token=jwt,sign-method=ES256,priv-key={key}"],
    ):  # fmt: skip
        command = [sys.executable, "-m", "kvstore", f"--data-dir={tmp_path / 'data'}", *flags]
        done = subprocess.run(
            [*command, "--log-level=debug"], capture_output=True, text=True, timeout=30, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode == 1, said
        assert "server.key" in said or "--auth-token: priv-key cannot be read" in said
        assert "Traceback" not in said
        assert not any(line[:20] in said for line in lines[1:-1])
