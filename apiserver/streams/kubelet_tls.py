"""Certificates of connections to kubelets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KubeletTls:
    """What kubelets are shown, and which are believed; files, empty: none."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    """Empty: any kubelet is believed."""
