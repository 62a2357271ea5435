"""Names of signers, `example.com/name`, and of their trust bundles."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import invalid, required, too_long
from kvstack.apimachinery.objects.names import (
    DNS_LABEL_MAX,
    DNS_SUBDOMAIN_MAX,
    check_dns_label,
    check_dns_subdomain,
    length,
    name_is_dns_subdomain,
)
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.kinds.rules import Errors

_NAME_MAX: Final = DNS_SUBDOMAIN_MAX + 1 + DNS_SUBDOMAIN_MAX + 1 + DNS_LABEL_MAX


def is_kubernetes_signer(name: str) -> bool:
    """Return whether the name is reserved by the Kubernetes project."""
    domain = name.partition("/")[0]
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def check_signer_name(errors: Errors, path: str, name: str) -> None:
    """Check the name of a signer, which is a domain and a path."""
    if not name:
        errors.append(required(path))
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        message = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errors.append(invalid(path, name, message))
        return
    if length(domain) > DNS_SUBDOMAIN_MAX:
        errors.append(too_long(path, DNS_SUBDOMAIN_MAX))
    labels = domain.split(".")
    for label in labels:
        if wrong := check_dns_label(label):
            _add_label_errors(errors, path, domain, label, wrong)
            break
    if len(labels) < 2:
        message = "should be a domain with at least two segments separated by dots"
        errors.append(invalid(path, domain, message))
    for label in rest.split("."):
        if wrong := check_dns_subdomain(label):
            _add_label_errors(errors, path, rest, label, wrong)
            break
    if length(name) > _NAME_MAX:
        errors.append(too_long(path, _NAME_MAX))


def check_trust_bundle_name(name: str, signer: str) -> list[str]:
    """Return the errors of the name of a signer's bundle; signer "": none."""
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return name_is_dns_subdomain(name, False)
    prefix = signer.replace("/", ":") + ":"
    if not name.startswith(prefix):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    return name_is_dns_subdomain(name.removeprefix(prefix), False)


def signer_of_trust_bundle(name: str) -> str:
    """Return the signer in the name of a bundle; "" if there is none."""
    prefix, colon, _ = name.rpartition(":")
    return prefix.replace(":", "/") if colon else ""


def _add_label_errors(
    errors: Errors, path: str, value: str, label: str, messages: list[str]
) -> None:
    errors.extend(
        invalid(path, value, f"validating label {quote(label)}: {each}") for each in messages
    )
