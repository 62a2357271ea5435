"""Users known by the common name of their certificate, with both transports, and etcdctl."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kvstore.transport import native
from kvstore.wire import rpc
from kvstore.wire.gen import auth_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.certificates import Authority
from tests.support.servers import Server, free_ports, ours, running

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="the openssl command is needed to make certificates"
    ),
]

TIMEOUT_S = 20.0
Files = tuple[str, str]


class Caller:
    """Calls with a certificate, and a token if one is given."""

    def __init__(self, port: int, authority: Authority, files: Files) -> None:
        credentials = grpc.ssl_channel_credentials(
            Path(authority.file).read_bytes(),
            Path(files[1]).read_bytes(),
            Path(files[0]).read_bytes(),
        )
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        self.channel = grpc.secure_channel(f"localhost:{port}", credentials, options)

    def call(self, method: int, request: object, *metadata: tuple[str, str]) -> tuple[int, str]:
        """Return (code, text)."""
        found = rpc.METHODS[method]
        assert isinstance(request, found.request)
        try:
            raw_grpc.unary(self.channel, found.path)(
                request.SerializeToString(),
                timeout=TIMEOUT_S,
                metadata=metadata,
                wait_for_ready=True,
            )
        except grpc.RpcError as error:
            return error.code().value[0], error.details() or ""
        return 0, ""

    def token(self, name: str, password: str) -> tuple[str, str]:
        found = rpc.METHODS[rpc.AUTHENTICATE]
        request = pb.AuthenticateRequest(name=name, password=password)
        body = raw_grpc.unary(self.channel, found.path)(
            request.SerializeToString(), timeout=TIMEOUT_S
        )
        return "token", pb.AuthenticateResponse.FromString(body).token


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(params=["native", "grpcio"])
def server(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority
) -> Iterator[Server]:
    if request.param == "native" and not native.is_available():
        pytest.skip(f"the native transport is not built: {native.MISSING}")
    certificate, key = authority.issue("server")
    [port] = free_ports(1)
    server = ours(
        tmp_path / "data",
        extra=[
            f"--transport={request.param}",
            f"--listen-client-urls=https://127.0.0.1:{port}",
            f"--advertise-client-urls=https://127.0.0.1:{port}",
            f"--cert-file={certificate}",
            f"--key-file={key}",
            f"--trusted-ca-file={authority.file}",
            "--client-cert-auth",
            "--bcrypt-cost=4",
        ],
    )
    server.client_port = port
    server.start(wait=False)
    with running(server):
        yield server


def test_a_common_name_is_a_user_unless_there_is_a_token(
    server: Server, authority: Authority
) -> None:
    port = server.client_port
    root, alice, stranger = (
        Caller(port, authority, authority.issue(name)) for name in ("root", "alice", "stranger")
    )
    read = auth_pb2.Permission(permType=auth_pb2.Permission.READ, key=b"k")
    no_password = auth_pb2.UserAddOptions(no_password=True)
    for method, request in (
        (rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name="root", options=no_password)),
        (rpc.AUTH_USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest(user="root", role="root")),
        (rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name="alice", options=no_password)),
        (rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name="bob", password="pw")),
        (rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name="r")),
        (rpc.AUTH_ROLE_GRANT_PERMISSION, pb.AuthRoleGrantPermissionRequest(name="r", perm=read)),
        (rpc.AUTH_USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest(user="alice", role="r")),
        (rpc.AUTH_ENABLE, pb.AuthEnableRequest()),
        (rpc.PUT, pb.PutRequest(key=b"k")),  # by now as root
    ):
        assert root.call(method, request) == (0, "")
    get, put = pb.RangeRequest(key=b"k"), pb.PutRequest(key=b"k")
    denied = (7, "etcdserver: permission denied")
    assert alice.call(rpc.RANGE, get) == (0, "")
    assert alice.call(rpc.PUT, put) == denied
    assert stranger.call(rpc.RANGE, get) == denied
    # A token says who it is, whoever's the connection is; and nobody can claim a name.
    bob = root.token("bob", "pw")
    assert root.call(rpc.RANGE, get, bob) == denied
    assert alice.call(rpc.PUT, put, ("tls-common-name", "root")) == denied
    assert alice.call(rpc.RANGE, get, ("token", "rubbish"))[0] == 16
