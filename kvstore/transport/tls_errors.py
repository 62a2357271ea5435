"""Why a handshake failed, in the words of Go's TLS, which etcd's operators and tools look for.

    received fatal alert: BadCertificate               (rustls)  ─┬► remote error: tls:
    [SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert ... (OpenSSL) ─┘  bad certificate

What has no word there stays as it is.
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
}  # the alert, without spaces → Go's word
_ALERT: Final = re.compile(
    r"received fatal alert: (\w+)|\[SSL: \w+_ALERT_(\w+?)\]|\[SSL: (UNKNOWN_CA)\]", re.IGNORECASE
)
_OWN: Final = (
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


def in_go_words(text: str) -> str:
    """Return a fault of a handshake as Go names it, if it has a name there."""
    if (alert := _ALERT.search(text)) is not None:
        name = next(filter(None, alert.groups())).replace("_", "").lower()
        if name in _ALERTS:
            return f"remote error: tls: {_ALERTS[name]}"
    for pattern, words in _OWN:
        if re.search(pattern, text):
            return words
    return text
