"""What the client port does where TLS is asked for, told alike to every transport.

Files are named, not read, here. Who reads them is the transport: again for every handshake, where
they changed.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What https:// and unixs:// do; the files are looked at again for every handshake.

    What was right once is served until something right takes its place, with a notice per change.
    """

    cert_file: str  # PEM, with its chain
    key_file: str  # PEM
    trusted_ca_file: str = ""  # PEM; given: clients must have a certificate of it
    crl_file: str = ""  # PEM or DER
    allowed_names: tuple[str, ...] = ()  # CN of clients; empty: any
    allowed_hosts: tuple[str, ...] = ()  # DNS names of clients; empty: any
    min_version: str = "TLS1.2"
    max_version: str = ""  # empty: the newest
    cipher_suites: tuple[str, ...] = ()  # Go's names; empty: all that are safe

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
