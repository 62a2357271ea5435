"""`--host-root-namespaces`: namespaces whose pods of `host:latest` may be root of the machine.

parse("kube-system,ops")    ("kube-system", "ops"); "": none
"""

from typing import Final

from kvstack.apimachinery.objects.names import check_dns_label

FLAG: Final = "host-root-namespaces"


def parse(text: str) -> tuple[str, ...]:
    """Return the namespaces that are named; ValueError: one of them cannot be any's name."""
    names = tuple(each.strip() for each in text.split(",")) if text else ()
    for name in names:
        if wrong := check_dns_label(name):
            raise ValueError(f"--{FLAG} {name}: {wrong[0]}")
    return names
