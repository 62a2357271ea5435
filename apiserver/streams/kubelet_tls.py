"""TLS of connections to kubelets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KubeletTls:
    """Files of the client certificate and the kubelet CA; empty: none."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    """Empty: kubelets are not verified."""
