"""Applies address translation: by nft, else by iptables, whichever the machine has.

    translator.program(4)           "nft", "iptables", or empty: neither
    translator.apply(translation)   all of it; TranslationError
    translator.remove("kv-1")       in both families
    translator.let_through(…)       where a firewall passes on only what it was told to, as Docker's

Calls wait for programs, and are made in threads.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

from kvstack.agents.kubelet.runtime.process.network import iptables_rules, nft_rules
from kvstack.agents.kubelet.runtime.process.network.iptables_rules import Jump
from kvstack.agents.kubelet.runtime.process.network.translation import (
    Translation,
    TranslationError,
)
from kvstack.component.net import iptables, nft
from kvstack.component.net.hosts import has_ipv6
from kvstack.component.net.iptables import IptablesError
from kvstack.component.net.netlink import Network
from kvstack.component.net.nft import NftError

NFT: Final = "nft"
IPTABLES: Final = "iptables"
NEITHER: Final = "neither the program nft nor iptables is installed"
_FAMILIES: Final = (4, 6)
_FIREWALLS: Final = {4: "iptables", 6: "ip6tables"}


def program(family: int = 4) -> str:
    """Return by which program a family is translated; empty: by none."""
    if nft.is_installed():
        return NFT
    return IPTABLES if iptables.is_installed(family) else ""


def apply(translation: Translation) -> None:
    """Put rules in place; raises TranslationError."""
    if program(translation.family) == NFT:
        run_nft(nft_rules.rules(translation))
        return
    if not iptables.is_installed(translation.family):
        raise TranslationError(NEITHER)
    try:
        iptables.restore(translation.family, iptables_rules.rules(translation))
        missing = [
            each
            for each in iptables_rules.jumps(translation.name)
            if not _is_there(translation, each)
        ]
        if missing:
            iptables.restore(translation.family, iptables_rules.joined(tuple(missing)))
    except IptablesError as error:
        raise TranslationError(str(error)) from error


def _is_there(given: Translation, jump: Jump) -> bool:
    return iptables.has_rule(given.family, jump.table, jump.chain, jump.rule)


def remove(name: str) -> None:
    """Remove the rules of a bridge, whichever program wrote them; raises TranslationError."""
    for family in _FAMILIES if has_ipv6() else _FAMILIES[:1]:
        if nft.is_installed():
            run_nft(nft_rules.removal(name, family))
        if iptables.is_installed(family) and f":{name}-guard " in _saved(family):
            jumps = iptables_rules.jumps(name)
            there = (each for each in jumps if iptables.has_rule(family, *each))
            with _translated():
                iptables.restore(family, iptables_rules.removal(name, tuple(there)))


def _saved(family: int) -> str:
    with _translated():
        return iptables.saved(family)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except IptablesError as error:
        raise TranslationError(str(error)) from error


def run_nft(text: str) -> None:
    """Carry a transaction of nftables out; raises TranslationError."""
    try:
        nft.apply(text)
    except NftError as error:
        raise TranslationError(str(error)) from error


def let_through(pods: str, network: Network) -> None:
    """Accept traffic from and to the pods of a range in the machine's firewall.

    pods: how names of their interfaces begin.
    """
    _tell_firewall("-I", pods, network)


def let_through_no_more(pods: str, network: Network) -> None:
    """Undo `let_through`."""
    _tell_firewall("-D", pods, network)


def _tell_firewall(action: str, pods: str, network: Network) -> None:
    firewall = _FIREWALLS[network.version]
    if shutil.which(firewall) is None or (rules := _run(firewall, "-w", "-S", "FORWARD")) is None:
        return  # no firewall rule was added
    for interface, side in (("-i", "-s"), ("-o", "-d")):
        rule = (interface, f"{pods}+", side, str(network), "-j", "ACCEPT")
        there = _run(firewall, "-w", "-C", "FORWARD", *rule) is not None
        position = (str(after_services(rules)),) if action == "-I" else ()
        command = (firewall, "-w", action, "FORWARD", *position, *rule)
        if there is (action == "-D") and _run(*command) is None:
            raise TranslationError(f"{' '.join(command)} failed")


def after_services(rules: str) -> int:
    """Return the position after the rules of a proxy of Services; rules: as iptables shows them.

    What these refuse or drop is not to be let through before.
    """
    every = [each for each in rules.splitlines() if each.startswith("-A ")]
    last = [at for at, each in enumerate(every, 1) if " -j KUBE-" in each]
    return 1 + (last[-1] if last else 0)


def _run(*command: str) -> str | None:
    """Return what a command says; None: it failed."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None
