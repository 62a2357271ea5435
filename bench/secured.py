"""Servers with TLS, client certificates and authentication, and what a client needs to call them.

    mode          server                                          client
    plain         -                                               -
    TLS           --cert-file, --key-file                         --ca
    mTLS          ... and --client-cert-auth, --trusted-ca-file   --ca, --cert, --key
    auth, simple  authentication on                               --token
    auth, JWT     ... and --auth-token=jwt,...                    --token

Every server listens in plain text, too: readiness and preparations need no certificates.
The user of the tokens is not root: his permission (all keys) is looked up for each call.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.loads.client import Client
from bench.servers import FLAGS, MAKERS
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.certificates import Authority, openssl
from tests.support.servers import Server, free_ports, running

PLAIN: Final = "plain"
MODES: Final = (PLAIN, "TLS", "mTLS", "auth, simple token", "auth, JWT")
_USER: Final = "bench"
_PASSWORD: Final = "for-measuring"


class Secured(NamedTuple):
    """A running server and how kvload calls it."""

    server: Server
    endpoint: str
    options: dict[str, Any]


class Files(NamedTuple):
    """Certificates and keys of one run."""

    ca: str
    server: tuple[str, str]
    client: tuple[str, str]
    jwt_private: Path
    jwt_public: Path


def make_files(directory: Path) -> Files:
    """Make a CA, certificates of server and client, and a key pair that signs tokens (RSA)."""
    directory.mkdir()
    authority = Authority(directory)
    private, public = directory / "jwt.key", directory / "jwt.pub"
    openssl("genrsa", "-out", private.name, "2048", cwd=directory)
    openssl("rsa", "-in", private.name, "-pubout", "-out", public.name, cwd=directory)
    server, client = authority.issue("server"), authority.issue("client")
    return Files(authority.file, server, client, private, public)


@contextmanager
def secured(directory: Path, who: str, mode: str, files: Files) -> Iterator[Secured]:
    """Run a contender in one of MODES, ready to be loaded."""
    server = MAKERS[who](directory, extra=FLAGS)
    with ExitStack() as stack:
        if mode in ("TLS", "mTLS"):
            endpoint, options = _with_tls(server, files, with_client=mode == "mTLS")
            stack.enter_context(running(server))
        else:
            endpoint = server.endpoint
            if mode.endswith("JWT"):
                server.extra += [
                    f"--auth-token=jwt,pub-key={files.jwt_public},priv-key={files.jwt_private},"
                    "sign-method=RS256,ttl=1h"
                ]
            stack.enter_context(running(server))
            options = {} if mode == PLAIN else {"token": _authenticate(server)}
        yield Secured(server, endpoint, options)


def _with_tls(server: Server, files: Files, *, with_client: bool) -> tuple[str, dict[str, str]]:
    """Let a server listen with TLS on a second port; return where, and the client's options."""
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    urls = f"{server.client_url},https://{endpoint}"
    certificate, key = files.server
    server.extra += [
        f"--listen-client-urls={urls}",
        f"--advertise-client-urls={urls}",
        f"--cert-file={certificate}",
        f"--key-file={key}",
    ]
    options = {"ca": files.ca}
    if with_client:
        server.extra += ["--client-cert-auth", f"--trusted-ca-file={files.ca}"]
        options |= {"cert": files.client[0], "key": files.client[1]}
    return endpoint, options


def _authenticate(server: Server) -> str:
    """Make a user who may do everything with keys, turn authentication on; return his token."""
    with Client(server.endpoint) as client:
        for name in ("root", _USER):
            client.call("Auth", "UserAdd", pb.AuthUserAddRequest(name=name, password=_PASSWORD))
            client.call("Auth", "RoleAdd", pb.AuthRoleAddRequest(name=name))
            grant = pb.AuthUserGrantRoleRequest(user=name, role=name)
            client.call("Auth", "UserGrantRole", grant)
        everything = {"permType": "READWRITE", "key": b"\0", "range_end": b"\0"}
        request = pb.AuthRoleGrantPermissionRequest(name=_USER, perm=everything)
        client.call("Auth", "RoleGrantPermission", request)
        client.call("Auth", "AuthEnable", pb.AuthEnableRequest())
        login = pb.AuthenticateRequest(name=_USER, password=_PASSWORD)
        return str(client.call("Auth", "Authenticate", login).token)
