"""TLS towards webhooks and aggregated API servers: whom to believe, and why not.

Certificates are trusted as Go trusts them: whatever stands in a bundle is an anchor, and names come
from the subject's alternative names alone.
"""

import asyncio
import ssl
from typing import Final

from cryptography import x509

_UNKNOWN: Final = "x509: certificate signed by unknown authority"
_EXPIRED: Final = "x509: certificate has expired or is not yet valid"
_HOST_CODES: Final = frozenset((62, 64))
_TIME_CODES: Final = frozenset((9, 10))
_LOOK_S: Final = 2.0


def client_context(
    ca: bytes = b"", *, cert_file: str = "", key_file: str = "", insecure: bool = False
) -> ssl.SSLContext:
    """Return the settings of connections; raises ValueError for what is no certificate.

    ca: PEM; empty: the system's authorities. cert_file, key_file: who we are.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if ca:
            context.load_verify_locations(cadata=ca.decode("ascii", "replace"))
        elif not insecure:
            context.load_default_certs()
        if cert_file:
            context.load_cert_chain(cert_file, key_file or None)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(f"unable to load root certificates: {error}") from error
    return context


async def verification_text(
    error: ssl.SSLCertVerificationError, host: str, address: tuple[str, int]
) -> str:
    """Return why a certificate is not believed, as Go says it."""
    code = error.verify_code
    if code in _HOST_CODES:
        return f"tls: failed to verify certificate: {await _other_names(host, address)}"
    text = _EXPIRED if code in _TIME_CODES else _UNKNOWN
    return f"tls: failed to verify certificate: {text}"


async def _other_names(host: str, address: tuple[str, int]) -> str:
    """Return for which names a server's certificate is good; it is asked once more."""
    wanted = f"x509: certificate is not valid for any names, but wanted to match {host}"
    context = client_context(insecure=True)
    try:
        async with asyncio.timeout(_LOOK_S):
            _, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=host)
    except (OSError, TimeoutError):
        return wanted
    try:
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        names = _names(x509.load_der_x509_certificate(found))
    except (ValueError, x509.ExtensionNotFound):
        names = []
    finally:
        writer.close()
    return f"x509: certificate is valid for {', '.join(names)}, not {host}" if names else wanted


def _names(certificate: x509.Certificate) -> list[str]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return list(extension.value.get_values_for_type(x509.DNSName))
