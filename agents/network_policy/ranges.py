"""Blocks of addresses with their exceptions, as ranges that do not touch each other.

    ranges_of([{"cidr": "10.0.0.0/24", "except": ["10.0.0.128/25"]}])   {4: ((first, last),)}

One block's exception takes nothing from another block: what several allow together is allowed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from kvstack.apimachinery.objects.addresses import parse_cidr

Family: TypeAlias = Literal[4, 6]
Range: TypeAlias = tuple[int, int]
"""First and last address, as numbers."""
Ranges: TypeAlias = tuple[Range, ...]

FAMILIES: Final[tuple[Family, ...]] = (4, 6)
BITS: Final[Mapping[Family, int]] = {4: 32, 6: 128}
_MAPPED: Final = 0xFFFF << 32
_MAPPED_PREFIX: Final = 96


def ranges_of(blocks: Iterable[Mapping[str, Any]]) -> dict[Family, Ranges]:
    """Return what ipBlocks mean, by family; what is no CIDR means nothing."""
    found: dict[Family, list[Range]] = {4: [], 6: []}
    for block in blocks:
        whole = _range(block.get("cidr") or "")
        if whole is None:
            continue
        family, own = whole
        parts = [_range(each) for each in block.get("except") or ()]
        holes = [each for got, each in filter(None, parts) if got == family]
        found[family] += without(own, merged(holes)) if holes else (own,)
    return {family: merged(ranges) for family, ranges in found.items() if ranges}


def merged(ranges: Iterable[Range]) -> Ranges:
    """Return ranges in order; those that overlap or follow each other are one."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def without(whole: Range, holes: Sequence[Range]) -> list[Range]:
    """Return what is left of a range; holes: merged."""
    found = []
    first, end = whole
    for low, high in holes:
        if low > end or high < first:
            continue
        if first < low:
            found.append((first, low - 1))
        first = high + 1
    if first <= end:
        found.append((first, end))
    return found


def _range(text: str) -> tuple[Family, Range] | None:
    network = parse_cidr(text)
    if network is None:
        return None
    address, prefix = network.address, network.prefix
    number, family = address.number, _family(is_ipv4=address.is_ipv4)
    if address.is_mapped and prefix >= _MAPPED_PREFIX:
        prefix -= _MAPPED_PREFIX
    elif address.is_mapped:
        number, family = _MAPPED | number, 6
    size = BITS[family] - prefix
    first = number >> size << size
    return family, (first, first + (1 << size) - 1)


def _family(*, is_ipv4: bool) -> Family:
    return 4 if is_ipv4 else 6
