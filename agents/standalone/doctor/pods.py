"""Findings about what a node of processes can enforce on this machine.

The facts and what follows from each that is missing are those of `features`, which a node writes
into its log at start.
"""

import os
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.features import CONSEQUENCES, Features, look
from kvstack.agents.standalone.doctor.data_and_ports import nearest
from kvstack.agents.standalone.doctor.findings import Finding, Level
from kvstack.agents.standalone.rootless.facts import Facts
from kvstack.agents.standalone.rootless.facts import look as look_without_root
from kvstack.component.net import nft

_POLICIES: Final = "network policies"
_NO_POLICIES: Final = "NetworkPolicies are stored, and not enforced"
_NO_NODE: Final = "no node runs pods here; root has one"
_ONE_USER: Final = "all processes of pods are this user, and pods that ask for another do not start"
_NO_UPLINK: Final = "pods reach each other and Services, but nothing outside"
_NO_CGROUPS: Final = "pods have no limits of memory and CPU; those that ask for limits are refused"


def findings(directory: Path) -> list[Finding]:
    """Return what a node with this directory enforces; nothing if there is no node."""
    if os.geteuid() != 0:
        return without_root(look_without_root())
    return [*of_features(look(nearest(directory))), network_policies(nft.problem())]


def without_root(facts: Facts) -> list[Finding]:
    """Return whether who is not root has a node here, and what it lacks."""
    if facts.problem:
        return [Finding("node", f"no: {facts.problem}", Level.LIMITED, _NO_NODE)]
    findings = [Finding("node", "yes, in a user namespace")]
    problem = facts.subordinates.problem
    ids = Finding("subordinate ids", f"{facts.subordinates.uids[1]:,}")
    findings.append(
        ids._replace(found=f"no: {problem}", level=Level.LIMITED, consequence=_ONE_USER)
        if problem
        else ids
    )
    uplink = Finding("uplink", facts.uplink)
    if not facts.uplink:
        text = "neither pasta (package passt) nor slirp4netns is installed"
        uplink = Finding("uplink", text, Level.LIMITED, _NO_UPLINK)
    return [*findings, uplink]


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
