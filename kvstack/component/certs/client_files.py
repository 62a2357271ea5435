"""A client's TLS files, read by OpenSSL, which has the best error messages."""

import ssl

from kvstack.component.errors import ConfigError


def load_client_files(cert_file: str, key_file: str, trusted_ca_file: str) -> ssl.SSLContext:
    """Return a context with the files that are named; ConfigError names those that cannot be used.

    Without a trusted CA file no CA certificate is loaded.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if cert_file:
            context.load_cert_chain(cert_file, key_file)
        if trusted_ca_file:
            context.load_verify_locations(trusted_ca_file)
    except OSError as error:
        files = ", ".join(filter(None, (cert_file, key_file, trusted_ca_file)))
        raise ConfigError(f"TLS files {files}: {error}") from None
    return context
