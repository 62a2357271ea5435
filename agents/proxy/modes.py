"""Which mode serves a node, and what is done about the rules of the others.

    mode, problem = available("", 4)        ("iptables", "nftables: the program nft is …")
    backend(mode, settings, logger, leaves_rules=True)
    remove_rules(NFTABLES, 4)

Rules of other modes go once those of this mode are there: traffic is led all the time.
"""

from collections.abc import Callable
from typing import Final

from kvstack.agents.proxy.backend import Backend
from kvstack.agents.proxy.iptables import program as iptables
from kvstack.agents.proxy.iptables.backend import MODE as IPTABLES
from kvstack.agents.proxy.iptables.backend import IptablesBackend
from kvstack.agents.proxy.nftables import program as nftables
from kvstack.agents.proxy.nftables.backend import MODE as NFTABLES
from kvstack.agents.proxy.nftables.backend import NftBackend
from kvstack.agents.proxy.rule_settings import RuleSettings
from kvstack.agents.proxy.services import Family
from kvstack.agents.proxy.userspace.backend import MODE as USERSPACE
from kvstack.component.logger import Logger

__all__ = [
    "IPTABLES",
    "NFTABLES",
    "RULES_ERRORS",
    "USERSPACE",
    "WITH_RULES",
    "available",
    "backend",
    "is_installed",
    "problem_of",
    "remove_rules",
]

WITH_RULES: Final = (NFTABLES, IPTABLES)
"""The modes that write rules, the better one first."""


RULES_ERRORS: Final = (nftables.NftError, iptables.IptablesError)


def available(asked: str, family: Family) -> tuple[str, str]:
    """Return a mode that can serve a family, and why none of those before it can.

    asked: the mode that is to be; empty: the best one there is.
    """
    if asked == USERSPACE:
        return USERSPACE, ""
    problems: list[str] = []
    for mode in (asked,) if asked else WITH_RULES:
        problem = problem_of(mode, family)
        if not problem:
            return mode, "; ".join(problems)
        problems.append(f"{mode}: {problem}")
    return USERSPACE, "; ".join(problems)


def problem_of(mode: str, family: Family) -> str:
    """Return why a mode cannot write its rules here; empty: it can."""
    return nftables.problem() if mode == NFTABLES else iptables.problem(family)


def backend(mode: str, settings: RuleSettings, logger: Logger, *, leaves_rules: bool) -> Backend:
    """Return the backend of a mode that writes rules; it takes those of the other mode away."""
    kind = NftBackend if mode == NFTABLES else IptablesBackend
    (other,) = (each for each in WITH_RULES if each != mode)
    on_written = _once(lambda: _remove_others(other, settings.family, logger))
    return kind(settings, logger, leaves_rules=leaves_rules, on_written=on_written)


def remove_rules(mode: str, family: Family) -> bool:
    """Take the rules of a mode away; return whether there were any.

    Raises NftError, IptablesError: also if there is no program for it.
    """
    return nftables.remove(family) if mode == NFTABLES else iptables.remove(family)


def is_installed(mode: str, family: Family) -> bool:
    """Whether this machine has the programs of a mode that writes rules."""
    return nftables.is_installed() if mode == NFTABLES else iptables.is_installed(family)


def _remove_others(mode: str, family: Family, logger: Logger) -> None:
    if not is_installed(mode, family):
        return
    try:
        if remove_rules(mode, family):
            logger.info("rules of another mode were taken away", mode=mode)
    except RULES_ERRORS as error:
        logger.warning("rules of another mode may be there", mode=mode, reason=str(error))


def _once(work: Callable[[], None]) -> Callable[[], None]:
    waits = [work]

    def run() -> None:
        if waits:
            waits.pop()()

    return run
