"""Authorization settings of the flags."""

from dataclasses import dataclass
from typing import Final

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.component.flags.flag_reader import FlagReader

MODES: Final = ("AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node")

_CONFIG: Final = "authorization-config"
_NOT_WITH_CONFIG: Final = (
    "authorization-mode",
    "authorization-webhook-config-file",
    "authorization-webhook-version",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
)
_VERSIONS: Final = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class AuthorizationOptions:
    """What authorizers need; an empty file name: none."""

    config_file: str = ""
    """File of an AuthorizationConfiguration, which replaces the modes."""
    policy_file: str = ""
    """File of the ABAC policy."""
    webhook_file: str = ""
    """Kubeconfig of the webhook."""
    webhook_version: str = "v1beta1"
    allowed_ns: int = 300_000_000_000
    """How long answers of the webhook that allow are cached; 0: not at all."""
    other_ns: int = 30_000_000_000


def modes(reader: FlagReader) -> tuple[str, ...]:
    """Return the modes in order; errors are added to the reader's faults."""
    named = reader.texts("authorization-mode") or ("AlwaysAllow",)
    wrong = reader.wrong
    for each in named:
        if each not in MODES:
            wrong.append(f"authorization-mode {quote(each)} is not a valid mode")
    for mode, flag, what in (
        ("ABAC", "authorization-policy-file", "authorization policy file"),
        ("Webhook", "authorization-webhook-config-file", "authorization config file"),
    ):
        if mode in named and not reader.text(flag):
            wrong.append(f"authorization-mode {mode}'s {what} not passed")
        if mode not in named and reader.text(flag) and not reader.text(_CONFIG):
            wrong.append(f"cannot specify --{flag} without mode {mode}")
    if len(set(named)) < len(named):
        names = " ".join(quote(each) for each in named)
        wrong.append(f"authorization-mode [{names}] has mode specified more than once")
    return named


def authorization_options(reader: FlagReader) -> AuthorizationOptions:
    """Return the settings of the flags; errors are added to the reader's faults."""
    config_file = reader.text(_CONFIG)
    if config_file and any(reader.is_given(each) for each in _NOT_WITH_CONFIG):
        reader.wrong.append(
            f"--{_CONFIG} can not be specified when --authorization-mode or"
            " --authorization-webhook-* flags are defined"
        )
    version = reader.text("authorization-webhook-version")
    if version not in _VERSIONS:
        supported = ", ".join(map(quote, _VERSIONS))
        reader.wrong.append(
            f"unsupported webhook authorizer version {quote(version)}, supported versions are"
            f" {supported}"
        )
    return AuthorizationOptions(
        config_file,
        reader.text("authorization-policy-file"),
        reader.text("authorization-webhook-config-file"),
        version,
        reader.int("authorization-webhook-cache-authorized-ttl"),
        reader.int("authorization-webhook-cache-unauthorized-ttl"),
    )
