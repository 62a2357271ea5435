"""Certificates of a node: signing requests to the cluster's signers, and files.

    request = signing_request(key, node, addresses)
    certificate = await signed(api, name, request, CLIENT_SIGNER, CLIENT_USAGES)
    keep(pki, CLIENT, certificate, key, now_s)

PKI/<name>-current.pem     certificate and key; a link to the newest
"""

import asyncio
import base64
import datetime as dt
import hashlib
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CERTIFICATE_SIGNING_REQUESTS
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.errors import ConfigError

Key: TypeAlias = ec.EllipticCurvePrivateKey

CLIENT, SERVER = "kubelet-client", "kubelet-server"
"""Names of files."""
CLIENT_USAGES: Final = ("digital signature", "client auth")
SERVING_USAGES: Final = ("digital signature", "server auth")
_POLL_S: Final = 0.1
_POLL_MAX_S: Final = 5.0
_WAIT_S: Final = 3600.0


def new_key() -> Key:
    """Return a key of its own."""
    return ec.generate_private_key(ec.SECP256R1())


def signing_request(key: Key, node: str, addresses: Sequence[str]) -> bytes:
    """Return a request for a node's certificate, as PEM."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if addresses:
        names = [_name(each) for each in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def request_name(key: Key, node: str, usages: Sequence[str]) -> str:
    """Return the name of a request: the same as long as key and wishes are."""
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashlib.sha512(public + f"system:node:{node}{''.join(usages)}".encode()).digest()
    return f"node-csr-{base64.urlsafe_b64encode(digest[:32]).decode().rstrip('=')}"


async def signed(api: Api, name: str, request: bytes, signer: str, usages: Sequence[str]) -> bytes:
    """Return the certificate of a request, once it is approved and signed; ConfigError."""
    meta = {"name": name} if name else {"generateName": "csr-"}
    csr: Object = {
        "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
        "kind": CERTIFICATE_SIGNING_REQUESTS.kind,
        "metadata": meta,
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": signer,
            "usages": list(usages),
        },
    }
    try:
        created = await api.create(CERTIFICATE_SIGNING_REQUESTS, "", csr)
    except ApiError as error:
        if not error.is_conflict:
            raise ConfigError(f"a certificate cannot be requested: {error.message}") from error
        created = await api.get(CERTIFICATE_SIGNING_REQUESTS, "", name)
    name, poll_s = created["metadata"]["name"], _POLL_S
    try:
        async with asyncio.timeout(_WAIT_S):
            while not (certificate := (created.get("status") or {}).get("certificate")):
                _check_conditions(name, created)
                await asyncio.sleep(poll_s)
                poll_s = min(poll_s * 2, _POLL_MAX_S)
                created = await api.get(CERTIFICATE_SIGNING_REQUESTS, "", name)
    except TimeoutError as error:
        raise ConfigError(f"the certificate signing request {name} was not signed") from error
    return base64.b64decode(certificate)


def _check_conditions(name: str, request: Object) -> None:
    for each in (request.get("status") or {}).get("conditions") or ():
        if each["type"] in ("Denied", "Failed"):
            raise ConfigError(
                f"the certificate signing request {name} is {each['type'].lower()}: "
                f"{each.get('message', '')}"
            )


# Files.


def current(pki: Path, name: str) -> Path:
    """Return the file of the newest certificate of a name."""
    return pki / f"{name}-current.pem"


def lifetime(pem: bytes) -> tuple[float, float]:
    """Return from when to when a certificate is good, in seconds since 1970; ValueError."""
    found = x509.load_pem_x509_certificate(pem)
    return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()


def is_good(file: Path, now_s: float) -> bool:
    """Whether a certificate exists, and has not expired."""
    return file.exists() and now_s < lifetime(file.read_bytes())[1]


def kept_key(file: Path) -> Key:
    """Return the key of a request that may have been made already."""
    if file.exists():
        found = serialization.load_pem_private_key(file.read_bytes(), None)
        if isinstance(found, ec.EllipticCurvePrivateKey):
            return found
    key = new_key()
    write(file, _pem(key))
    return key


def _pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def keep(pki: Path, name: str, certificate: bytes, key: Key, now_s: float) -> None:
    """Write certificate and key, and update the link to them."""
    stamp = dt.datetime.fromtimestamp(now_s, dt.UTC).strftime("%Y-%m-%d-%H-%M-%S")
    file = pki / f"{name}-{stamp}.pem"
    write(file, certificate + _pem(key))
    link = pki / f"{name}-current.pem.new"
    link.unlink(missing_ok=True)
    link.symlink_to(file.name)
    link.replace(pki / f"{name}-current.pem")


def write(file: Path, data: bytes) -> None:
    """Replace a file in one step; its mode is 0600. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = file.with_name(f"{file.name}.new")
    descriptor = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as opened:
        opened.write(data)
    waiting.replace(file)
