"""Names of cipher suites: flags have Go's, OpenSSL has others."""


def openssl_name(name: str) -> str:
    """Return a cipher suite's name for OpenSSL.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 → ECDHE-RSA-AES128-GCM-SHA256
    """
    if not name.startswith("TLS_") or "_WITH_" not in name:
        return name
    exchange, _, rest = name[4:].partition("_WITH_")
    rest = rest.replace("AES_128", "AES128").replace("AES_256", "AES256")
    rest = rest.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_CBC", "")
    text = rest.replace("_", "-").replace("CHACHA20-POLY1305", "CHACHA20-POLY1305")
    return text if exchange == "RSA" else f"{exchange.replace('_', '-')}-{text}"
