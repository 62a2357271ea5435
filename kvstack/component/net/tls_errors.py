"""Errors of TLS handshakes with Go's texts, which etcd's operators and tools look for.

    received fatal alert: BadCertificate               (rustls)  ─┬► remote error: tls:
    [SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert ... (OpenSSL) ─┘  bad certificate

An error that Go has no text for stays as it is.
"""

import re
from typing import Final

_ALERTS: Final = {
    "badcertificate": "bad certificate",
    "unsupportedcertificate": "unsupported certificate",
    "certificaterevoked": "revoked certificate",
    "certificateexpired": "expired certificate",
    "certificateunknown": "unknown certificate",
    "unknownca": "unknown certificate authority",
    "accessdenied": "access denied",
    "decrypterror": "error decrypting message",
    "handshakefailure": "handshake failure",
    "illegalparameter": "illegal parameter",
    "protocolversion": "protocol version not supported",
    "insufficientsecurity": "insufficient security level",
    "internalerror": "internal error",
    "usercanceled": "user canceled",
    "certificaterequired": "certificate required",
    "noapplicationprotocol": "no application protocol",
}  # the alert without spaces, in lower case → Go's text
_ALERT: Final = re.compile(
    r"received fatal alert: (\w+)|\[SSL: \w+_ALERT_(\w+?)\]|\[SSL: (UNKNOWN_CA)\]", re.IGNORECASE
)
_LOCAL_ERRORS: Final = (
    (r"PEER_DID_NOT_RETURN|peer sent no certificates", "tls: client didn't provide a certificate"),
    (
        r"unable to get local issuer|self-signed certificate|UnknownIssuer",
        "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    ),
    (
        r"certificate (has )?expired|not yet valid|not valid yet|certificate: (Exp|NotValidY)",
        "tls: failed to verify certificate: x509: certificate has expired or is not yet valid",
    ),
    (
        r"WRONG_VERSION_NUMBER|HTTP_REQUEST|InvalidContentType|corrupt message of type",
        "tls: first record does not look like a TLS handshake",
    ),
)


def go_error_text(text: str) -> str:
    """Return the error of a handshake with Go's text, if there is one."""
    if not text:
        return text
    if (alert := _ALERT.search(text)) is not None:
        name = next(filter(None, alert.groups())).replace("_", "").lower()
        if name in _ALERTS:
            return f"remote error: tls: {_ALERTS[name]}"
    for pattern, go_text in _LOCAL_ERRORS:
        if re.search(pattern, text):
            return go_text
    return text
