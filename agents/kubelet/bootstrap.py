"""Gets a node its certificates: requests that a signer of the cluster signs (TLS bootstrap).

await ensure(bootstrap_kubeconfig, kubeconfig, pki, node, clock)      a client's, at the first start
pair = await serving(api, pki, node, addresses, clock)                a server's, once approved

PKI/kubelet-client-current.pem     certificate and key; a link to the newest
KUBECONFIG                         written, and points to it
"""

import asyncio
import base64
import datetime as dt
import hashlib
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import CERTIFICATE_SIGNING_REQUESTS
from kvstack.agents.client.kubeconfig import connect, load
from kvstack.agents.client.timing import Clock
from kvstack.apiserver.objects.status import ApiError
from kvstore.errors import ConfigError

Object: TypeAlias = dict[str, Any]
Key: TypeAlias = ec.EllipticCurvePrivateKey

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
_POLL_S: Final = 1.0
_WAIT_S: Final = 3600.0
_CONFLICT: Final = 409


async def ensure(
    bootstrap_kubeconfig: str, kubeconfig: Path, pki: Path, node: str, clock: Clock
) -> None:
    """Get a client certificate and write the kubeconfig, unless one is there; ConfigError."""
    current = pki / "kubelet-client-current.pem"
    if await asyncio.to_thread(_has_certificate, kubeconfig, current, clock.now_s()):
        return
    cluster = load(bootstrap_kubeconfig)
    api = Api(connect(cluster), Options(user_agent="kvstack-kubelet-bootstrap"))
    try:
        key = await asyncio.to_thread(_key, pki / "kubelet-client.key.tmp")
        request = signing_request(key, node, ())
        usages = ["digital signature", "client auth"]
        name = request_name(key, node, usages)
        certificate = await _signed(api, name, request, CLIENT_SIGNER, usages)
    finally:
        await api.close()
    await asyncio.to_thread(_keep, pki, "kubelet-client", certificate, key, clock.now_s())
    text = _kubeconfig(bootstrap_kubeconfig, current)
    await asyncio.to_thread(_write, kubeconfig, text.encode())
    await asyncio.to_thread((pki / "kubelet-client.key.tmp").unlink)


async def serving(api: Api, pki: Path, node: str, addresses: Sequence[str], clock: Clock) -> Path:
    """Return a file of certificate and key that clients are shown, signed by the cluster.

    It waits until somebody approves the request: nobody does by default. ConfigError.
    """
    current = pki / "kubelet-server-current.pem"
    if await asyncio.to_thread(_is_valid, current, clock.now_s()):
        return current
    key = ec.generate_private_key(ec.SECP256R1())
    request = signing_request(key, node, addresses)
    usages = ["digital signature", "server auth"]
    certificate = await _signed(api, "", request, SERVING_SIGNER, usages)
    await asyncio.to_thread(_keep, pki, "kubelet-server", certificate, key, clock.now_s())
    return current


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


async def _signed(api: Api, name: str, request: bytes, signer: str, usages: Sequence[str]) -> bytes:
    """Return the certificate of a request, once it is approved and signed; ConfigError."""
    meta = {"name": name} if name else {"generateName": "csr-"}
    wanted: Object = {
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
        found = await api.create(CERTIFICATE_SIGNING_REQUESTS, "", wanted)
    except ApiError as error:
        if error.code != _CONFLICT:
            raise ConfigError(f"no certificate can be asked for: {error.message}") from error
        found = await api.get(CERTIFICATE_SIGNING_REQUESTS, "", name)
    name = found["metadata"]["name"]
    try:
        async with asyncio.timeout(_WAIT_S):
            while not (certificate := (found.get("status") or {}).get("certificate")):
                _check_conditions(name, found)
                await asyncio.sleep(_POLL_S)
                found = await api.get(CERTIFICATE_SIGNING_REQUESTS, "", name)
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


def _has_certificate(kubeconfig: Path, current: Path, now_s: float) -> bool:
    return kubeconfig.exists() and _is_valid(current, now_s)


def _is_valid(file: Path, now_s: float) -> bool:
    """Tell whether a certificate is there, and good for a while."""
    if not file.exists():
        return False
    found = x509.load_pem_x509_certificate(file.read_bytes())
    now = dt.datetime.fromtimestamp(now_s, dt.UTC)
    life = found.not_valid_after_utc - found.not_valid_before_utc
    return now < found.not_valid_after_utc - life * 0.2


def _key(file: Path) -> Key:
    """Return the key of a request that may have been made already."""
    if file.exists():
        found = serialization.load_pem_private_key(file.read_bytes(), None)
        if isinstance(found, ec.EllipticCurvePrivateKey):
            return found
    key = ec.generate_private_key(ec.SECP256R1())
    _write(file, _pem(key))
    return key


def _pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _keep(pki: Path, name: str, certificate: bytes, key: Key, now_s: float) -> None:
    """Write certificate and key, and let the link point to them."""
    stamp = dt.datetime.fromtimestamp(now_s, dt.UTC).strftime("%Y-%m-%d-%H-%M-%S")
    file = pki / f"{name}-{stamp}.pem"
    _write(file, certificate + _pem(key))
    link = pki / f"{name}-current.pem.new"
    link.unlink(missing_ok=True)
    link.symlink_to(file.name)
    link.replace(pki / f"{name}-current.pem")


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = file.with_name(f"{file.name}.new")
    descriptor = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as opened:
        opened.write(data)
    waiting.replace(file)


def _kubeconfig(bootstrap_kubeconfig: str, current: Path) -> str:
    """Return the kubeconfig of the bootstrap with the node's own certificate as its user."""
    content = yaml.safe_load(Path(bootstrap_kubeconfig).read_text("utf-8"))
    context = next(
        each["context"]
        for each in content["contexts"]
        if each["name"] == content["current-context"]
    )
    cluster = next(each for each in content["clusters"] if each["name"] == context["cluster"])
    files = {"client-certificate": str(current.absolute()), "client-key": str(current.absolute())}
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [{"name": "default-auth", "user": files}],
        "contexts": [
            {
                "name": "default-context",
                "context": {"cluster": cluster["name"], "user": "default-auth"},
            }
        ],
        "current-context": "default-context",
    }
    text: str = yaml.safe_dump(found, sort_keys=False)
    return text
