"""TLS of the portable transport, by Python's ssl.

    files ──checked at each handshake──► SSLContext ──handshake──► the client's identity

Working files are used until other working files replace them. OpenSSL verifies a client's
certificate only in the handshake, so ClientAuth.REQUEST is VERIFY_IF_GIVEN here: a certificate that
no authority verifies is refused.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kvstack.component.certs.cipher_suites import openssl_name
from kvstack.component.errors import ConfigError
from kvstack.component.http.serving.listeners import ClientAuth, KeyPair, Pem, ServerTls
from kvstack.component.http.tls import FileState, file_state

_VERSIONS: Final = {"TLS1.2": ssl.TLSVersion.TLSv1_2, "TLS1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUEST: ssl.CERT_OPTIONAL,
    ClientAuth.VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}
_DER: Final = 2  # ssl's number of the encoding
_Stamp: TypeAlias = tuple[FileState, ...]


class Handshake(NamedTuple):
    """The result of a handshake."""

    protocol: str
    server_name: str
    certificates: tuple[bytes, ...]
    verified_by: tuple[str, ...]


class _LoadedFiles(NamedTuple):
    context: ssl.SSLContext
    by_name: dict[str, ssl.SSLContext]
    authorities: dict[str, frozenset[bytes]]


class ServerContexts:
    """The context of the next handshake, from the current files."""

    def __init__(self, tls: ServerTls) -> None:
        """Read the files once; ConfigError if they cannot be used."""
        self._tls = tls
        self._files = [pem for pem in _pems(tls) if isinstance(pem, str)]
        self._server_names: WeakKeyDictionary[ssl.SSLObject, str] = WeakKeyDictionary()
        self._failed_stamp: _Stamp | None = None
        self._stamp = self._read_stamp()
        self._loaded = self._load()

    def context(self) -> tuple[ssl.SSLContext, str]:
        """Return the context to use, and a warning if the files have become unusable."""
        stamp = self._read_stamp()
        if stamp in (self._stamp, self._failed_stamp):
            return self._loaded.context, ""
        try:
            self._loaded = self._load()
        except ConfigError as error:
            self._failed_stamp = stamp
            warning = f"TLS files cannot be used, the last good ones are: {error}"
            return self._loaded.context, warning
        self._stamp, self._failed_stamp = stamp, None
        return self._loaded.context, ""

    def identify(self, secure: ssl.SSLObject) -> Handshake:
        """Return the result of a handshake."""
        verified = _chain(secure, "verified")
        return Handshake(
            secure.selected_alpn_protocol() or "",
            self._server_names.get(secure, ""),
            tuple(_chain(secure, "unverified")),
            tuple(
                name
                for name, trusted in self._loaded.authorities.items()
                if verified and verified[-1] in trusted
            ),
        )

    def _read_stamp(self) -> _Stamp:
        return tuple(file_state(path) for path in self._files)

    def _load(self) -> _LoadedFiles:
        tls = self._tls
        authorities = {name: frozenset(_ders(pem)) for name, pem in tls.authorities.items()}
        trusted = b"".join(b"".join(each) for each in authorities.values())
        contexts = [self._load_pair(pair, trusted) for pair in (tls.pair, *tls.others)]
        by_name: dict[str, ssl.SSLContext] = {}
        others = list(zip(tls.others, contexts[1:], strict=True))
        given = [(pair.names, context) for pair, context in others if pair.names]
        own = [(_names_in(pair), context) for pair, context in others if not pair.names]
        for names, context in given + own:
            for name in names:
                by_name.setdefault(name.lower(), context)
        loaded = _LoadedFiles(contexts[0], by_name, authorities)

        def choose(secure: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            if name:
                self._server_names[secure] = name
                if (chosen := _match(loaded.by_name, name.lower())) is not None:
                    secure.context = chosen

        contexts[0].sni_callback = choose
        return loaded

    def _load_pair(self, pair: KeyPair, trusted: bytes) -> ssl.SSLContext:
        tls = self._tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.minimum_version = _VERSIONS[tls.min_version]
            if tls.max_version:
                context.maximum_version = _VERSIONS[tls.max_version]
            if tls.cipher_suites:
                context.set_ciphers(":".join(openssl_name(name) for name in tls.cipher_suites))
            context.set_alpn_protocols(["http/1.1"])
            context.verify_mode = _VERIFY[tls.client_auth]
            if trusted:
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: any can be the root
                context.load_verify_locations(cadata=trusted)
            _load_key(context, pair)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"TLS with {_describe(pair.cert)} and {_describe(pair.key)}: {error}"
            ) from error
        return context


def _load_key(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Load a certificate and its key; from memory through files that only this user can read."""
    if isinstance(pair.cert, str) and isinstance(pair.key, str):
        context.load_cert_chain(pair.cert, pair.key)
        return
    with tempfile.TemporaryDirectory(prefix="kvstore-") as folder:
        paths = []
        for name, pem in (("cert", pair.cert), ("key", pair.key)):
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "wb") as file:
                file.write(_read(pem))
        context.load_cert_chain(*paths)


def _pems(tls: ServerTls) -> Iterator[Pem]:
    for pair in (tls.pair, *tls.others):
        yield pair.cert
        yield pair.key
    yield from tls.authorities.values()


def _read(pem: Pem) -> bytes:
    if isinstance(pem, bytes):
        return pem
    with open(pem, "rb") as file:
        return file.read()


def _ders(pem: Pem) -> list[bytes]:
    """Return the certificates of a bundle."""
    try:
        found = x509.load_pem_x509_certificates(_read(pem))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{_describe(pem)}: {error}") from error
    return [each.public_bytes(Encoding.DER) for each in found]


def _describe(pem: Pem) -> str:
    return pem if isinstance(pem, str) else "the PEM given"


def _names_in(pair: KeyPair) -> list[str]:
    """Return the DNS names of a certificate, and its common name."""
    own = x509.load_pem_x509_certificates(_read(pair.cert))[0]
    common = own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    names = [str(common[0].value)] if common else []
    try:
        found = own.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return names
    return names + found.value.get_values_for_type(x509.DNSName)


def _match(by_name: dict[str, ssl.SSLContext], name: str) -> ssl.SSLContext | None:
    """Return the context for a name: an exact match, or a wildcard for its first label."""
    if (exact := by_name.get(name)) is not None:
        return exact
    _, dot, parent = name.partition(".")
    return by_name.get(f"*{dot}{parent}")


def _chain(secure: ssl.SSLObject, kind: str) -> list[bytes]:
    """Return the client's chain in DER, its own certificate first; public since Python 3.13."""
    if secure.getpeercert(binary_form=True) is None:
        return []
    public: Any = getattr(secure, f"get_{kind}_chain", None)
    if public is not None:
        return list(public())
    inner: Any = getattr(secure, "_sslobj", None)
    found = getattr(inner, f"get_{kind}_chain")()
    return [each.public_bytes(_DER) for each in found or ()]
