"""Files of TLS that are none: refused by name, or good for what they say; never a crash."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.component.errors import ConfigError
from kvstore.peers.tls import PeerTls, PeerTlsError, server_context
from kvstore.transport import native
from kvstore.transport.tls import TlsOptions
from kvstore.wire import rpc
from tests.support.certificates import Authority

PARTS = ("cert", "key", "ca", "crl")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("good")
    authority = Authority(directory)
    cert, key = authority.issue("server")
    files = {"cert": cert, "key": key, "ca": authority.file, "crl": authority.revoke(cert)}
    return {name: Path(path).read_bytes() for name, path in files.items()}


def changed(content: bytes, rng: random.Random) -> bytes:
    """Return a file with a bit flipped, cut short, doubled, or with something else in it."""
    at = rng.randrange(len(content))
    match rng.randrange(5):
        case 0:
            return content[:at] + bytes([content[at] ^ 1 << rng.randrange(7)]) + content[at + 1 :]
        case 1:
            return content[:at]
        case 2:
            return content[:at] + content
        case 3:
            return content.replace(b"-----BEGIN", b"-----BEGIN X509", 1)
        case _:
            return content[:at] + rng.randbytes(rng.randrange(40)) + content[at:]


def native_accepts(paths: dict[str, str]) -> None:
    tls = TlsOptions(paths["cert"], paths["key"], paths["ca"], crl_file=paths["crl"])
    options = native.NativeOptions(tls=tls)
    transport = native.NativeTransport(["https://127.0.0.1:0"], [rpc.RANGE], options)
    transport.stop(0.0)


def ours_accepts(paths: dict[str, str]) -> None:
    server_context(
        PeerTls(
            cert_file=paths["cert"],
            key_file=paths["key"],
            trusted_ca_file=paths["ca"],
            crl_file=paths["crl"],
            client_cert_auth=True,
        )
    )


NATIVE = pytest.param(
    native_accepts,
    marks=pytest.mark.skipif(not native.is_available(), reason="the native transport is not built"),
    id="native",
)


@pytest.mark.parametrize("accepts", [NATIVE, pytest.param(ours_accepts, id="members")])
@settings(max_examples=60)
@given(part=st.sampled_from(PARTS), seed=st.integers(0, 2**32))
def test_files_with_something_wrong(
    tmp_path_factory: pytest.TempPathFactory,
    good: dict[str, bytes],
    accepts: Callable[[dict[str, str]], None],
    part: str,
    seed: int,
) -> None:
    directory = tmp_path_factory.mktemp("files")
    files = good | {part: changed(good[part], random.Random(seed))}
    paths = {}
    for name, content in files.items():
        paths[name] = str(directory / f"{name}.pem")
        Path(paths[name]).write_bytes(content)
    try:
        accepts(paths)
    except (ConfigError, PeerTlsError) as error:
        said = str(error)
    else:
        return
    assert ".pem" in said or "certificate" in said or "key" in said, said
    secret = good["key"].splitlines()[1].decode()
    assert secret[:20] not in said
