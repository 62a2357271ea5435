"""What this machine lets a node of processes enforce on its pods, as findings.

The facts and what follows from each that is missing are those of `features`, which a node writes
into its log at start.
"""

import os
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.features import CONSEQUENCES, Features, look
from kvstack.agents.standalone.doctor.data_and_ports import nearest
from kvstack.agents.standalone.doctor.findings import Finding, Level
from kvstack.component.net import nft

_POLICIES: Final = "network policies"
_NO_POLICIES: Final = "NetworkPolicies are stored, and not enforced"
_NO_CGROUPS: Final = "pods have no limits of memory and CPU; those that ask for limits are refused"


def findings(directory: Path) -> list[Finding]:
    """Return what a node whose files are in a directory enforces; nothing if there is no node."""
    if os.geteuid() != 0:
        return []  # `machine.system` says that there is none
    return [*of_features(look(nearest(directory))), network_policies(nft.problem())]


def network_policies(problem: str) -> Finding:
    """Return whether NetworkPolicies can be enforced; problem: why not, empty if they can."""
    if not problem:
        return Finding(_POLICIES, "yes, by nftables")
    return Finding(_POLICIES, f"no: {problem}", Level.LIMITED, _NO_POLICIES)


def of_features(features: Features) -> list[Finding]:
    """Return a finding for each feature."""
    cgroups = Finding("cgroups", features.cgroups)
    if features.cgroups == "none":
        cgroups = cgroups._replace(level=Level.LIMITED, consequence=_NO_CGROUPS)
    names = [name for name in CONSEQUENCES if name != "iptables" or features.nft]
    return [cgroups, *(_finding(features, name) for name in names)]


def _finding(features: Features, name: str) -> Finding:
    reason = getattr(features, name)
    subject = name.replace("_", " ")
    if not reason:
        return Finding(subject, "yes")
    return Finding(subject, f"no: {reason}", Level.LIMITED, CONSEQUENCES[name])
