"""The TLS settings of the client port, the same for every transport.

Files are named here, not read. The transport reads those that changed again before each handshake.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How https:// and unixs:// are served.

    The last usable files are served until usable ones replace them, with a notice per change.
    """

    cert_file: str  # PEM, with its chain
    key_file: str  # PEM
    trusted_ca_file: str = ""  # PEM; if given, clients must present a certificate of it
    crl_file: str = ""  # PEM or DER
    allowed_names: tuple[str, ...] = ()  # CN of clients; empty: any
    allowed_hosts: tuple[str, ...] = ()  # DNS names of clients; empty: any
    min_version: str = "TLS1.2"
    max_version: str = ""  # empty: the newest
    cipher_suites: tuple[str, ...] = ()  # Go's names; empty: all safe ones

    def columns(self) -> dict[str, str | list[str]]:
        """Return the options under the crate's names."""
        return {
            "cert_file": self.cert_file,
            "key_file": self.key_file,
            "trusted_ca_file": self.trusted_ca_file,
            "crl_file": self.crl_file,
            "allowed_names": list(self.allowed_names),
            "allowed_hosts": list(self.allowed_hosts),
            "min_version": self.min_version,
            "max_version": self.max_version,
            "cipher_suites": list(self.cipher_suites),
        }
