"""Levels and versions of the standards, and the labels of namespaces.

    pod-security.kubernetes.io/enforce: baseline
    pod-security.kubernetes.io/enforce-version: v1.30
    → Policy(enforce=Standard("baseline", 30), …)

A namespace may enforce one standard, and warn of and audit others. An invalid level counts as the
strictest when enforced, and as none otherwise.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from typing_extensions import override

from kvstack.apimachinery.objects.field_errors import FieldError, invalid, key

PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)
"""The levels in order of strictness."""

LATEST: Final = -1
"""The newest version."""

_PREFIX: Final = "pod-security.kubernetes.io/"
_BAD_LEVEL: Final = f"must be one of {', '.join(LEVELS)}"
_BAD_VERSION: Final = 'must be "latest" or "v1.x"'
_DIGITS: Final = frozenset("0123456789")


class Standard(NamedTuple):
    """One level in one version."""

    level: str = PRIVILEGED
    minor: int = LATEST
    """Minor version of Kubernetes: 30 for v1.30."""

    @override
    def __str__(self) -> str:
        """Return `level:version`."""
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    def is_stricter_than(self, other: "Standard") -> bool:
        """Return whether the level is stricter."""
        return LEVELS.index(self.level) > LEVELS.index(other.level)


class Policy(NamedTuple):
    """The standards of a namespace."""

    enforce: Standard = Standard()
    audit: Standard = Standard()
    warn: Standard = Standard()

    @property
    def is_privileged(self) -> bool:
        """Whether everything is allowed without warnings."""
        return PRIVILEGED == self.enforce.level == self.audit.level == self.warn.level


DEFAULT_POLICY: Final = Policy()
_LABELS: Final = frozenset(
    f"{_PREFIX}{mode}{end}" for mode in Policy._fields for end in ("", "-version")
)


def policy_of(
    labels: Mapping[str, str], defaults: Policy = DEFAULT_POLICY
) -> tuple[Policy, list[FieldError]]:
    """Return the standards of a namespace's labels, and the errors."""
    if _LABELS.isdisjoint(labels):
        return defaults, []
    errors: list[FieldError] = []
    standards: dict[str, Standard] = {}
    for mode, default in zip(Policy._fields, defaults, strict=True):
        level, minor = default
        given = labels.get(f"{_PREFIX}{mode}")
        if given is not None:
            level = given
            if given not in LEVELS:
                level = RESTRICTED if mode == "enforce" else PRIVILEGED
                errors.append(_error(mode, given, _BAD_LEVEL))
        version = labels.get(f"{_PREFIX}{mode}-version")
        if version is not None:
            parsed = minor_of(version)
            minor = LATEST if parsed is None else parsed
            if parsed is None:
                errors.append(_error(f"{mode}-version", version, _BAD_VERSION))
        standards[mode] = Standard(level, minor)
    policy = Policy(**standards)
    return _with_warnings(policy, labels), errors


def _with_warnings(policy: Policy, labels: Mapping[str, str]) -> Policy:
    """Warn of what is enforced, too, unless the namespace says otherwise."""
    if labels.get(f"{_PREFIX}enforce") not in LEVELS or f"{_PREFIX}warn" in labels:
        return policy
    if not policy.enforce.is_stricter_than(policy.warn):
        return policy
    minor = policy.warn.minor if f"{_PREFIX}warn-version" in labels else policy.enforce.minor
    return policy._replace(warn=Standard(policy.enforce.level, minor))


def asked_modes(policy: Policy, labels: Mapping[str, str]) -> str:
    """Return the explicit modes of labels: `enforce=baseline:latest, warn=restricted:v1.30`."""
    return ", ".join(
        f"{mode}={standard}"
        for mode, standard in zip(Policy._fields, policy, strict=True)
        if standard.level != PRIVILEGED
        and (f"{_PREFIX}{mode}" in labels or f"{_PREFIX}{mode}-version" in labels)
    )


def minor_of(version: str) -> int | None:
    """Return the minor version of `latest` or `v1.30`; None: it is invalid."""
    if version == "latest":
        return LATEST
    digits = version.removeprefix("v1.")
    if digits == version or not digits or not _DIGITS.issuperset(digits):
        return None
    if (len(digits) > 1 and digits[0] == "0") or len(digits) > 18:
        return None
    return int(digits)


def _error(name: str, value: str, message: str) -> FieldError:
    return invalid(key("metadata.labels", f"{_PREFIX}{name}"), value, message)
